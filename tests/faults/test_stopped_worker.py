"""A worker that is stopped (SIGSTOP) while it leads: another worker takes over, also its epochs."""

import signal
from contextlib import closing

import psycopg
import pytest
from support.live_server import until
from support.processes import serving, started

from service.storage.postgres.leading import LEAD_S

pytestmark = pytest.mark.slow

URLS = [f"https://h{i % 5}.example/{i}" for i in range(50)]
LEADS = "SELECT count(*) FROM leads WHERE name = 'epochs'"
TAKEN_OVER_WITHIN_S = LEAD_S + 60
"""Limit for the first epoch of the successor, seconds: its lease, and a busy machine."""


def newest(server) -> int:
    return server.client.get("/schedule").json()["epoch"] or 0


def test_a_second_worker_takes_over_and_the_sleeper_does_no_harm(postgres_url, tmp_path):
    settings = {"database_url": postgres_url, "epoch_interval_s": 1, "host_delay_s": 0}
    with (
        serving(tmp_path, wait=False, **settings) as server,
        started(tmp_path, "worker", **settings) as first,
        closing(psycopg.connect(postgres_url, autocommit=True)) as look,
    ):
        until(server.ready, "the server is ready")
        server.post("/pages", [{"url": url} for url in URLS])
        until(lambda: newest(server), "an epoch")
        with psycopg.connect(postgres_url) as operator:
            operator.execute("LOCK TABLE epochs IN SHARE MODE")
            until(lambda: look.execute(LEADS).fetchone()[0], "the worker leads, and waits")
            first.popen.send_signal(signal.SIGSTOP)
            operator.rollback()
        try:
            before = newest(server)
            with started(tmp_path, "worker", **settings) as second:
                until(lambda: newest(server) > before, "its epoch", TAKEN_OVER_WITHIN_S)
                assert server.post("/leases", {"count": 10})["items"]
                first.popen.send_signal(signal.SIGCONT)
                before = newest(server)
                until(lambda: newest(server) > before + 1, "epochs go on")
                assert not first.ended()
                assert not second.ended()
                for worker in (first, second):
                    assert "Traceback" not in worker.log.read_text()
        finally:
            first.popen.send_signal(signal.SIGCONT)
