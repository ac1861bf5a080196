"""GET /status over a socket: live numbers from the first page, and needs that arise and end."""

import json
import shlex
from datetime import datetime, timedelta

import pytest
from structlog.testing import capture_logs
from support.live_server import START, Live, running, until

from recrawl_client.wire.status import StatusAnswer
from service.api.examples import EXAMPLES
from service.model.errors import StoreUnavailable
from service.status import counts
from service.status.asked import LastAsked
from service.status.needs import KINDS
from service.storage.queue.signs import LEASES

URLS = [f"https://a.example/{n}" for n in range(4)]


def status(api: Live):
    answer = api.get("/status")
    assert answer.status_code == 200, answer.text
    return answer.json()


def kinds(api: Live):
    return [need["kind"] for need in status(api)["needs_you"]]


def report(api: Live, *urls, **fields):
    items = [{"url": url, "observed_at": api.clock().isoformat(), **fields} for url in urls]
    assert api.post("/observations", items).status_code == 200


def gauge(api: Live):
    lines = api.get("/metrics").text.splitlines()
    samples = [line for line in lines if line.startswith("recrawl_needs_you{")]
    return {line.split('"')[1]: float(line.split()[-1]) for line in samples}


def run(api: Live, remedy: str, recrawl):
    """Run a remedy as it stands, a command or a request, and return whether it works."""
    if remedy.startswith("recrawl "):
        return recrawl(*shlex.split(remedy)[1:], url=api.url).status == 0
    method, path, *body = remedy.split(" ", 2)
    headers = {"Content-Type": "application/json"}
    answer = api.client.request(method, path, content=body[0] if body else None, headers=headers)
    return answer.is_success


def test_numbers_are_live_from_the_first_page_before_any_epoch(api: Live):
    empty = status(api)
    assert (empty["n_pages"], empty["counted"], empty["needs_you"]) == (0, "now", [])
    api.register(*URLS)
    report(api, URLS[0], digest="a")
    api.service.store.counter.write()
    first = status(api)
    assert (first["n_pages"], first["n_never_crawled"], first["counted"]) == (4, 3, "now")
    assert first["counted_at"] == START.isoformat().replace("+00:00", "Z")
    assert first["epoch"]["epoch"] is None
    assert first["today"]["n_reported"] == 1
    assert first["fresh_share"] is None
    api.clock.advance(minutes=1)
    report(api, URLS[0], digest="a")
    assert 0.24 < status(api)["fresh_share"] < 0.26
    assert first["database"] == ("sqlite" if api.service.store.embedded else "postgres")
    api.client.delete("/pages/4")
    assert status(api)["n_pages"] == 3


def test_gone_pages_count_apart_so_that_the_numbers_add_up(api: Live):
    api.register(*URLS)
    for _ in range(2):
        report(api, URLS[0], status=410)
        api.clock.advance(hours=2)
    answer = status(api)
    assert (answer["n_pages"], answer["n_gone"]) == (3, 1)


def test_many_pages_are_counted_by_the_last_step_and_it_says_so(sqlite_api: Live, monkeypatch):
    api = sqlite_api
    monkeypatch.setattr(counts, "MOST_COUNTED", 3)
    api.register(*URLS[:3])
    assert status(api)["counted"] == "now"
    api.register(*URLS)
    by_ids = status(api)
    assert (by_ids["counted"], by_ids["n_pages"], by_ids["n_overdue"]) == ("ids", 4, None)
    api.epoch()
    api.clock.advance(minutes=10)
    api.service.runner.run_once()
    measured_at = api.clock()
    api.clock.advance(minutes=4)
    step = status(api)
    assert (step["counted"], step["n_pages"], step["n_gone"]) == ("last_step", 4, None)
    assert step["counted_at"] == measured_at.isoformat().replace("+00:00", "Z")
    api.register("https://late.example/")  # a fifth of the pages came after the step
    assert status(api)["counted"] == "last_step"
    api.epoch()
    grown = status(api)
    assert (grown["counted"], grown["n_pages"], grown["fresh_share"]) == ("ids", 5, None)


