"""A database that was restored while crawlers, followers and caches go on."""

import shutil
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from support.live_server import cloned, command, running

pytestmark = pytest.mark.dear

HOST = "old.example"


class Restorable:
    """A database of which a copy is kept, and then put in its place."""

    def __init__(self, url):
        self.url = url
        self.parsed = sa.make_url(url)
        self.path = Path(self.parsed.database or "")
        self.kept = self.path.with_name("backup.db")
        self.copy = f"{self.parsed.database}_copy"

    @property
    def embedded(self):
        return self.parsed.get_backend_name() == "sqlite"

    def backup(self):
        if self.embedded:
            with closing(sqlite3.connect(self.path)) as source:
                source.execute(f"VACUUM INTO '{self.kept}'")
        else:
            self._move(self.parsed.database, self.copy)

    def restore(self):
        if self.embedded:
            for suffix in ("", "-wal", "-shm"):
                Path(f"{self.path}{suffix}").unlink(missing_ok=True)
            shutil.copy(self.kept, self.path)
        else:
            self._move(self.copy, self.parsed.database)

    def _move(self, source, target):
        server = self.parsed.set(database="postgres")
        command(
            server,
            f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            f"WHERE datname = '{source}'",
        )
        command(server, f"DROP DATABASE IF EXISTS {target} WITH (FORCE)")
        command(server, f"CREATE DATABASE {target} TEMPLATE {source}")

    def close(self):
        if not self.embedded:
            server = self.parsed.set(database="postgres")
            command(server, f"DROP DATABASE IF EXISTS {self.copy} WITH (FORCE)")


@pytest.fixture(params=["sqlite", "postgres"])
def place(request, tmp_path):
    if request.param == "sqlite":
        template = request.getfixturevalue("sqlite_template")
        path = shutil.copy(template, tmp_path / "recrawl.db")
        yield Restorable(f"sqlite:///{path}")
        return
    server = request.getfixturevalue("postgres_server")
    template = request.getfixturevalue("postgres_template")
    with cloned(server, template) as url, closing(Restorable(url)) as own:
        yield own


OPTIONS = {"host_delay_s": 0, "host_concurrency": 0}


def crawled(live, lease, **fields):
    return {"lease": lease, "observed_at": live.clock().isoformat(), **fields}


def lease_of(live, host):
    (crawl,) = live.post("/leases", {"count": 1, "hosts": [host]}).json()["items"]
    return crawl["lease"]


def digests(live, host, n, digest):
    live.clock.advance(minutes=1)
    items = [
        {"url": f"https://{host}/{i}", "observed_at": live.clock().isoformat(), "digest": digest}
        for i in range(n)
    ]
    assert live.post("/observations", items).json()["n_rejected"] == 0


@pytest.fixture
def lost(place):
    """What callers have of a service whose database then went back to a backup."""
    with running(place.url, **OPTIONS) as live:
        live.register(*(f"https://{HOST}/{i}" for i in range(3)))
        live.epoch()
        digests(live, HOST, 3, "a")
        kept = {
            "cursor": live.get("/changes").json()["next_cursor"],
            "clock": live.clock,
        }
    place.backup()
    kept["clock"].advance(minutes=1)
    with running(place.url, clock=kept["clock"], **OPTIONS) as live:
        live.post("/pages/recrawl", {"urls": [f"https://{HOST}/{i}" for i in range(3)]})
        kept["leases"] = [lease_of(live, HOST) for _ in range(3)]
        (page,) = live.register("https://customer-a.example/secret")
        lease = lease_of(live, "customer-a.example")
        digests(live, HOST, 3, "b")
        live.epoch()
        epoch = live.epoch()["epoch"]
        schedule = live.get("/schedule", limit=1)
        had = {
            **kept,
            "page": page,
            "lease": lease,
            "epoch": epoch,
            "etag": schedule.headers["ETag"],
            "schedule": schedule.json()["next_cursor"],
            "lost_cursor": live.get("/changes").json()["next_cursor"],
        }
    place.restore()
    return had


