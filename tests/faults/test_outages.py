"""A database that goes away and comes back: callers are told, and nothing has to be restarted."""

import httpx
import psycopg
import pytest
from support.live_server import until
from support.own_postgres import own_postgres
from support.processes import serving, started
from support.store_cases import T0
from support.traffic import Reporter, polite

from service.model.errors import StoreUnavailable
from service.storage import migrations, open_store

pytestmark = pytest.mark.slow


def reporters(*urls: str) -> list[Reporter]:
    started = [Reporter(url, f"c{i}") for i, url in enumerate(urls)]
    for reporter in started:
        reporter.start()
    return started


def go_on(crawlers: list[Reporter], n_more: int = 3) -> None:
    """Wait until each has had some more batches accepted."""
    enough = [crawler.n_accepted + n_more for crawler in crawlers]
    until(
        lambda: all(c.n_accepted >= n or c.problem for c, n in zip(crawlers, enough, strict=True)),
        "every crawler is answered again",
    )


def published(client: httpx.Client) -> int:
    """Return the newest published epoch; a session that was just ended may cost a 503."""
    answer = until(lambda: answered(client, "/epochs"), "epochs are listed")
    items = answer.json()["items"]
    return max((e["epoch"] for e in items if e["status"] == "published"), default=0)


def answered(client: httpx.Client, path: str) -> httpx.Response | None:
    answer = client.get(path)
    return None if answer.status_code == 503 and polite(answer, 503) else answer


TERMINATE = """
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'recrawl'
"""


def test_sessions_ended_and_a_restart_of_postgres_are_waited_out(tmp_path):
    with own_postgres() as postgres:
        url = postgres.url.render_as_string()
        store = open_store(url, 2)
        migrations.upgrade(store.engine)
        store.close()
        settings = {"database_url": url, "epoch_interval_s": 1}
        with (
            serving(tmp_path, wait=False, **settings) as server,
            started(tmp_path, "worker", **settings) as worker,
        ):
            until(server.ready, "the server is ready")
            crawlers = reporters(*[str(server.client.base_url)] * 3)
            until(lambda: published(server.client), "the worker is at work")
            end_sessions(url, crawlers)
            n_refused = [len(crawler.refusals) for crawler in crawlers]
            in_force = published(server.client)
            postgres.stop("immediate")
            until(
                lambda: all(len(c.refusals) > n for c, n in zip(crawlers, n_refused, strict=True)),
                "every crawler is refused",
            )
            for path in ("/readyz", "/schedule", "/epochs", "/pages/1"):
                assert polite(server.client.get(path), 503), path
            for path in ("/healthz", "/metrics"):
                assert server.client.get(path).status_code == 200
            postgres.start()
            until(server.ready, "the server is ready again")
            go_on(crawlers)
            until(lambda: published(server.client) > in_force, "an epoch after it")
            for crawler in crawlers:
                crawler.stop()
                assert crawler.hung_up == []
                assert all(polite(refusal, 503) for refusal in crawler.refusals)
                crawler.check(server.client)
            assert not worker.ended()
            assert "Traceback" not in server.log.read_text()


def end_sessions(url: str, crawlers: list[Reporter]) -> None:
    """End every session of the service, again and again, as an administrator may."""
    with psycopg.connect(url, autocommit=True) as administrator:
        for _ in range(5):
            go_on(crawlers, 1)
            until(lambda: administrator.execute(TERMINATE).fetchone()[0], "a session to end")
        go_on(crawlers, 1)


def test_a_session_ended_for_being_idle_is_an_outage_and_no_fault(postgres_store):
    gone = "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = %s"

    def idle() -> None:
        with (
            psycopg.connect(postgres_store.url, autocommit=True) as other,
            postgres_store.begin() as tx,
        ):
            tx.run("SET LOCAL idle_in_transaction_session_timeout = '20ms'")
            pid = tx.driver.info.backend_pid
            until(lambda: other.execute(gone, [pid]).fetchone()[0], "the session is ended")
            tx.estimator()

    with pytest.raises(StoreUnavailable) as raised:
        idle()
    assert isinstance(raised.value.__cause__, psycopg.errors.IdleInTransactionSessionTimeout)
    postgres_store.check()


@pytest.mark.parametrize("limit", ["statement_timeout", "lock_timeout"])
def test_a_statement_that_took_too_long_is_an_outage_and_no_fault(postgres_store, limit):
    def wait() -> None:
        with postgres_store.begin() as tx:
            tx.run(f"SET LOCAL {limit} = '20ms'")
            tx.number_in_force()

    with psycopg.connect(postgres_store.url) as other:
        other.execute("LOCK TABLE epochs")
        with pytest.raises(StoreUnavailable):
            wait()
    postgres_store.check()


def test_a_database_that_has_become_read_only_is_an_outage_and_no_fault(postgres_store):
    def write() -> None:
        with postgres_store.begin() as tx:
            tx.run("SET TRANSACTION READ ONLY")  # as a standby is, after a failover
            tx.request_epoch(T0)

    with pytest.raises(StoreUnavailable):
        write()
    postgres_store.check()
