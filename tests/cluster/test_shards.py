"""The service over three databases, one of which goes away and comes back."""

from collections.abc import Iterator
from itertools import pairwise

import pytest
import sqlalchemy as sa
from support.live_server import Live, command, running, until
from support.own_postgres import OwnPostgres, own_postgres
from support.shard_cases import host_in, serving_shards

from service.model.errors import RecrawlError, StoreUnavailable
from service.storage import migrations

pytestmark = pytest.mark.slow

AWAY = 2
"""Position of the database that tests stop."""


def migrated(url: str) -> str:
    engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    migrations.upgrade(engine)
    engine.dispose()
    return url


@pytest.fixture
def other() -> Iterator[OwnPostgres]:
    """A server of the database that goes away."""
    with own_postgres() as server:
        command(server.url, "CREATE DATABASE away")
        migrated(server.url.set(database="away").render_as_string())
        yield server


@pytest.fixture
def live(shard_urls, other, tmp_path) -> Iterator[Live]:
    urls = [*shard_urls[:AWAY], other.url.set(database="away").render_as_string()]
    with serving_shards(tmp_path, urls, bandwidth=1000.0) as live:
        yield live


def url_in(position: int, page: int = 0) -> str:
    return f"https://{host_in(position)}/{page}"


def every_url(n: int = 3) -> list[str]:
    return [url_in(position, page) for position in range(3) for page in range(n)]


def crawls(live: Live, urls: list[str]) -> list[dict]:
    at = live.clock().isoformat()
    return [{"url": url, "changed": True, "observed_at": at} for url in urls]


def ready_again(live: Live) -> None:
    until(lambda: live.get("/readyz").json()["status"] == "ok", "all databases answer")


def test_one_service_over_three_databases_from_registration_to_schedule(live):
    ids = live.register(*every_url())
    shards = {page_id >> 42 for page_id in ids}
    assert len(shards) == 3, "pages of three hosts are in three shards"
    answer = live.post("/observations", crawls(live, every_url()))
    assert answer.json()["accepted"] == 9, answer.text
    epoch = live.epoch()
    assert (epoch["status"], epoch["n_pages"]) == ("published", 9)
    rows = live.schedule(limit=2)
    assert [row["page_id"] for row in rows] == sorted(ids)
    assert {row["url"] for row in rows} == set(every_url())
    pages = live.get("/pages", limit=1000).json()
    assert [item["page_id"] for item in pages["items"]] == sorted(ids)
    changes = live.get("/changes").json()["items"]
    assert {change["url"] for change in changes} == set(every_url())
    live.clock.advance(days=30)
    live.service.runner.run_once()
    crawled = set()
    for _ in range(9):
        items = live.client.post("/leases", json={"worker": "w", "count": 3}).json()["items"]
        crawled |= {item["url"] for item in items}
        report = [
            {
                "url": i["url"],
                "lease": i["lease"],
                "changed": False,
                "observed_at": live.clock().isoformat(),
            }
            for i in items
        ]
        if report:
            live.clock.advance(seconds=5)
            answer = live.client.post(
                "/leases", json={"worker": "w", "count": 3, "report": report}
            ).json()
            assert answer["reported"]["accepted"] == len(report), answer
            assert answer["reported"]["leases_ended"] == len(report)
            crawled |= {item["url"] for item in answer["items"]}
            live.clock.advance(minutes=10)
    assert crawled == set(every_url())


def test_a_repeated_call_for_leases_returns_those_of_the_first_from_any_database(live):
    live.register(*every_url())
    live.post("/observations", crawls(live, every_url()))
    live.epoch()
    live.clock.advance(days=30)
    live.service.runner.run_once()
    body, leased = {"worker": "w", "count": 2}, set()
    for n in range(len(every_url())):
        key = {"Idempotency-Key": f"call-{n}"}
        first = live.client.post("/leases", json=body, headers=key).json()["items"]
        again = live.client.post("/leases", json=body, headers=key).json()["items"]
        assert first
        assert again == first
        tokens = {item["lease"] for item in first}
        assert not tokens & leased
        leased |= tokens
        live.clock.advance(minutes=1)
        done = [
            {"url": item["url"], "lease": item["lease"], "changed": False}
            | {"observed_at": live.clock().isoformat()}
            for item in first
        ]
        assert live.post("/observations", done).json()["leases_ended"] == len(first)
        live.clock.advance(minutes=10)
        if len(leased) == len(every_url()):
            break
    assert len(leased) == len(every_url())


def test_a_redirect_leads_to_the_database_of_its_target(live):
    (page_id,) = live.register(url_in(0))
    (item,) = crawls(live, [url_in(0)])
    item |= {"status": 301, "redirect_url": url_in(2, 7)}
    assert live.post("/observations", [item]).json()["accepted"] == 1
    page = live.get(f"/pages/{page_id}").json()
    assert page["redirects_to"]["url"] == url_in(2, 7)
    assert page["redirects_to"]["page_id"] >> 42 in range(43, 64)


