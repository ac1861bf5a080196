"""Restored databases: numbers do not come again, and nothing else counts as a restore."""

import shutil
import sqlite3
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path

import numpy as np
import psycopg
import pytest
import sqlalchemy as sa
from structlog.testing import capture_logs
from support.live_server import cloned, command
from support.store_cases import (
    CERTIFICATE,
    EVERYTHING,
    T0,
    columns,
    publish,
    register,
    schedule_columns,
)

from service.model.changes import ChangeColumns, ChangeKind
from service.model.errors import EpochNotFound, EpochNotKept
from service.model.incarnations import REWOUND_AFTER
from service.model.listing import PageFilter
from service.model.webhooks import Webhook, WebhookStatus
from service.storage import open_store
from service.storage.incarnations import marks
from service.storage.incarnations.contract import WEBHOOKS_WAIT

WIDTH = 2
ONLY = PageFilter(gone=False)


class File:
    """A SQLite file that is backed up and restored as the how-to says."""

    def __init__(self, path):
        self.path = Path(path)
        self.backup_path = self.path.with_name("backup.db")
        self.url = f"sqlite:///{self.path}"

    def backup(self):
        with closing(sqlite3.connect(self.path)) as source:
            source.execute(f"VACUUM INTO '{self.backup_path}'")

    def restore(self):
        for suffix in ("", "-wal", "-shm"):
            Path(f"{self.path}{suffix}").unlink(missing_ok=True)
        shutil.copy(self.backup_path, self.path)


