"""Logs to archive, archives that fail, and what must hold whatever happens."""

import errno
from datetime import timedelta

import fsspec
import numpy as np
from fsspec.implementations.local import LocalFileSystem

from service.archive.log_archive import LogArchive
from service.core.estimators.gamma import Gamma
from service.estimation.rules import Rules
from service.ingest.rebuild import rebuild
from service.model.columns import LogColumns
from service.model.domain import Timing
from service.storage import open_store
from service.transfer.archiving import Retention, archive_days
from support.store_cases import DAY, T0, columns, register

KEPT = timedelta(days=4)
"""Days that stay in the database in these tests."""
NOW = T0 + 12 * DAY


def realistic(n, first_page=1, at=T0, seed=1, days=1):
    """Return n entries by page and time, as a crawler of a page every five days makes them."""
    rng = np.random.default_rng(seed)
    page = np.sort(rng.integers(0, 5 * n // days, n)) + first_page
    begin = np.datetime64(at.date(), "us")
    observed = begin + rng.integers(0, 86_400_000_000 * days, n).astype("m8[us]")
    interval = np.rint(rng.gamma(4.0, 1.2, n) * 86.4e9) / 86_400_000_000
    is_ping, failed = rng.random(n) < 0.05, rng.random(n) < 0.02
    changed = np.where(is_ping | failed, -1, rng.random(n) < 0.3)
    log = columns(
        LogColumns,
        n,
        page_id=page,
        observed_at=observed,
        kind=is_ping,
        changed=changed,
        interval=np.where(changed < 0, np.nan, interval),
        crawl_rate=np.nan,
        status=np.where(
            is_ping, -1, rng.choice([200, 304, 404, 503], n, p=[0.9, 0.06, 0.03, 0.01])
        ),
    )
    return log.take(np.lexsort((log.kind, log.observed_at, log.page_id)))


def rebuilt(log):
    """Rebuild all estimates from the log; return the states."""
    rules = Rules(Gamma(), Timing.periodic, np.random.default_rng(1))
    assert sum(rebuild(log.store, rules)) == len(log.ids)
    with log.store.begin() as tx:
        return tx.lock_states(log.ids)


def damaging(monkeypatch):
    """Flip a bit of each file between its writing and its check."""
    check = LogArchive.check

    def damaged(archive, file, form):
        path = archive.path(file.name)
        data = bytearray(archive.files.cat_file(path))
        data[len(data) // 3] ^= 16
        archive.files.pipe_file(path, bytes(data))
        check(archive, file, form)

    monkeypatch.setattr(LogArchive, "check", damaged)


class FaultyFileSystem(LocalFileSystem):
    """Files of this machine that fail on demand."""

    protocol = "faulty"
    room: int | None = None
    """Bytes until the disk is full; None: no end."""
    unreachable = ""
    """Act that fails: open, write, close, read."""
    cachable = False

    def _open(self, path, mode="rb", **options):
        if FaultyFileSystem.unreachable == "open" and "w" in mode:
            raise ConnectionError("connection refused")
        if FaultyFileSystem.unreachable == "read" and "r" in mode:
            raise TimeoutError("timed out")
        return FaultyFile(super()._open(path, mode, **options))


class FaultyFile:
    def __init__(self, file):
        self.file = file

    def __getattr__(self, name):
        return getattr(self.file, name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def write(self, data):
        if FaultyFileSystem.unreachable == "write":
            raise ConnectionResetError(errno.ECONNRESET, "connection reset")
        if FaultyFileSystem.room is not None:
            FaultyFileSystem.room -= len(data)
            if FaultyFileSystem.room < 0:
                raise OSError(errno.ENOSPC, "No space left on device")
        return self.file.write(data)

    def close(self):
        self.file.close()
        if FaultyFileSystem.unreachable == "close" and "w" in self.file.mode:
            raise RuntimeError("the upload was not completed")  # as libraries of stores do


fsspec.register_implementation("faulty", FaultyFileSystem)


class Log:
    """A store with a log of some days, what it must hold, and its archive."""

    def __init__(
        self, url, address, n_pages=30, days=12, clock=lambda: NOW, hosts=("example.org",)
    ):
        self.url, self.address, self.clock = url, address, clock
        self.store = open_store(url, 2, clock=clock, archive=LogArchive(str(address)))
        with self.store.lead() as lead:
            lead.housekeep(T0 + DAY - KEPT, T0)
        each = [register(self.store, n_pages // len(hosts), host=host, now=T0) for host in hosts]
        self.ids = np.sort(np.concatenate(each))
        rng = np.random.default_rng(7)
        for day in range(days):
            log = realistic(n_pages, at=T0 + day * DAY, seed=day)
            page = np.sort(rng.choice(self.ids, n_pages))
            log = LogColumns(**{**log.arrays(), "page_id": page})
            self.append(log)
        self.whole = self.read()

    def append(self, log):
        with self.store.begin() as tx:
            tx.append_log(log.take(np.argsort(log.observed_at, kind="stable")))

    def read(self, store=None):
        with (store or self.store).begin(write=False) as tx:
            return tx.log_of(self.ids)

    def stored(self):
        parts = []
        for part in self.store.parts:
            with part.begin(write=False) as tx:
                parts.append(tx.stored_log(self.ids))
        return LogColumns.concatenate(parts)

    def files(self):
        with self.store.begin(write=False) as tx:
            return tx.log_files()

    def run(self, store=None):
        """Archive; return the steps that named files or left a part."""
        steps = archive_days(store or self.store, Retention(KEPT, None))
        return [step for step in steps if step.files or step.kept]

    def again(self):
        """Return another store on the same database and archive, as of another process."""
        archive = LogArchive(str(self.address))
        return open_store(self.url, 2, clock=self.clock, archive=archive)

    def assert_once(self):
        """Assert that each entry is either in the database or in one named file, and no other."""
        archived = self.store.archive.log_of(self.files(), self.ids)
        parts = [self.stored(), archived]
        both = LogColumns.concatenate(parts)
        both = both.take(np.lexsort((both.kind, both.observed_at, both.page_id)))
        assert len(both) == len(self.whole)
        for name, column in self.whole.arrays().items():
            np.testing.assert_array_equal(getattr(both, name), column, err_msg=name)

    def assert_done(self):
        """Assert that the database has the days of the retention alone."""
        assert self.stored().observed_at.min() >= np.datetime64((NOW - KEPT).date(), "us")