def test_a_chain_over_all_databases_is_followed_for_five_redirects(live):
    chain = [url_in(n % 3, 60 + n) for n in range(8)]
    live.register(chain[0])
    for source, target in pairwise(chain[:7]):
        live.clock.advance(minutes=1)
        (item,) = crawls(live, [source])
        item |= {"status": 302, "redirect_url": target}
        assert live.post("/observations", [item]).json()["accepted"] == 1
    hops = [live.get("/pages", url=url).json().get("hops") for url in chain]
    assert hops == [0, 1, 2, 3, 4, 5, None, None]


def test_a_database_that_is_away_rejects_only_its_own_items(live, other):
    live.register(*every_url())
    live.post("/observations", crawls(live, every_url()))
    live.epoch()
    other.stop("immediate")
    live.clock.advance(hours=1)
    answer = live.post("/observations", crawls(live, every_url(4)))
    assert answer.status_code == 200, answer.text
    counts = answer.json()
    assert (counts["accepted"], counts["n_rejected"]) == (8, 4)
    rejected = counts["rejected"]
    assert [item["index"] for item in rejected] == [8, 9, 10, 11]
    assert {item["code"] for item in rejected} == {"shard_unavailable"}

    registered = live.post("/pages", [{"url": url_in(p, 50)} for p in range(3)])
    assert registered.status_code == 200
    assert [bool(page_id) for page_id in registered.json()["page_ids"]] == [True, True, False]
    assert registered.json()["rejected"][0]["code"] == "shard_unavailable"

    at = live.clock().isoformat()
    pinged = live.post("/pings", [{"url": url_in(p), "changed_at": at} for p in range(3)])
    assert (pinged.status_code, pinged.json()["n_rejected"]) == (200, 1)

    alone = live.post("/observations", crawls(live, [url_in(AWAY)]))
    assert alone.status_code == 503
    assert int(alone.headers["Retry-After"]) > 0
    assert alone.json()["database"] == "db2"

    ready = live.get("/readyz")
    assert (ready.status_code, ready.json()["away"]) == (200, ["db2"])
    assert "recrawl_up 0.0" in live.get("/metrics").text

    other.start()
    ready_again(live)
    until(lambda: "recrawl_up 1.0" in live.get("/metrics").text, "the metrics come from all")
    again = live.post("/observations", crawls(live, every_url(4))).json()
    assert (again["accepted"], again["duplicate"] + again["late"]) == (4, 8)


def test_a_redirect_into_a_database_that_is_away_loses_only_its_item(live, other):
    live.register(*every_url())
    other.stop("immediate")
    items = crawls(live, [url_in(0), url_in(0, 1)])
    items[0] |= {"status": 301, "redirect_url": url_in(AWAY, 7)}
    counts = live.post("/observations", items).json()
    assert (counts["accepted"], counts["n_rejected"]) == (1, 1)
    assert counts["rejected"][0]["index"] == 0
    assert counts["rejected"][0]["code"] == "shard_unavailable"
    other.start()


def test_leases_and_the_schedule_of_the_other_databases_go_on(live, other):
    live.register(*every_url())
    live.post("/observations", crawls(live, every_url()))
    live.epoch()
    other.stop("immediate")
    live.clock.advance(days=30)
    with pytest.raises(StoreUnavailable, match="db2"):
        live.service.runner.run_once()
    leased: set[str] = set()
    for _ in range(6):
        answer = live.client.post("/leases", json={"worker": "w", "count": 1})
        assert answer.status_code == 200, answer.text
        leased |= {item["url"] for item in answer.json()["items"]}
        live.clock.advance(minutes=20)
    hosts = {url.split("/")[2] for url in leased}
    assert hosts == {host_in(0), host_in(1)}
    rows = live.get("/schedule", host=host_in(1)).json()["items"]
    assert len(rows) == 3

    first = live.get("/schedule", limit=100).json()
    assert {row["url"] for row in first["items"]} == {
        url_in(p, n) for p in (0, 1) for n in range(3)
    }
    for _ in range(2):
        away = live.get("/schedule", limit=100, cursor=first["next_cursor"])
        assert away.status_code == 503
        assert "Retry-After" in away.headers
    other.start()
    ready_again(live)
    rest = live.get("/schedule", limit=100, cursor=first["next_cursor"]).json()
    assert {row["url"] for row in rest["items"]} == {url_in(AWAY, n) for n in range(3)}
    assert rest["next_cursor"] is None


def test_a_list_stops_at_a_database_that_is_away_and_goes_on_at_the_same_cursor(live, other):
    ids = live.register(*every_url())
    other.stop("immediate")
    part = live.get("/pages", limit=100).json()
    assert [item["page_id"] for item in part["items"]] == sorted(ids)[:6]
    assert live.get("/pages", limit=100, cursor=part["next_cursor"]).status_code == 503
    other.start()
    ready_again(live)
    rest = live.get("/pages", limit=100, cursor=part["next_cursor"]).json()
    assert [item["page_id"] for item in rest["items"]] == sorted(ids)[6:]