@pytest.fixture
def live(place, lost):
    lost["clock"].advance(hours=1)
    with running(place.url, clock=lost["clock"], **OPTIONS) as live:
        yield live


def test_a_report_of_a_lost_lease_changes_no_page_of_another_customer(live, lost):
    (page,) = live.register("https://customer-b.example/other")
    assert page > lost["page"]
    for path in ("/observations", "/leases"):
        report = [crawled(live, lost["lease"], status=404, note={"of": "customer a"})]
        body = report if path == "/observations" else {"count": 1, "report": report}
        answer = live.post(path, body).json()
        (refused,) = answer.get("reported", answer)["rejected"]
        assert (refused["code"], refused["field"]) == ("page_lost", "page_id")
        assert "name the page by `url`" in refused["detail"]
    shown = live.get(f"/pages/{page}").json()
    assert (shown["last_crawl_at"], shown["note"], shown["gone"]) == (None, None, False)


@pytest.mark.parametrize("digest", ["a", "c"])
def test_reports_of_a_page_under_leases_of_the_lost_time_count_once(live, lost, digest):
    """Their page is in the backup, with the digest `a` of a crawl before the leases."""
    in_lost_time = (live.clock() - timedelta(minutes=60)).isoformat()
    times = ({}, {"observed_at": in_lost_time}, {"observed_at": "2037-01-01T00:00:00Z"})
    for lease, time in zip(lost["leases"], times, strict=True):
        new = {"lease": lease, "digest": digest, **time}
        for n_accepted in (1, 0):
            answer = live.post("/observations", [new]).json()
            assert (answer["accepted"], answer["n_rejected"]) == (n_accepted, 0)
            live.clock.advance(seconds=1)
        if "observed_at" not in time:
            for older in ("b", "a"):  # the page has been crawled since the restore
                repeated = {"lease": lease, "digest": older}
                assert live.post("/observations", [repeated]).json()["accepted"] == 0


def test_a_ping_of_a_lost_page_is_rejected_as_such(live, lost):
    ping = {"page_id": lost["page"], "changed_at": live.clock().isoformat()}
    assert live.post("/pings", [ping]).json()["rejected"][0]["code"] == "page_lost"
    never = {**ping, "page_id": 2**41}
    assert live.post("/pings", [never]).json()["rejected"][0]["code"] == "page_not_found"


def test_a_report_by_url_registers_the_lost_page_under_a_new_id(live, lost):
    item = {
        "url": "https://customer-a.example/secret",
        "observed_at": live.clock().isoformat(),
        "digest": "c",
    }
    assert live.client.post("/observations", json=[item]).json()["accepted"] == 1
    (page,) = live.register(item["url"])
    assert page > lost["page"]


def test_the_etag_of_a_lost_epoch_is_never_answered_304(live, lost):
    for _ in range(3):
        answer = live.client.get("/schedule", headers={"If-None-Match": lost["etag"]})
        assert answer.status_code == 200
        assert answer.headers["ETag"] != lost["etag"]
        assert live.epoch()["epoch"] > lost["epoch"]
    own = answer.headers["ETag"]
    current = live.client.get("/schedule").headers["ETag"]
    assert current != own
    assert live.client.get("/schedule", headers={"If-None-Match": current}).status_code == 304


@pytest.mark.dear
def test_a_lost_epoch_is_refused_as_such(live, lost):
    live.epoch()
    since = live.get("/schedule", since_epoch=lost["epoch"])
    assert since.status_code == 410
    part = live.get("/schedule", cursor=lost["schedule"])
    assert part.status_code == 410
    assert "restored" in part.json()["detail"]


def test_a_follower_ahead_of_the_backup_is_told_and_one_before_it_goes_on(live, lost):
    answer = live.get("/changes", cursor=lost["lost_cursor"])
    assert answer.status_code == 410
    assert "restored from a copy" in answer.json()["detail"]
    goes_on = live.get("/changes", cursor=lost["cursor"])
    assert goes_on.status_code == 200
    digests(live, HOST, 3, "c")
    assert len(live.get("/changes", cursor=lost["cursor"]).json()["items"]) == 3
