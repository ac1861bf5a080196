"""A database that is restored under a running server: nothing of the lost time is believed."""

import shutil
import sqlite3
import subprocess
from contextlib import closing

import httpx
import pytest
import sqlalchemy as sa
from cryptography.fernet import Fernet
from support.access_cases import ADMIN, COMMAND, bearer, new_key
from support.live_server import cloned, running, until

from service.access.keys import revoke_key
from service.budget.allotments import Terms
from service.budget.spending import adopt_pace
from service.console.session import COOKIE, Seal, Session
from service.model.access import Role
from service.storage import open_store
from service.storage.incarnations import marks

pytestmark = pytest.mark.dear


class File:
    """A SQLite file, restored in place by SQLite's own backup."""

    def __init__(self, folder):
        self.url, self.copy = f"sqlite:///{folder}/recrawl.db", f"sqlite:///{folder}/copy.db"

    def copy_to(self, source, target):
        paths = (sa.make_url(url).database for url in (source, target))
        read, written = map(sqlite3.connect, paths)
        with closing(read), closing(written):
            read.backup(written)

    def backup(self):
        self.copy_to(self.url, self.copy)

    def restore(self):
        self.copy_to(self.copy, self.url)


class Server:
    """A Postgres database, restored in place by `pg_restore --clean` from a dump of a copy."""

    def __init__(self, url, other, folder):
        self.url, self.copy, self.dump = url, other, folder / "recrawl.dump"

    def copy_to(self, source, target):
        run("pg_dump", "--format=custom", f"--file={self.dump}", address(source))
        clean = "--clean", "--if-exists", "--no-owner", "--single-transaction"
        run("pg_restore", *clean, f"--dbname={address(target)}", str(self.dump))

    def backup(self):
        self.copy_to(self.url, self.copy)

    def restore(self):
        self.copy_to(self.copy, self.url)


def address(url):
    return sa.make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(params=["sqlite", "postgres"])
def place(request, tmp_path):
    if request.param == "sqlite":
        shutil.copy(request.getfixturevalue("sqlite_template"), tmp_path / "recrawl.db")
        yield File(tmp_path)
        return
    server = request.getfixturevalue("postgres_server")
    template = request.getfixturevalue("postgres_template")
    with cloned(server, template) as url, cloned(server, template) as other:
        yield Server(url, other, tmp_path)


BUDGET = 24


@pytest.fixture
def live(place):
    """A server alone on Postgres, which no worker helps to notice the restore."""
    embedded = isinstance(place, File)
    options = {"api_keys": (ADMIN,), "budget": f"{BUDGET} crawls", "host_delay_s": 0}
    with running(place.url, embedded=embedded, host_concurrency=0, **options) as live:
        yield live


def status(live, key):
    return httpx.get(f"{live.url}/hosts", headers=bearer(key)).status_code


def restore(live, place):
    """Restore, and wait until the server has noticed; a file shows it by ids in its marks."""
    (lost,) = live.register("https://lost.example/")
    live.clock.advance(seconds=10)
    before = live.service.watch.incarnation
    if isinstance(place, File):
        path = live.service.store.path
        until(lambda: marks.read(path).last.page >= lost, "the marks are of the last second")
    place.restore()
    until(lambda: live.service.watch.incarnation not in {"", before}, "no new incarnation")


def crawls(live, count):
    return len(live.post("/leases", {"count": count}).json()["items"])


def test_keys_are_those_of_the_backup_also_after_as_many_changes(live, place):
    """As many changes after the backup as before the restore: their number would be the same."""
    text, key_id = new_key(live.service.store, Role.read)
    place.backup()
    with live.service.store.begin() as tx:
        revoke_key(tx, COMMAND, key_id)
    lost, _ = new_key(live.service.store, Role.read)
    until(lambda: (status(live, text), status(live, lost)) == (401, 200), "keys of the lost time")
    with closing(open_store(place.copy, 2)) as store:
        for name in "ab":
            with store.begin() as tx:
                tx.end_session(name.encode() * 32, tx.now())
    place.restore()
    until(lambda: (status(live, text), status(live, lost)) == (200, 401), "keys of the backup")