def test_a_step_without_pages_says_nothing_of_those_that_came_after_it(
    sqlite_api: Live, monkeypatch
):
    api = sqlite_api
    monkeypatch.setattr(counts, "MOST_COUNTED", 3)
    api.epoch()
    api.clock.advance(minutes=10)
    api.service.runner.run_once()
    api.register(*URLS)
    answer = status(api)
    assert (answer["counted"], answer["n_pages"], answer["n_never_crawled"]) == ("ids", 4, None)


def test_a_dead_crawler_is_missed_until_it_asks_again(api: Live, recrawl):
    api.register(*URLS)
    api.epoch()
    assert kinds(api) == []
    api.clock.advance(minutes=10)
    api.service.runner.run_once()  # no epoch is late
    (need,) = status(api)["needs_you"]
    assert (need["kind"], need["n"]) == ("no_crawler", 1)
    assert need["since"] == START.isoformat().replace("+00:00", "Z")
    assert gauge(api) == {kind.name: float(kind.name == "no_crawler") for kind in KINDS}
    assert run(api, need["remedy"], recrawl)
    assert api.get("/readyz").json()["status"] == "ok", "readiness is another thing"
    assert len(api.post("/leases", {"worker": "w"}).json()["items"]) == 1
    api.service.store.counter.write()
    alive = status(api)
    assert alive["needs_you"] == []
    assert (alive["n_leases"], alive["today"]["n_leased"]) == (1, 1)
    assert alive["leases_asked_at"] == "2026-05-01T12:10:00Z"
    until(lambda: stored(api), "the request is written")
    other = LastAsked(api.service.store)  # a second server has the sign from the database alone
    with api.service.store.begin(write=False) as tx:
        assert other.leases(tx).at == api.clock()
    api.clock.advance(minutes=11)
    api.service.runner.run_once()
    assert kinds(api) == [], "its lease has run until six minutes ago"
    api.clock.advance(minutes=5)
    (need,) = status(api)["needs_you"]
    assert need["kind"] == "no_crawler"
    assert need["since"].startswith("2026-05-01T12:15:0"), "the end of the lease, and the delay"


def stored(api: Live):
    with api.service.store.begin(write=False) as tx:
        return tx.last_asked(LEASES)


def test_a_crawler_that_was_told_to_wait_is_not_missed_before(sqlite_api: Live):
    api = sqlite_api
    api.register(URLS[0])
    api.epoch()
    api.post("/leases", {"worker": "w"})
    report(api, URLS[0], digest="a")
    wait_s = api.post("/leases", {"worker": "w"}).json()["retry_after_s"]
    assert wait_s >= 60
    with api.service.store.begin(write=False) as tx:
        asked = api.service.asked.leases(tx)
    assert (asked.until - asked.at).total_seconds() == wait_s


def test_pages_of_an_imported_log_are_due_since_their_registration(api: Live):
    """The crawls before were another crawler's, who was not ours to miss."""
    began = api.clock()
    items = [
        {"url": URLS[0], "observed_at": (began - timedelta(days=n)).isoformat(), "digest": f"{n}"}
        for n in (70, 65, 60)
    ]
    answer = api.client.post("/observations", params={"register": "true"}, json=items)
    assert answer.json()["accepted"] == 3
    api.epoch()
    api.clock.advance(minutes=5)
    api.service.runner.run_once()
    assert kinds(api) == []
    ready_since = datetime.fromisoformat(status(api)["ready_since"])
    assert began <= ready_since <= api.clock() - timedelta(minutes=5)


def test_while_an_operator_pauses_all_hosts_no_crawler_is_missed(sqlite_api: Live):
    api = sqlite_api
    api.register(URLS[0])
    api.epoch()
    api.clock.advance(minutes=15)
    api.service.runner.run_once()
    assert kinds(api) == ["no_crawler"]
    with api.service.store.begin() as tx:
        tx.order_pause(api.clock() + timedelta(hours=1))
    assert kinds(api) == []
    assert status(api)["ready_since"] is None


