"""Each alert fires when its trouble is caused for real; Prometheus is from apt, so external."""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
import yaml
from support.image import finish
from support.live_server import Clock, Live, command, running, until
from support.processes import ROOT, free_port, serving, started
from support.prometheus import FOLDER, PATIENCE_S, Prometheus, program, prometheus, rules
from support.receiver import SECRET, receiving
from typing_extensions import override

from service.storage.stores.sqlite import SqliteTransaction

pytestmark = pytest.mark.external

CONNECTIONS = "recrawl_connections"
"""Query of the dashboard that only `recrawl serve` has data for."""
CAUSED: set[str] = set()
"""Alerts whose trouble a test causes."""


def causes(*alerts: str) -> Callable[[Any], Any]:
    """Mark a test that causes the troubles of these alerts."""
    CAUSED.update(alerts)
    return pytest.mark.parametrize("alerts", [alerts], ids=["+".join(alerts)])


class SetClock(Clock):
    """The machine's clock, set forward by a test."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    @override
    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.ahead

    @override
    def advance(self, **span: float) -> datetime:
        self.ahead += timedelta(**span)
        return self()


@contextmanager
def watched(folder: Path, database_url: str, **settings: Any) -> Iterator[tuple[Live, Prometheus]]:
    """Serve a database, scraped by a Prometheus; epochs run when the test calls for one."""
    with (
        running(database_url, clock=SetClock(), **settings) as live,
        prometheus(folder, {"recrawl": [live.url]}) as server,
    ):
        yield live, server


def crawled(live: Live, *urls: str, **fields: Any) -> dict[str, Any]:
    """Report crawls of pages that have just ended; on any machine all are compared and counted."""
    at = live.clock().isoformat()
    answer = live.post("/observations", [{"url": url, "observed_at": at, **fields} for url in urls])
    assert answer.status_code == 200, answer.text
    live.service.store.counter.write()  # a second later an epoch may have ended
    return answer.json()


def urls(n: int, host: str = "a.example") -> list[str]:
    return [f"https://{host}/{i}" for i in range(n)]


def test_each_alert_has_a_test_that_causes_its_trouble_and_one_of_its_expression():
    alerts = {rule["alert"] for rule in rules()}
    assert alerts == CAUSED
    tests = yaml.safe_load((FOLDER / "recrawl.rules.test.yml").read_text())["tests"]
    assert [test["name"] for test in tests] == [rule["alert"] for rule in rules()]
    for test in tests:
        quiet, fires = test["alert_rule_test"]
        assert quiet["alertname"] == fires["alertname"] == test["name"]
        assert (quiet["exp_alerts"], len(fires["exp_alerts"])) == ([], 1)


def test_the_rules_pass_their_own_tests():
    finish([program("promtool"), "test", "rules", str(FOLDER / "recrawl.rules.test.yml")])
    finish(
        [program("promtool"), "check", "config", "--syntax-only", str(FOLDER / "prometheus.yml")]
    )


def test_names_and_units_of_metrics_follow_the_conventions(sqlite_url):
    with running(sqlite_url) as live:
        live.register(*urls(2))
        live.epoch()
        crawled(live, *urls(2), digest="a1")
        text = live.get("/metrics").content
    checked = subprocess.run(
        [program("promtool"), "check", "metrics"], input=text, capture_output=True, check=False
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, b"")


def test_every_query_of_the_dashboard_is_one_that_prometheus_answers(tmp_path, sqlite_url):
    panels = json.loads((ROOT / "deploy/grafana/recrawl.json").read_text())["panels"]
    queries = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    with receiving() as receiver, watched(tmp_path, sqlite_url, webhooks_private=True) as both:
        live, watch = both
        live.client.post("/webhooks", json={"url": receiver.url, "secret": SECRET})
        live.register(*urls(3))
        live.epoch()
        for digest in "ab":
            crawled(live, *urls(3), digest=digest)
            live.clock.advance(hours=1)
        live.service.courier.run_once()
        live.clock.advance(minutes=11)
        live.service.runner.run_once()
        until(lambda: watch.query("recrawl_calibration_crawls"), "the step is scraped")
        for name in ("$__rate_interval", "$__interval"):
            queries = [query.replace(name, "5s") for query in queries]
        queries.remove(CONNECTIONS)
        for query in queries:
            until(lambda query=query: watch.query(query), f"{query} has data", PATIENCE_S)


def test_a_served_process_has_the_query_of_the_dashboard_that_a_test_server_lacks(
    tmp_path, sqlite_url
):
    with (
        serving(tmp_path, database_url=sqlite_url) as server,
        prometheus(tmp_path, {"recrawl": [str(server.client.base_url)]}) as watch,
    ):
        until(lambda: watch.query(CONNECTIONS), f"{CONNECTIONS} has data")


@contextmanager
def fleet(folder: Path, database_url: str) -> Iterator[Any]:
    """Run a server and a worker with a port, scraped by a Prometheus."""
    port = free_port()
    settings = {"database_url": database_url, "epoch_interval_s": 1, "database_timeout_s": 1}
    worker_url = f"http://127.0.0.1:{port}"
    with (
        serving(folder, **settings) as server,
        started(folder, "worker", "--port", str(port), **settings) as worker,
    ):
        server.post("/pages", [{"url": url} for url in urls(3)])
        targets = {"recrawl": [str(server.client.base_url)], "recrawl-worker": [worker_url]}
        with prometheus(folder, targets, every_s=2) as watch:
            until(lambda: watch.query("recrawl_epoch > 1"), "an epoch is published")
            yield server, worker, watch


@causes("RecrawlDown", "RecrawlEpochOld")
def test_a_stopped_worker(alerts, tmp_path, postgres_url):
    with fleet(tmp_path, postgres_url) as (_, worker, watch):
        for alert in alerts:
            watch.is_quiet(alert)
        worker.kill()
        assert watch.fires("RecrawlDown")["job"] == "recrawl-worker"
        watch.fires("RecrawlEpochOld")


@causes("RecrawlDatabaseAway", "RecrawlRefusesWrites")
def test_a_database_that_is_away(alerts, tmp_path, postgres_url, postgres_server):
    name = sa.make_url(postgres_url).database
    with fleet(tmp_path, postgres_url) as (server, _, watch):
        for alert in alerts:
            watch.is_quiet(alert)
        pages = watch.query("recrawl_pages")
        command(postgres_server, f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        kill = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
        command(postgres_server, kill)
        try:
            watch.fires("RecrawlDatabaseAway")

            def refused() -> bool:
                lost = server.client.post("/pages", json=[{"url": "https://lost.example/"}])
                assert lost.status_code == 503
                return bool(watch.firing("RecrawlRefusesWrites"))

            until(refused, "the alert fires")
            assert [one["value"][1] for one in watch.query("recrawl_pages")] == [
                one["value"][1] for one in pages
            ]
        finally:
            command(postgres_server, f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
        watch.is_quiet("RecrawlDatabaseAway")


@causes("RecrawlErrors")
def test_a_fault_of_the_service(alerts, tmp_path, sqlite_url, monkeypatch):
    with watched(tmp_path, sqlite_url) as (live, watch):
        live.get("/epochs")
        watch.is_quiet(*alerts)
        monkeypatch.setattr(SqliteTransaction, "epochs", lambda tx, *_: tx.run("SELECT nothing"))
        assert live.get("/epochs").status_code == 500  # one is enough
        watch.fires(*alerts)


@causes("RecrawlClockWrong")
def test_a_clock_that_was_set(alerts, tmp_path, sqlite_url):
    with watched(tmp_path, sqlite_url) as (live, watch):
        watch.is_quiet(*alerts)
        live.clock.advance(hours=1)
        watch.fires(*alerts)
        live.clock.advance(hours=-2)
        watch.fires(*alerts)


@causes("RecrawlSnapshotOld")
def test_a_dump_that_runs_for_hours(alerts, tmp_path, postgres_url):
    with (
        watched(tmp_path, postgres_url) as (live, watch),
        psycopg.connect(postgres_url) as dump,
    ):
        watch.is_quiet(*alerts)
        dump.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        dump.execute("SELECT FROM pages")
        live.clock.advance(hours=2)
        watch.fires(*alerts)
        dump.rollback()
        watch.is_quiet(*alerts)


@causes("RecrawlRejects")
def test_crawlers_whose_clock_is_wrong(alerts, tmp_path, sqlite_url):
    late = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    with watched(tmp_path, sqlite_url) as (live, watch):
        crawled(live, *urls(100), digest="a1")
        watch.is_quiet(*alerts)
        crawls = [{"url": url, "observed_at": late, "digest": "b2"} for url in urls(100)]

        def refused() -> bool:
            assert live.post("/observations", crawls).json()["n_rejected"] == len(crawls)
            return bool(watch.firing(*alerts))

        until(refused, "the alert fires")
        assert watch.fires(*alerts)["kind"] == "observation"


@contextmanager
def small_disk(folder: Path, n_bytes: int) -> Iterator[Path]:
    """Mount a file system of a given size."""
    folder.mkdir()
    finish(["mount", "-t", "tmpfs", "-o", f"size={n_bytes}", "tmpfs", str(folder)])
    try:
        yield folder
    finally:
        finish(["umount", str(folder)])


@causes("RecrawlDiskLow", "RecrawlDiskFull")
def test_a_disk_that_fills(alerts, tmp_path, sqlite_template):
    with ExitStack() as stack:
        disk = stack.enter_context(small_disk(tmp_path / "disk", 32_000_000))
        path = shutil.copy(sqlite_template, disk / "recrawl.db")
        live, watch = stack.enter_context(watched(tmp_path, f"sqlite:///{path}"))
        crawled(live, *urls(100), digest="a1")
        for alert in alerts:
            watch.is_quiet(alert)
        filler, free = disk / "filler", shutil.disk_usage(disk).free
        filler.write_bytes(b"\0" * (free - 1_000_000))
        watch.fires("RecrawlDiskLow")

        def refused() -> bool:
            live.register(*urls(0))
            host = f"h{len(watch.client.headers)}{live.clock().timestamp()}.example"
            live.post("/pages", [{"url": url} for url in urls(5_000, host)])
            return bool(watch.firing("RecrawlDiskFull"))

        until(refused, "the alert fires")
        filler.unlink()
        watch.is_quiet("RecrawlDiskLow")


@causes("RecrawlNoEpoch")
def test_no_worker_from_the_start(alerts, tmp_path, sqlite_url):
    with watched(tmp_path, sqlite_url) as (live, watch):
        live.register(*urls(3))
        watch.fires(*alerts)
        live.epoch()
        watch.is_quiet(*alerts)


@causes("RecrawlEpochFailing")
def test_minima_that_no_budget_meets(alerts, tmp_path, sqlite_url):
    with watched(tmp_path, sqlite_url, bandwidth=10) as (live, watch):
        live.register(*urls(3))
        assert live.epoch()["status"] == "published"
        watch.is_quiet(*alerts)
        live.register(*urls(3), min_crawl_rate=5)
        assert live.epoch()["status"] == "failed"
        watch.fires(*alerts)


@causes("RecrawlBudgetCapped")
def test_a_cap_that_the_budget_does_not_fit_under(alerts, tmp_path, sqlite_url):
    with watched(tmp_path, sqlite_url, bandwidth=10) as (live, watch):
        live.register(*urls(3))
        live.epoch()
        watch.is_quiet(*alerts)
        live.client.put("/hosts/a.example", json={"max_crawl_rate": 5})
        live.epoch()
        watch.fires(*alerts)


@causes("RecrawlBudgetUnused")
def test_crawlers_that_stop(alerts, tmp_path, sqlite_url):
    with watched(tmp_path, sqlite_url, bandwidth=10_000) as (live, watch):
        live.register(*urls(3))
        live.epoch()
        watch.fires(*alerts)  # nothing has been crawled yet

        def crawling() -> bool:
            crawled(live, urls(3)[0], digest="a1")
            return not watch.firing(*alerts)

        until(crawling, "crawls are reported")
        watch.fires(*alerts)


@causes("RecrawlBudgetExceeded")
def test_crawls_without_leases_beyond_the_budget(alerts, tmp_path, sqlite_url):
    with watched(tmp_path, sqlite_url, bandwidth=5_000) as (live, watch):
        live.register(*urls(100))
        live.epoch()

        def ten_minutes() -> None:
            live.clock.advance(minutes=11)
            live.service.runner.run_once()

        ten_minutes()
        watch.is_quiet(*alerts)
        crawled(live, *urls(100), digest="a1")
        ten_minutes()
        assert watch.fires(*alerts)["unit"] == "crawls"


@causes("RecrawlCrawlersBehind", "RecrawlQueueFull")
def test_no_crawler_takes_what_is_due(alerts, tmp_path, sqlite_url):
    with watched(tmp_path, sqlite_url, bandwidth=20) as (live, watch):
        live.register(*urls(4))
        live.epoch()
        for alert in alerts:
            watch.is_quiet(alert)
        live.register(*urls(20))
        live.clock.advance(minutes=11)
        for alert in alerts:
            watch.fires(alert)


@causes("RecrawlNeedsYou")
def test_something_that_needs_somebody(alerts, tmp_path, sqlite_url):
    with watched(tmp_path, sqlite_url) as (live, watch):
        live.register(*urls(2))
        live.epoch()
        watch.is_quiet(*alerts)
        live.clock.advance(minutes=11)
        live.service.runner.run_once()
        assert watch.fires(*alerts)["kind"] == "no_crawler"


@causes("RecrawlLeasesLost")
def test_workers_that_die(alerts, tmp_path, sqlite_url):
    pages = urls(2_000)
    with watched(tmp_path, sqlite_url, host_delay_s=0, host_concurrency=0) as (live, watch):
        live.register(*pages)

        def leased(n: int) -> list[dict[str, Any]]:
            answer = live.client.post("/leases", json={"count": n, "worker": "w", "ttl_s": 1})
            return answer.json()["items"]

        for crawl in leased(10):
            at = live.clock().isoformat()
            report = {"lease": crawl["lease"], "observed_at": at, "digest": "a1"}
            assert live.post("/observations", [report]).json()["leases_ended"] == 1
        watch.is_quiet(*alerts)
        until(lambda: leased(3) and watch.firing(*alerts), "the alert fires")
        until(lambda: watch.query("recrawl_leases_expired > 2"), "leases expire")


@causes("RecrawlPagesSetAside")
def test_a_page_that_no_worker_reports(alerts, tmp_path, sqlite_url):
    with watched(tmp_path, sqlite_url, host_delay_s=0) as (live, watch):
        live.register(*urls(1))

        def returned() -> None:
            (crawl,) = live.client.post("/leases", json={"count": 1}).json()["items"]
            assert live.client.delete(f"/leases/{crawl['lease']}").status_code == 204

        for _ in range(2):
            returned()
        watch.is_quiet(*alerts)
        live.clock.advance(hours=3)
        returned()
        assert watch.fires(*alerts)["ending"] == "returned"


@causes("RecrawlHostsBlocked")
def test_hosts_that_are_blocked_by_an_operator_or_pause_in_trouble(alerts, tmp_path, sqlite_url):
    with watched(tmp_path, sqlite_url) as (live, watch):
        for i in range(12):
            live.register(*urls(1, f"h{i}.example"))
        live.epoch()
        crawled(live, *urls(1, "h0.example"), status=503)
        watch.is_quiet(*alerts)
        until = (live.clock() + timedelta(days=1)).isoformat()
        for host in ("h2.example", "h3.example"):
            live.client.patch(f"/hosts/{host}", json={"blocked_until": until})
        assert watch.fires(*alerts)["reason"] == "operator"
        for host in ("h2.example", "h3.example"):
            live.client.patch(f"/hosts/{host}", json={"blocked_until": None})
        watch.is_quiet(*alerts)
        crawled(live, *urls(1, "h1.example"), status=503)
        assert watch.fires(*alerts)["reason"] == "trouble"


@causes("RecrawlHostsInIncident")
def test_a_host_that_shows_one_page_in_place_of_all(alerts, tmp_path, sqlite_url):
    with watched(tmp_path, sqlite_url) as (live, watch):
        pages = urls(8)
        live.register(*pages)
        live.epoch()
        for page in pages:
            crawled(live, page, digest=page)
        live.clock.advance(hours=2)
        watch.is_quiet(*alerts)
        for page in pages:
            live.clock.advance(seconds=5)
            crawled(live, page, digest="maintenance")
        watch.fires(*alerts)


@causes("RecrawlWebhookBehind", "RecrawlWebhookDisabled")
def test_a_receiver_that_fails_and_one_that_wants_no_more(alerts, tmp_path, sqlite_url):
    with (
        receiving() as receiver,
        watched(tmp_path, sqlite_url, webhooks_private=True) as (live, watch),
    ):
        answer = live.client.post("/webhooks", json={"url": receiver.url, "secret": SECRET})
        webhook_id = answer.json()["id"]
        crawled(live, *urls(3), digest="a1")
        live.service.courier.run_once()
        for alert in alerts:
            watch.is_quiet(alert)
        receiver.answer = lambda _: 503
        crawled(live, *urls(3), digest="b2")
        live.service.courier.run_once()
        live.clock.advance(minutes=61)
        assert watch.fires("RecrawlWebhookBehind")["webhook"] == webhook_id
        receiver.faults.clear()
        live.clock.advance(minutes=-61)
        receiver.answer = lambda _: 410
        live.clock.advance(minutes=1)
        live.service.courier.run_once()
        watch.fires("RecrawlWebhookDisabled")


@causes("RecrawlFreshnessFalling")
def test_a_budget_that_falls(alerts, tmp_path, sqlite_url):
    polite = {"host_delay_s": 0, "host_concurrency": 0}
    with watched(tmp_path, sqlite_url, bandwidth=40, **polite) as (live, watch):
        live.register(*urls(5))
        before = 'avg_over_time(recrawl_expected_fresh_ratio{weight="importance"}[4s] offset 4s)'

        def six_hours() -> None:
            """Crawl what is leased; pages change every day."""
            live.clock.advance(hours=6)
            live.service.runner.run_once()
            for crawl in live.client.post("/leases", json={"count": 100}).json()["items"]:
                at = live.clock()
                report = {"lease": crawl["lease"], "observed_at": at.isoformat()}
                live.post("/observations", [{**report, "digest": f"{at.date()}"}])

        for _ in range(40):
            six_hours()
        until(lambda: watch.query(f"{before} > 0.5"), "freshness is high for a while")
        watch.is_quiet(*alerts)
        assert live.client.put("/budget", json={"budget": "0.01 crawls"}).is_success

        def falls() -> bool:
            six_hours()
            return bool(watch.firing(*alerts))

        until(falls, "the alert fires")


@causes("RecrawlCalibrationOff")
def test_pages_that_stop_changing_at_once(alerts, tmp_path, sqlite_url):
    pages = urls(1_500)  # a share of the crawls is compared
    with watched(tmp_path, sqlite_url) as (live, watch):

        def crawl_all(digest: str, **after: float) -> None:
            live.clock.advance(**after)
            for first in range(0, len(pages), 50):
                crawled(live, *pages[first : first + 50], digest=digest)

        def kept() -> None:
            live.clock.advance(minutes=11)
            live.service.runner.run_once()
            many = "recrawl_calibration_crawls >= 500"
            until(lambda: watch.query(many), "the crawls are compared")

        for i in range(12):
            crawl_all(f"{i}", hours=1)
            live.service.runner.run_once()
        crawl_all("as before", days=2)
        kept()
        watch.is_quiet(*alerts)
        crawl_all("as before", days=2)
        kept()
        assert watch.fires(*alerts)["estimator"] == "bursty"
