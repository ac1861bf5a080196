"""Move a logical shard to another database while servers and workers are in use. Ids stay.

1. **Copy.** The source notes changes from now on. The rows of pages are copied in blocks.
2. **Catch up.** The pages of the notes are copied again, until few are left.
3. **Close.** No epoch runs now. The source ends its claim (`move_source`), so requests for the
   shard get `shard_unavailable`. The last notes and the rows that take effect are copied.
4. **Check.** Each block was compared with its source by counts and checksums when it was copied.
   Now the numbers of pages, states, validators and tags are compared, and the checksums of the
   rows that take effect. If a number differs, or the shard was closed for too long, the source
   opens the shard again.
5. **Switch.** One commit at the target adds the rows that take effect and the target's claim to the
   shard. That commit is the end of the move: nothing after it is undone.
6. **Clean up.** Readers may still use the old rows for a moment; then the rows are deleted.

The next step follows from the claims of the two databases, so a run that is killed can go on.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from uuid import uuid4

import numpy as np

from recrawl_cluster.moves import move_source, move_target
from recrawl_cluster.moves.move_plan import alone, planned
from recrawl_cluster.moves.move_record import (
    DROP,
    PLACE,
    RUN,
    Record,
    check_run,
    position_of,
    read_record,
    write_record,
)
from recrawl_cluster.moves.move_rows import (
    ACTIVE,
    SCHEDULE,
    Range,
    checksums,
    copy_pages,
    counts,
    delete_pages,
    read_both,
    shard_range,
)
from recrawl_cluster.moves.move_waits import archive_kept_out, epochs_kept_out
from recrawl_cluster.sharded import ShardedStore
from recrawl_cluster.store.claims import claimed
from recrawl_cluster.store.database import ShardDatabase
from service.model.errors import MoveFailed, MoveRefused, RecrawlError, StoreUnavailable
from service.model.words import counted
from service.storage.stores.postgres import PostgresTransaction

BLOCK, NOTES = 10_000, 20_000
"""Pages that one transaction copies, and notes; a report of a page leaves some four notes."""
FEW = 2_000
"""Notes that the closed shard may have left; copying them takes about a second."""
ROUNDS = 50
"""Maximum rounds of catching up before the shard is closed all the same."""
CLOSED_S, GRACE_S = 30.0, 30.0
"""Maximum time for which the shard is closed, and time for which old rows stay, seconds."""
ATTEMPTS, PAUSE_S = 5, 2.0
"""Attempts after an outage of a connection or a lock, and the time between two, seconds."""
NEXT_BLOCK = """
SELECT max(page_id), count(*) FROM (
    SELECT page_id FROM pages WHERE page_id > %(after)s AND page_id <= %(last)s
    ORDER BY page_id LIMIT %(limit)s
) AS block
"""
N_FILES = "SELECT count(*) FROM log_files"


@dataclass
class Move:
    """One run of a move."""

    store: ShardedStore
    shard: int
    to: str
    report: Callable[[str], None]
    """Receiver of the progress, a sentence a step."""
    closed_s: float = CLOSED_S
    grace_s: float = GRACE_S
    wait: Callable[[float], None] = time.sleep
    block: int = BLOCK
    run_number: str = field(default_factory=lambda: uuid4().hex)
    record: Record = field(init=False)
    closed_at: float = field(init=False)
    """Time at which the shard was closed, of `time.monotonic`."""

    @property
    def source(self) -> ShardDatabase:
        """The database that the shard leaves."""
        return self.store.databases[position_of(self.store.start, self.record.source)]

    @property
    def target(self) -> ShardDatabase:
        """The database that the shard enters."""
        return self.store.databases[position_of(self.store.start, self.record.target)]

    @property
    def some(self) -> Range:
        """The ids of the shard."""
        return shard_range(self.shard)

    def run(self) -> None:
        """Move the shard, or go on with a move that was not completed.

        Raise `MoveRefused` for a move that is not possible, and `ShardMoving` while another one is
        not complete. Raise `MoveFailed` if copies differ or the databases do not answer.
        """
        with alone(self.store):
            self.record = planned(self.store, self.shard, self.to)
            for attempt in range(1, ATTEMPTS + 1):
                try:
                    self._take_over()
                    with archive_kept_out((self.source, self.target), self.wait):
                        self._go_on()
                except StoreUnavailable as error:
                    if attempt == ATTEMPTS:
                        self._give_up(error)
                    self.report(f"attempt {attempt} failed: {error.detail}")
                    self.wait(PAUSE_S)
                else:
                    return

    def cancel(self) -> None:
        """Undo a move that is not complete; the shard stays at its source."""
        with alone(self.store):
            self.record = planned(self.store, self.shard, self.to)
            if not self.record.number:
                raise MoveRefused(f"there is no move of shard {self.shard} to cancel")
            self._take_over()
            if self._is_in(self.target):
                raise MoveFailed(
                    f"shard {self.shard} is in {self.to} already; run without --cancel"
                )
            self._reopen()
            self._retried(self.source, move_source.unwatch)
            self._delete(self.target)
            self._end()

    # -- the run

    def _take_over(self) -> None:
        """Write the number of this run into the databases; earlier runs change nothing after."""
        n_files = 0
        for database in (self.source, self.target):
            with database.begin() as tx:
                tx.put_meta(RUN, self.run_number)
                n_files += int(tx.scalar(N_FILES))
        with self.store.coordinator.begin() as tx:
            tx.put_meta(RUN, self.run_number)
            stored = read_record(tx)
            is_anew = stored is None or stored.n_files != n_files
            if is_anew:  # blocks may have entries that the archive has taken since
                stored = self.record._replace(number=uuid4().hex, n_files=n_files)
                write_record(tx, stored)
            self.record = stored or self.record
        self.store.read_claims()
        if is_anew and not self._is_in(self.target):
            self._reopen()

    def _go_on(self) -> None:
        if not self._is_in(self.target):
            if self._is_in(self.source):
                self._copy_all()
                self._catch_up()
            self._switch()
        self._clean_up()

    def _is_in(self, database: ShardDatabase) -> bool:
        with database.unchecked() as tx:
            return self.shard in claimed(tx).numbers

    @contextmanager
    def _writing(self, database: ShardDatabase) -> Iterator[PostgresTransaction]:
        """Open a transaction that commits only if no other run took over."""
        with database.begin() as tx:
            check_run(tx, self.run_number)
            yield tx

    def _retried(self, database: ShardDatabase, act: Callable[[PostgresTransaction], None]) -> None:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                with self._writing(database) as tx:
                    act(tx)
            except StoreUnavailable:
                if attempt == ATTEMPTS:
                    raise
                self.wait(PAUSE_S)
            else:
                return

    # -- copy and catch up

    def _copy_all(self) -> None:
        self._retried(self.source, lambda tx: move_source.watch(tx, self.shard))
        with self._writing(self.target) as tx:
            move_target.make_room(tx)
            number, _, after = (tx.get_meta(PLACE) or "").partition(" ")
        place = int(after) if number == self.record.number else self.some.first - 1
        n_copied = 0
        while place < self.some.last:
            self.report(f"copied {counted(n_copied, 'page')} of shard {self.shard}")
            with self.source.begin(write=False) as tx:
                ((last, n),) = tx.run(
                    NEXT_BLOCK, after=place, last=self.some.last, limit=self.block
                )
            last = self.some.last if n < self.block else last  # entries without a page too
            self._copy(Range(place + 1, last), place=last)
            place, n_copied = last, n_copied + n
        self.report(f"copied {counted(n_copied, 'page')} of shard {self.shard}")

    def _copy(self, some: Range, place: int | None = None) -> None:
        """Copy the rows of some pages, compare them, and write the place that was reached."""
        queries = some.queries()
        with self.source.read_whole() as source, self._writing(self.target) as target:
            assert isinstance(source, PostgresTransaction)  # noqa: S101 - for mypy
            copy_pages(source.driver, target.driver, some)
            self._compare(*read_both(checksums, source.driver, queries, target.driver, queries))
            if place is not None:
                target.put_meta(PLACE, f"{self.record.number} {place}")

    def _compare(self, ours: object, theirs: object) -> None:
        if ours != theirs:
            raise MoveFailed(
                f"the copy of shard {self.shard} in {self.to} differs: {theirs}, not {ours}"
            )

    def _catch_up(self) -> None:
        for _ in range(ROUNDS):
            with self.source.begin(write=False) as tx:
                n = int(tx.scalar(move_source.N_NOTES))
            self.report(f"{counted(n, 'change')} to catch up")
            if n <= FEW:
                break
            for _ in range(0, n, NOTES):
                self._copy_noted()

    def _copy_noted(self) -> int:
        """Copy the pages of the oldest notes, then drop these notes; return their number."""
        with self.source.begin(write=False) as tx:
            notes, page_id = move_source.read_notes(tx, NOTES)
        if notes:
            self._copy(self.some._replace(ids=tuple(page_id)))
            with self._writing(self.source) as tx:
                tx.run(move_source.DROP_NOTES, n=np.array(notes))
        return len(notes)

    # -- close, check, switch

    def _switch(self) -> None:
        for _ in range(ATTEMPTS):
            epochs = epochs_kept_out(self.store.coordinator, (self.source, self.target), self.wait)
            with epochs, self._reopening():
                self._close()
                last = self._finish()
                if last is not None:
                    self._activate(last)
                    self.report(
                        f"shard {self.shard} is in {self.to}; it was closed for "
                        f"{time.monotonic() - self.closed_at:.1f} s"
                    )
                    return
                self._reopen()
            self.report(f"more than {self.closed_s:g} s; shard {self.shard} is open again")
            self._catch_up()
        raise MoveFailed(
            f"shard {self.shard} could not be copied within {self.closed_s:g} s; raise --closed-s, "
            "or run this at a time of fewer changes"
        )

    @contextmanager
    def _reopening(self) -> Iterator[None]:
        """Open the shard again before an error, which becomes a `RecrawlError`, is raised.

        After an outage the shard stays closed for the next attempt.
        """
        try:
            yield
        except StoreUnavailable:
            raise
        except Exception as error:
            if not self._is_in(self.target):
                self._reopen()
            if isinstance(error, RecrawlError):
                raise
            what = f"shard {self.shard} cannot enter {self.to}"
            raise MoveFailed(f"{what}: {' '.join(str(error).split())}") from error

    def _close(self) -> None:
        """Close the shard, unless an earlier run has, after a copy of what only epochs change."""
        self.report(f"closing shard {self.shard}")
        with self._writing(self.source) as tx:
            move_source.announce_epoch(tx, self.store)
        if self._is_in(self.source):
            while self._copy_noted() >= FEW:
                pass
            self._stage_schedule()
            self._retried(self.source, lambda tx: move_source.close(tx, self.shard))
        else:
            self._stage_schedule()
        self.closed_at = time.monotonic()
        self.store.read_claims()
        self.report(f"shard {self.shard} is closed")

    def _stage_schedule(self) -> None:
        """Copy the rows that change only under the lead, and compare them."""
        with self.source.read_whole() as source, self._writing(self.target) as target:
            assert isinstance(source, PostgresTransaction)  # noqa: S101 - for mypy
            move_target.make_room(target)
            queries = move_target.copy_schedule(source, target, self.shard)
            copies = [move_target.waiting(table) for table in move_target.WAITING[len(ACTIVE) :]]
            self._compare(*read_both(checksums, source.driver, queries, target.driver, copies))

    def _finish(self) -> list[int] | None:
        """Copy the last changes and the rows that take effect; return the last numbers drawn.

        Return None as soon as the shard has been closed for too long.
        """
        while self._copy_noted():
            if self._late():
                return None
        active = [move_target.waiting(table) for table in ACTIVE]
        with self.source.read_whole() as source, self._writing(self.target) as target:
            assert isinstance(source, PostgresTransaction)  # noqa: S101 - for mypy
            move_target.copy_active(source, target)
            if self._late():
                return None
            self._compare(*read_both(checksums, source.driver, active, target.driver, active))
            self._compare(*read_both(counts, source.driver, self.some, target.driver, self.some))
            return None if self._late() else move_target.last_numbers(source, self.shard)

    def _late(self) -> bool:
        return time.monotonic() - self.closed_at > self.closed_s

    def _activate(self, last: list[int]) -> None:
        self.report(f"switching shard {self.shard}")
        with self._writing(self.target) as tx:
            move_target.activate(tx, self.shard, last)
        self.store.read_claims()

    def _reopen(self) -> None:
        """Open the shard at its source again, unless it is open."""
        if not self._is_in(self.source):
            self._retried(self.source, lambda tx: move_source.reopen(tx, self.shard))
        self.store.read_claims()

    def _give_up(self, error: RecrawlError) -> None:
        """Open the shard at its source if that is possible, and raise."""
        with suppress(RecrawlError):
            self._take_over()
            if not self._is_in(self.target):
                self._reopen()
        raise MoveFailed(
            f"the move of shard {self.shard} stopped: {error.detail}; run the command again"
        ) from error

    # -- after the switch

    def _clean_up(self) -> None:
        self.report(f"the old rows are deleted in {self.grace_s:g} s")
        self.wait(self.grace_s)
        self._retried(self.source, move_source.unwatch)
        self._delete(self.source)
        with self._writing(self.source) as tx:
            tx.once(f"DROP SEQUENCE IF EXISTS page_ids_{self.shard}")
        self._end()
        self.report(f"shard {self.shard} has moved to {self.to}")

    def _delete(self, database: ShardDatabase) -> None:
        """Delete the rows of the shard in a database, a block a transaction."""
        place = self.some.first - 1
        while place < self.some.last:
            with self._writing(database) as tx:
                ((last, n),) = tx.run(
                    NEXT_BLOCK, after=place, last=self.some.last, limit=self.block
                )
                last = self.some.last if n < self.block else last
                delete_pages(tx.driver, Range(place + 1, last))
            place = last
        with self._writing(database) as tx:
            tx.once(f"DELETE FROM schedule WHERE {self.some.within(SCHEDULE)}")

    def _end(self) -> None:
        """Delete all traces of the move, the record last."""
        with self._writing(self.target) as tx:
            move_target.drop_room(tx)
            tx.run(DROP, name=PLACE)
        with self._writing(self.store.coordinator) as tx:
            write_record(tx, None)