class Server:
    """A Postgres database whose copy takes its place, as with `pg_restore`."""

    def __init__(self, url):
        self.url = url
        self.database = sa.make_url(url)
        self.server = self.database.set(database="postgres")
        self.copy = self.database.set(database=f"{self.database.database}_copy")

    def _as_new(self, name, template):
        command(self.server, f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        command(self.server, f"CREATE DATABASE {name} TEMPLATE {template}")

    def backup(self):
        self._as_new(self.copy.database, self.database.database)

    def restore(self):
        self._as_new(self.database.database, self.copy.database)

    def close(self):
        command(self.server, f"DROP DATABASE IF EXISTS {self.copy.database} WITH (FORCE)")


@pytest.fixture(params=["sqlite", "postgres"])
def place(request, tmp_path):
    """A database of one's own that can be backed up and restored."""
    if request.param == "sqlite":
        template = request.getfixturevalue("sqlite_template")
        yield File(shutil.copy(template, tmp_path / "recrawl.db"))
        return
    server = request.getfixturevalue("postgres_server")
    template = request.getfixturevalue("postgres_template")
    with cloned(server, template) as url, closing(Server(url)) as own:
        yield own


@contextmanager
def opened(url, now=T0):
    """Open a store as every process does."""
    with closing(open_store(url, WIDTH, clock=lambda: now)) as store:
        store.prepare()
        store.check()
        store.recognise()
        yield store


def lives(store):
    with store.begin(write=False) as tx:
        return tx.incarnations()


def changed(store, page_id, now=T0):
    with store.begin() as tx:
        tx.append_changes(
            columns(
                ChangeColumns,
                1,
                page_id=page_id,
                observed_at=now,
                changed_after=[None],
                kind=ChangeKind.changed,
                digest=0,
                last_modified=[None],
                moved_to=0,
            )
        )


def hand_out(store, n, host):
    """Hand out ids of pages and an epoch."""
    page_id = register(store, n, host=host)
    publish(store, schedule_columns(np.sort(page_id)))
    with store.begin(write=False) as tx:
        return set(page_id.tolist()), tx.number_in_force()


@pytest.mark.dear
def test_a_restored_database_hands_out_no_number_again(place):
    with opened(place.url) as store:
        old, first_epoch = hand_out(store, 5, "old.example")
    place.backup()
    with opened(place.url) as store:
        lost, lost_epoch = hand_out(store, 5, "lost.example")
        name = lives(store)[-1].name
    place.restore()
    with opened(place.url) as store:
        new, epoch = hand_out(store, 5, "new.example")
        newest = lives(store)[-1]
    assert not new & (old | lost)
    assert epoch > lost_epoch > first_epoch
    assert newest.name != name
    assert newest.last_page == max(old) < min(lost) <= max(lost) < newest.first_page == min(new)
    assert newest.last_epoch == first_epoch < lost_epoch < newest.first_epoch <= epoch


@pytest.mark.dear
def test_webhooks_of_a_restored_database_send_nothing_before_somebody_confirms(place):
    with opened(place.url) as store, store.begin() as tx:
        for status in WebhookStatus:
            tx.add_webhook(
                Webhook(
                    id=status,
                    url="https://hooks.example/",
                    secret="whsec_",
                    status=status,
                    created_at=T0,
                    next_at=T0,
                    most=1,
                )
            )
    place.backup()
    with opened(place.url):
        pass
    place.restore()
    with capture_logs() as logs, opened(place.url):
        pass
    assert [line["n"] for line in logs if line["event"] == WEBHOOKS_WAIT] == [1]
    with capture_logs() as logs, opened(place.url) as store:
        later, newest = T0 + timedelta(days=36_500), 2**62
        with store.begin() as tx:
            assert tx.webhooks_held() is not None
            assert tx.due_webhooks(later, newest, 9) == []
            assert tx.next_due_webhook() is None
            assert tx.claim_webhook(WebhookStatus.active, later, later) is None
        with store.begin() as tx:
            assert tx.release_webhooks()
            assert not tx.release_webhooks()
            assert tx.webhooks_held() is None
            (due,) = tx.due_webhooks(later, newest, 9)
            assert due.id == WebhookStatus.active
            assert tx.next_due_webhook() == T0
            assert tx.claim_webhook(due.id, later, later) is not None
    assert logs == []


@pytest.mark.dear
def test_a_backup_that_is_restored_twice_repeats_nothing(place):
    with opened(place.url) as store:
        hand_out(store, 5, "old.example")
    place.backup()
    seen, names, epochs = set(), set(), set()
    for host in "abc":
        place.restore()
        with opened(place.url) as store:
            pages, epoch = hand_out(store, 5, f"{host}.example")
            assert not pages & seen
            assert epoch not in epochs
            seen |= pages
            epochs.add(epoch)
            names.add(lives(store)[-1].name)
    assert len(names) == 3


@pytest.mark.dear
def test_deleted_pages_count_as_handed_out(place):
    with opened(place.url) as store:
        hand_out(store, 2, "old.example")
    place.backup()
    with opened(place.url) as store:
        ids = register(store, 3, host="lost.example")
        with store.begin() as tx:
            tx.delete_many(np.sort(ids))
    place.restore()
    with opened(place.url) as store:
        assert not set(register(store, 3, host="new.example")) & set(ids.tolist())


def test_processes_that_start_and_end_begin_no_incarnation(place):
    for n in range(4):
        with opened(place.url) as store, opened(place.url) as beside:
            register(store, 3, host=f"{n}.example")
            store.recognise()
            beside.recognise()
            assert len(lives(store)) == 1


def test_an_operator_begins_an_incarnation(place):
    with opened(place.url) as store:
        old = set(register(store, 3, host="old.example").tolist())
        (begun,) = store.begin_incarnation()
        new = register(store, 3, host="new.example").tolist()
        assert min(new) == begun.first_page > max(old)
    with opened(place.url) as store:
        assert len(lives(store)) == 2, "the next process goes on with it"


@pytest.mark.dear
def test_an_epoch_that_was_requested_before_the_backup_gets_a_new_number(place):
    """It was published after the backup, so followers may have it with other rows."""
    with opened(place.url) as store:
        page_id = np.sort(register(store, 3, host="old.example"))
        with store.begin() as tx:
            asked = tx.request_epoch(T0).epoch
    place.backup()
    with opened(place.url) as store:
        assert publish(store, schedule_columns(page_id)) == asked
    place.restore()
    with opened(place.url) as store:
        with store.begin(write=False) as tx:
            old, waiting = tx.epoch(asked), tx.newest_epoch()
        newest = lives(store)[-1]
        assert (old.status, waiting.status) == ("failed", "requested")
        assert "restored" in old.reason
        assert publish(store, schedule_columns(page_id)) == waiting.epoch == newest.first_epoch
        with store.begin(write=False) as tx, pytest.raises(EpochNotKept):
            tx.schedule_changes(waiting.epoch, asked, 0.1, 0, 10)


def test_an_epoch_that_ran_during_the_backup_is_never_published(place):
    with opened(place.url) as store:
        register(store, 3)
        with store.lead() as lead, lead.begin() as tx:
            ran = tx.start_epoch(T0).epoch
        (begun,) = store.begin_incarnation()
        with store.begin() as tx, pytest.raises(EpochNotFound, match="does not run"):
            tx.publish(ran, CERTIFICATE, T0)
        with store.begin(write=False) as tx:
            assert (tx.epoch(ran).status, tx.newest_epoch().epoch) == ("failed", ran)
            assert tx.number_in_force() == 0
        with store.begin() as tx:
            assert tx.request_epoch(T0).epoch == begun.first_epoch


def test_places_in_the_feed_behind_the_backup_are_lost(place):
    with opened(place.url) as store:
        (page,) = register(store, 1).tolist()
        changed(store, page)
        with store.begin(write=False) as tx:
            newest = tx.newest_change()
        (begun,) = store.begin_incarnation()
        changed(store, page)
        with store.begin(write=False) as tx:
            bounds, after = tx.feed_bounds(), tx.newest_change()
    assert [tuple(stretch) for stretch in bounds.lost] == [(newest + 1, begun.first_change)]
    assert newest < begun.first_change <= after


def test_an_interrupted_first_number_is_still_handed_out_once(place):
    """The numbers of a table go on from the first one, without a step."""
    with opened(place.url) as store:
        (begun,) = store.begin_incarnation()
        assert register(store, 3).min() == begun.first_page
        publish(store, schedule_columns(np.array([begun.first_page])))
        with store.begin(write=False) as tx:
            assert tx.number_in_force() == begun.first_epoch


def test_lists_cross_the_gap_of_a_restore_in_one_step(place):
    """Readers scan bounded ranges of ids, of which a gap would have millions."""
    with opened(place.url) as store:
        old = register(store, 3, host="old.example")
        store.begin_incarnation()
        new = register(store, 3, host="new.example")
        every = np.sort(np.append(old, new))
        publish(store, schedule_columns(every))
        with store.begin(write=False) as tx:
            pages, steps, after = [], 0, 0
            while after is not None:
                part = tx.list_pages(after, 10, ONLY)
                pages += part.pages.page_id.tolist()
                after, steps = part.after, steps + 1
            assert (pages, steps <= 3) == (every.tolist(), True)
            epoch, rows, steps, after = tx.number_in_force(), [], 0, 0
            while after is not None:
                part = tx.schedule(epoch, after, 10, EVERYTHING)
                rows += part.pages.page_id.tolist()
                after, steps = part.after, steps + 1
            assert (rows, steps <= 3) == (every.tolist(), True)
            space = tx.page_ranges()
    assert space.size < 2**23
    within = [any(a < i <= b for a, b in space.ranges.tolist()) for i in every.tolist()]
    assert all(within)


# -- SQLite alone


@pytest.fixture
def file(sqlite_template, tmp_path):
    return File(shutil.copy(sqlite_template, tmp_path / "recrawl.db"))


def test_a_copy_in_another_folder_begins_an_incarnation(file, tmp_path):
    with opened(file.url) as store:
        register(store, 3)
    file.backup()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    copy = File(shutil.copy(file.backup_path, elsewhere / "recrawl.db"))
    with opened(copy.url) as store:
        assert len(lives(store)) == 2


def test_a_file_that_was_overwritten_in_place_is_an_older_copy(file):
    """The inode stays, and so does the file that has the marks."""
    with opened(file.url) as store:
        register(store, 3)
    file.backup()
    with opened(file.url) as store:
        register(store, 1, host="lost.example")
    with file.path.open("r+b") as target:
        target.write(file.backup_path.read_bytes())
        target.truncate()
    for suffix in ("-wal", "-shm"):
        Path(f"{file.path}{suffix}").unlink(missing_ok=True)
    with opened(file.url) as store:
        assert len(lives(store)) == 2


def test_a_backup_of_the_same_opening_shows_by_the_numbers(file):
    with opened(file.url) as store:
        register(store, 3)
        file.backup()
        register(store, 1, host="lost.example")
    file.restore()
    with opened(file.url) as store:
        assert len(lives(store)) == 2


def test_a_backup_with_the_same_numbers_shows_by_the_opening(file):
    with opened(file.url) as store:
        register(store, 3)
    file.backup()
    with closing(open_store(file.url, WIDTH)) as store:  # is killed: it does not write its marks
        store.prepare()
        register(store, 5, host="lost.example")
        store.marked = False
    file.restore()
    with opened(file.url) as store:
        assert len(lives(store)) == 2


def test_a_process_that_is_killed_begins_no_incarnation(file):
    with opened(file.url) as store:
        register(store, 3)
        store.marked = False
    with opened(file.url) as store:
        assert len(lives(store)) == 1


@pytest.mark.parametrize(
    ("age", "n"), [(REWOUND_AFTER / 2, 1), (2 * REWOUND_AFTER, 2)], ids=["young", "old"]
)
def test_a_folder_that_is_restored_shows_by_inode_and_age(file, tmp_path, age, n):
    """On some file systems inodes change by themselves, so a young folder is no restore."""
    with opened(file.url) as store:
        register(store, 3)
    shutil.copytree(file.path.parent, tmp_path / "kept", ignore=shutil.ignore_patterns("kept"))
    with opened(file.url) as store:
        register(store, 3, host="lost.example")
    with opened(f"sqlite:///{tmp_path / 'kept' / 'recrawl.db'}", T0 + age) as store:
        assert len(lives(store)) == n


@pytest.mark.parametrize("left", ["", "{", "[]", '{"incarnation": 7}'])
def test_marks_that_a_power_cut_has_damaged_show_nothing(file, left):
    with opened(file.url) as store:
        register(store, 3)
    marks.path_of(str(file.path)).write_text(left)
    with opened(file.url) as store:
        assert len(lives(store)) == 1
        assert marks.read(str(file.path)) is not None


def test_a_new_file_in_the_place_of_another_one_repeats_nothing(file, sqlite_template):
    """Crawlers of the deleted database still have its numbers."""
    with opened(file.url) as store:
        old = register(store, 3)
    file.path.unlink()
    shutil.copy(sqlite_template, file.path)
    with opened(file.url) as store:
        assert register(store, 3).min() > old.max()


def test_a_backup_without_incarnations_beside_marks_is_a_restore(file):
    file.backup()
    with opened(file.url) as store:
        old = register(store, 3)
    file.restore()
    with opened(file.url) as store:
        assert register(store, 3).min() > old.max()


def test_a_running_service_notices_that_its_file_went_back(file):
    with opened(file.url) as store:
        register(store, 3)
        file.backup()
        register(store, 1, host="lost.example")
        store.recognise()
        backup, own = sqlite3.connect(file.backup_path), sqlite3.connect(file.path)
        with closing(backup), closing(own):
            backup.backup(own)
        store.recognise()
        assert len(lives(store)) == 2


def test_marks_are_written_again_only_where_they_say_more(file):
    path = marks.path_of(str(file.path))
    with opened(file.url) as store:
        store.recognise()
        before = path.stat().st_mtime_ns
        store.recognise()
        assert path.stat().st_mtime_ns == before
        register(store, 1)
        store.recognise()
        assert path.stat().st_mtime_ns > before


def test_a_full_disk_leaves_marks_and_opening_as_they_were(file, monkeypatch):
    with opened(file.url) as store:
        register(store, 3)
    with monkeypatch.context() as patch:
        patch.setattr(marks, "write", lambda *_: False)
        with opened(file.url) as store:
            register(store, 1, host="more.example")
    with opened(file.url) as store:
        assert len(lives(store)) == 1


# -- Postgres alone


@pytest.fixture
def server(postgres_server, postgres_template):
    with cloned(postgres_server, postgres_template) as url:
        yield Server(url)


def on(url, statement, *values):
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement, values)