def test_a_crawler_without_a_network_is_shown_until_a_host_answers(sqlite_api: Live):
    api = sqlite_api
    pages = [f"https://h{host}.example/{n}" for host in range(8) for n in range(3)]
    api.register(*pages)
    api.epoch()
    report(api, *pages, status=0)
    api.clock.advance(minutes=11)
    api.service.runner.run_once()
    assert "crawls_failing" in kinds(api)
    assert gauge(api)["crawls_failing"] == 1
    report(api, pages[0], digest="a")
    api.clock.advance(minutes=11)
    api.service.runner.run_once()
    assert "crawls_failing" not in kinds(api)


def test_crawlers_without_a_network_are_shown_in_the_step_that_runs(api: Live):
    pages = [f"https://h{host}.example/" for host in range(40)]
    api.register(*pages)
    api.epoch()
    report(api, *pages[:19], status=0)
    api.service.store.counter.write()
    assert "crawls_failing" not in kinds(api), "19 crawls are few"
    report(api, *pages[19:], status=0)
    api.service.store.counter.write()
    assert "crawls_failing" in kinds(api)
    report(api, pages[0], digest="a")
    api.clock.advance(seconds=5)
    api.service.store.counter.write()
    report(api, pages[1], digest="a")
    api.service.store.counter.write()
    assert "crawls_failing" not in kinds(api)


def test_a_look_at_the_schedule_is_no_crawler_where_a_fleet_takes_leases(sqlite_api: Live):
    api = sqlite_api
    api.register(*URLS)
    epoch = api.epoch()["epoch"]
    assert api.get("/schedule", since_epoch=epoch + 9).status_code >= 400
    api.service.store.counter.write()
    assert status(api)["schedule_read_at"] is None, "a refused request is no reading"
    assert len(api.post("/leases", {"worker": "w", "count": 1}).json()["items"]) == 1
    api.clock.advance(minutes=6)
    api.get("/schedule")
    api.clock.advance(minutes=11)
    api.service.runner.run_once()
    assert kinds(api) == ["no_crawler"]
    why = api.get("/pages", url=URLS[-1]).json()["why"]
    assert why["holds"] == "no_crawler" if "holds" in why else "crawler" in why["sentence"]


def test_readers_of_the_schedule_are_crawlers_too(sqlite_api: Live):
    api = sqlite_api
    api.register(*URLS)
    api.epoch()
    api.clock.advance(minutes=15)
    api.service.runner.run_once()
    assert kinds(api) == ["no_crawler"]
    assert api.get("/schedule").status_code == 200
    assert kinds(api) == []
    api.clock.advance(hours=2)
    api.service.runner.run_once()
    assert kinds(api) == []


def test_a_request_is_written_once_a_minute_at_most(sqlite_api: Live, monkeypatch):
    api, written = sqlite_api, []
    monkeypatch.setattr(LastAsked, "write", lambda _, name: written.append(name))
    for seconds in (0, 30, 29, 1, 0, 60):
        api.service.asked.note(LEASES, api.clock.advance(seconds=seconds))
    until(lambda: len(written) == 3, "each minute's first request is written")
    for wait_s in (50, 3_600, 3_630):
        api.service.asked.note(LEASES, api.clock(), wait_s)
    until(lambda: len(written) == 4, "a long wait is written, for other servers")


def test_an_outage_of_the_sign_harms_no_lease(sqlite_api: Live, monkeypatch):
    api = sqlite_api
    api.register(URLS[0])
    api.epoch()

    def unavailable(_self, _name, _asked):
        raise StoreUnavailable

    monkeypatch.setattr(
        type(api.service.store.begin(write=False)), "save_asked", unavailable, False
    )
    assert len(api.post("/leases", {"worker": "w"}).json()["items"]) == 1


def test_failing_epochs_are_shown_with_their_reason_until_one_works(sqlite_api: Live, recrawl):
    api = sqlite_api
    api.register(*URLS)
    report(api, *URLS, digest="a")
    api.epoch()
    for page_id in (1, 2):
        api.client.patch(f"/pages/{page_id}", json={"min_crawl_rate": 1e6})
    api.clock.advance(minutes=1)
    failed_at = api.clock().isoformat().replace("+00:00", "Z")
    with capture_logs():
        api.epoch()
        api.clock.advance(minutes=1)
        api.epoch()
    (need,) = status(api)["needs_you"]
    assert (need["kind"], need["since"]) == ("epoch_failing", failed_at)
    assert "the last 2 epochs failed: BandwidthInfeasible" in need["sentence"]
    assert run(api, need["remedy"], recrawl)
    for page_id in (1, 2):
        api.client.patch(f"/pages/{page_id}", json={"min_crawl_rate": None})
    api.epoch()
    assert kinds(api) == []