def test_an_epoch_needs_every_database_and_the_old_schedule_stays(live, other):
    live.register(*every_url())
    live.post("/observations", crawls(live, every_url()))
    first = live.epoch()["epoch"]
    other.stop("immediate")
    live.clock.advance(days=1)
    with pytest.raises(StoreUnavailable, match="db2"):
        live.service.runner.run_once()
    assert live.get("/schedule", host=host_in(0)).json()["epoch"] == first
    other.start()
    ready_again(live)
    assert live.epoch()["epoch"] > first
    assert len(live.schedule()) == 9


def test_a_database_that_missed_the_announcement_learns_of_the_epoch_from_its_readers(live, other):
    live.register(*every_url())
    live.post("/observations", crawls(live, every_url()))
    live.epoch()
    live.clock.advance(days=1)
    store = live.service.store
    announce = store.announce

    def away(published, begin):
        other.stop("immediate")
        announce(published, begin)

    store.announce = away
    with pytest.raises(RecrawlError):  # housekeeping after the epoch fails
        live.service.runner.run_once()
    store.announce = announce
    with store.begin(write=False) as tx:
        number = tx.number_in_force()
    assert number == 2, "the row of the coordinator commits the epoch"
    other.start()
    ready_again(live)
    part = store.databases[AWAY]
    with part.begin(write=False) as tx:
        assert tx.number_in_force() == 1
    assert len(live.schedule()) == 9
    with part.begin(write=False) as tx:
        assert tx.number_in_force() == 2


def test_a_service_starts_without_a_database_and_checks_it_when_it_is_back(
    shard_urls, other, tmp_path
):
    urls = [*shard_urls[:AWAY], other.url.set(database="away").render_as_string()]
    with serving_shards(tmp_path, urls, bandwidth=1000.0) as live:
        live.register(*every_url())
    other.stop("immediate")
    with running(f"cluster:///{tmp_path / 'cluster.toml'}", bandwidth=1000.0) as live:
        assert live.get("/readyz").json()["away"] == ["db2"]
        counts = live.post("/observations", crawls(live, every_url())).json()
        assert (counts["accepted"], counts["n_rejected"]) == (6, 3)
        other.start()
        ready_again(live)
        counts = live.post("/observations", crawls(live, every_url())).json()
        assert (counts["accepted"], counts["duplicate"] + counts["late"]) == (3, 6)
        assert live.epoch()["n_pages"] == 9


def test_a_service_does_not_start_without_its_coordinator(shard_urls, other, tmp_path):
    away = other.url.set(database="away").render_as_string()
    with serving_shards(tmp_path, [shard_urls[0], away, shard_urls[2]]):
        pass
    other.stop("immediate")
    with (
        pytest.raises(StoreUnavailable, match="db1"),
        running(f"cluster:///{tmp_path / 'cluster.toml'}"),
    ):
        pass


@pytest.fixture
def far_coordinator(shard_urls, other, tmp_path) -> Iterator[Live]:
    """A service whose coordinator is on the server that goes away."""
    away = other.url.set(database="away").render_as_string()
    urls = [shard_urls[0], away, shard_urls[2]]
    with serving_shards(tmp_path, urls, bandwidth=1000.0) as live:
        yield live


def test_reports_and_leases_go_on_without_the_coordinator(far_coordinator, other):
    live = far_coordinator
    live.register(*every_url())
    live.post("/observations", crawls(live, every_url()))
    live.epoch()
    live.clock.advance(days=30)
    live.service.runner.run_once()
    other.stop("immediate")
    assert live.get("/readyz").status_code == 503
    counts = live.post("/observations", crawls(live, every_url(1))).json()
    assert (counts["accepted"], counts["n_rejected"]) == (2, 1)
    leased: set[str] = set()
    for _ in range(4):
        answer = live.client.post("/leases", json={"worker": "w", "count": 1})
        assert answer.status_code == 200, answer.text
        leased |= {item["host"] for item in answer.json()["items"]}
        live.clock.advance(minutes=20)
    assert leased == {host_in(0), host_in(2)}
    assert live.get("/epochs").status_code == 503
    other.start()
    until(lambda: live.get("/readyz").status_code == 200, "the coordinator answers")
    assert len(live.schedule()) == 9


def test_the_feed_misses_nothing_while_a_database_is_away(live, other):
    cursor = live.get("/changes").json()["next_cursor"]
    live.register(*every_url())
    live.post("/observations", crawls(live, every_url()))
    other.stop("immediate")
    live.clock.advance(hours=1)
    live.post("/observations", crawls(live, [url_in(0)]))
    assert live.get("/changes", cursor=cursor).status_code == 503
    other.start()
    ready_again(live)
    items = live.get("/changes", cursor=cursor, limit=100).json()["items"]
    assert sorted(item["url"] for item in items) == sorted([*every_url(), url_in(0)])