def test_a_standby_that_takes_over_is_no_restore(server):
    """Its timeline is another one, and its last sign of life is a few seconds old."""
    with opened(server.url, T0) as store:
        register(store, 3)
        on(server.url, "UPDATE incarnations SET timeline = '000000FF'")
        on(server.url, LEAD, T0 - timedelta(seconds=40))
        store.recognise()
        (only,) = lives(store)
        assert only.timeline not in ("", "000000FF"), "it is known by the new timeline from now on"


def test_a_server_that_was_set_back_is_a_restore(server):
    with opened(server.url, T0) as store:
        register(store, 3)
        on(server.url, "UPDATE incarnations SET timeline = '000000FF'")
        on(server.url, LEAD, T0 - 2 * REWOUND_AFTER)
        store.recognise()
        assert len(lives(store)) == 2
        store.recognise()
        assert len(lives(store)) == 2


LEAD = """
INSERT INTO leads (name, token, sessions, renewed_at, expires_at)
VALUES ('epochs', 1, '[]', %s, now())
"""


def test_tables_that_pg_restore_made_anew_in_the_same_database_are_a_restore(server):
    with opened(server.url) as store:
        register(store, 3)
    on(
        server.url,
        "CREATE TABLE again (LIKE incarnations INCLUDING ALL); INSERT INTO again SELECT * FROM "
        "incarnations; DROP TABLE incarnations; ALTER TABLE again RENAME TO incarnations",
    )
    with opened(server.url) as store:
        assert len(lives(store)) == 2