def test_a_host_that_refuses_crawls_is_shown_until_its_pause_ends(api: Live, recrawl):
    api.register(*URLS)
    report(api, URLS[0], status=503, retry_after_s=7200)
    (need,) = status(api)["needs_you"]
    assert (need["kind"], need["subject"]) == ("host_paused", "a.example")
    assert need["since"] == api.clock().isoformat().replace("+00:00", "Z")
    assert need["sentence"].startswith("Crawl a.example less: it asked for a pause with status 503")
    assert "and pauses until 2026-05-01 14:00 UTC" in need["sentence"]
    assert status(api)["n_hosts_paused"] == 1
    assert run(api, need["remedy"], recrawl)
    api.clock.advance(hours=2)
    assert "host_paused" not in kinds(api)


def test_a_lost_worker_is_shown(sqlite_api: Live):
    api = sqlite_api
    for n in range(12):
        api.client.put(f"/hosts/{n}.example", json={"max_concurrency": 9})
    api.register(*(f"https://{n}.example/" for n in range(12)))
    api.epoch()
    assert len(api.post("/leases", {"worker": "w", "count": 12, "ttl_s": 60}).json()["items"]) == 12
    api.service.store.counter.write()
    assert kinds(api) == []
    api.clock.advance(minutes=2)
    (need,) = status(api)["needs_you"]
    assert (need["kind"], need["subject"]) == ("worker_losing", "w")
    assert need["since"] == "2026-05-01T12:01:00Z"


def test_the_needs_of_webhooks_are_told_to_all_who_read_without_the_address(sqlite_url, recrawl):
    with running(sqlite_url) as api:
        hook = api.client.post("/webhooks", json={"url": "https://93.184.216.34/secret"}).json()
        with api.service.store.begin() as tx:
            tx.change_webhook(hook["id"], status="disabled", reason="no", failing_since=START)
        answer = api.get("/status")
        (need,) = answer.json()["needs_you"]
        assert (need["kind"], need["since"]) == ("webhook_disabled", "2026-05-01T12:00:00Z")
        assert "secret" not in answer.text
        assert run(api, need["remedy"], recrawl)
        assert kinds(api) == []


def test_every_remedy_works_as_it_stands(sqlite_api: Live, recrawl):
    api = sqlite_api
    api.register(URLS[0])
    api.client.put("/groups/g", json={"members": ["a.example"]})
    hook = api.client.post("/webhooks", json={"url": "https://93.184.216.34/"}).json()
    chosen = [
        "recrawl pages list host=a.example state=failing --limit 10",
        "GET /groups/g",
        "GET /hosts/a.example",
        "recrawl hosts show a.example",
        "recrawl leases explain --host a.example",
        "recrawl epochs --limit 5",
    ]
    remedies = {text for kind in KINDS for text in (kind.remedy, kind.of_many) if text}
    remedies = {text.format(id=hook["id"]) for text in remedies - {"{remedy}"}} | {*chosen}
    failed = [remedy for remedy in sorted(remedies) if not run(api, remedy, recrawl)]
    assert (failed, len(remedies)) == ([], 19)


def test_the_example_has_the_fields_of_an_answer(sqlite_api: Live):
    assert EXAMPLES["status_answer"].keys() == status(sqlite_api).keys()
    assert set(EXAMPLES["status_answer"]) == set(StatusAnswer.__struct_fields__)


@pytest.mark.parametrize("method", ["POST", "DELETE"])
def test_status_is_read_alone(sqlite_api: Live, method):
    assert sqlite_api.client.request(method, "/status").status_code == 405
    assert json.loads(sqlite_api.get("/status/").text)["n_pages"] == 0