def test_page_ids_of_the_lost_time_do_not_come_again(live, place):
    live.register("https://kept.example/")
    place.backup()
    (lost,) = live.register("https://lost.example/a")
    restore(live, place)
    (new,) = live.register("https://new.example/")
    assert new > lost + 1_000
    item = {"page_id": lost, "observed_at": live.clock().isoformat(), "digest": "a"}
    (refused,) = live.post("/observations", [item]).json()["rejected"]
    assert refused["code"] == "page_lost"


def test_a_budget_that_was_spent_in_the_lost_time_is_spent_no_more(live, place):
    live.register(*(f"https://a.example/{n}" for n in range(2 * BUDGET)))
    place.backup()
    assert crawls(live, 2 * BUDGET) == BUDGET
    assert crawls(live, 1) == 0
    restore(live, place)
    assert crawls(live, 2 * BUDGET) == BUDGET
    assert crawls(live, 1) == 0


def test_the_unit_of_the_budget_is_that_in_force(live, place):
    """The backup has another unit than the settings, because these have changed since."""
    live.register(*(f"https://a.example/{n}" for n in range(2 * BUDGET)))
    place.backup()
    with closing(open_store(place.copy, 2)) as store, store.begin() as tx:
        adopt_pace(tx, Terms(1e9, unit="bytes"))
    restore(live, place)
    assert crawls(live, 2 * BUDGET) == BUDGET


def test_an_order_of_the_lost_time_is_no_longer_in_force(live, place):
    live.register("https://a.example/")
    place.backup()
    assert (
        live.client.put("/budget", json={"budget": "1 GB", "change_unit": True}).status_code == 200
    )
    assert live.post("/pause", {"for_s": 3_600}).status_code == 200
    windows = {"windows": ["Mon 00:00-01:00 UTC"]}
    assert live.client.put("/hosts/a.example", json=windows).status_code == 200
    assert crawls(live, 1) == 0
    restore(live, place)
    assert live.get("/budget").json()["unit"] == "crawls"
    assert "until" not in live.get("/pause").json()
    assert crawls(live, 1) == 1


def test_sessions_of_the_console_end_at_this_server_too(live, place):
    place.backup()
    seal = Seal(live.service.store, live.clock, live.service.incarnation)
    cookie = seal.close(Session(ADMIN))
    assert visit(live, cookie) == 200
    restore(live, place)
    assert visit(live, cookie) == 303
    new = seal.close(Session(ADMIN))
    assert visit(live, new) == 200
    with live.service.store.begin(write=False) as tx:
        other = Fernet(tx.console_secret())
    assert other.decrypt(new, ttl=None), "other servers have the same secret"


def visit(live, cookie):
    return httpx.get(f"{live.url}/console", cookies={COOKIE: cookie}).status_code


def test_a_reader_of_changes_waits_for_the_next_one(live, place):
    """The newest number of the lost time would answer each wait at once."""
    changed(live, "a")
    cursor = live.get("/changes").json()["next_cursor"]
    place.backup()
    changed(live, "b")
    lost = live.get("/changes", cursor=cursor, wait_s=10).json()
    assert len(lost["items"]) == 1
    restore(live, place)
    assert live.get("/changes", cursor=lost["next_cursor"]).status_code == 410
    assert live.service.feed.newest == 0
    assert live.get("/changes", cursor=cursor).json()["items"] == []
    changed(live, "c")
    assert len(live.get("/changes", cursor=cursor, wait_s=10).json()["items"]) == 1


def changed(live, digest):
    live.clock.advance(minutes=1)
    item = {"url": "https://a.example/", "observed_at": live.clock().isoformat(), "digest": digest}
    assert live.post("/observations", [item]).json()["accepted"] == 1