def test_a_server_that_tells_nothing_about_itself_still_serves(server, monkeypatch):
    """A service of Postgres may lack functions of its own administration."""
    from service.storage.incarnations import postgres

    monkeypatch.setattr(postgres, "CLUSTER", "SELECT no_such_function()")
    monkeypatch.setattr(postgres, "TIMELINE", "SELECT no_such_function()")
    for _ in range(2):
        with opened(server.url) as store:
            register(store, 3)
            assert len(lives(store)) == 1


def test_ids_of_hosts_and_groups_do_not_come_again_either(server):
    """A coordinator has their history by these ids, and is not restored with them."""
    with opened(server.url) as store:
        with store.begin() as tx:
            (old,), group = tx.host_ids(["a.example"]).tolist(), tx.group_id("a")
        (begun,) = store.begin_incarnation()
        with store.begin() as tx:
            (new,), other = tx.host_ids(["b.example"]).tolist(), tx.group_id("b")
    assert old < begun.first_page <= new
    assert group < begun.first_page <= other


def test_vacuum_and_a_new_index_are_no_restore(server):
    with opened(server.url) as store:
        register(store, 3)
    for statement in ("VACUUM FULL incarnations", "REINDEX TABLE incarnations"):
        on(server.url, statement)
    with opened(server.url) as store:
        assert len(lives(store)) == 1


@pytest.mark.parametrize("at", ["marks", "database"])
def test_a_process_that_opens_the_file_between_two_looks_is_no_restore(file, monkeypatch, at):
    """The service looks at the marks and at the database; a command opens the file in between."""
    with opened(file.url) as store:
        register(store, 3)
        store.recognise()
        read, others = marks.read, []

        def read_then_wait(database):
            known = read(database)
            if not others:
                others.append(True)
                with opened(file.url) as other:
                    register(other, 2, host="other.example")
            return known if at == "marks" else read(database)

        monkeypatch.setattr(marks, "read", read_then_wait)
        store.recognise()
        monkeypatch.undo()
        store.recognise()
        assert len(lives(store)) == 1
    with opened(file.url) as store:
        assert len(lives(store)) == 1
