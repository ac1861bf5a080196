"""A SQLite file that another process keeps locked: the server still ends in time."""

import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from support.live_server import until
from support.processes import ENDS_WITHIN_S, serving
from support.traffic import polite

pytestmark = pytest.mark.slow

PAGE = [{"url": "https://a.example/"}]


def test_a_server_ends_in_time_though_writers_wait_for_the_lock(sqlite_url, tmp_path):
    path = sqlite_url.removeprefix("sqlite:///")
    settings = {"database_url": sqlite_url, "database_timeout_s": 300}
    with (
        serving(tmp_path, **settings) as server,
        closing(sqlite3.connect(path, isolation_level=None)) as other,
        ThreadPoolExecutor(4) as pool,
    ):
        other.execute("BEGIN IMMEDIATE")
        asked = [pool.submit(server.client.post, "/pages", json=PAGE) for _ in range(4)]
        until(lambda: server.client.get("/readyz").status_code == 503, "the lock is seen")
        assert server.client.get("/metrics").status_code == 200
        began = time.monotonic()
        assert server.terminate() in (0, -15)
        assert time.monotonic() - began < ENDS_WITHIN_S
        assert all(polite(one.result(), 503) for one in asked)
        assert "Traceback" not in server.log.read_text()
