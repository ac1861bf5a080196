"""Workers killed every moment, servers now and then: no page is lost, no host pressed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
OFF = 0.4
"""Of all crawls: the full size is held to 5 % a class; here a busy machine is late by a second."""


@pytest.mark.parametrize("store", ["postgres", "sqlite"])
def test_pages_are_crawled_on_time_and_politely_whoever_is_killed(store, postgres_server, tmp_path):
    written = tmp_path / "killed.json"
    server = postgres_server.render_as_string(hide_password=False)
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "benchmarks.leases",
            "--kill",
            "--stores",
            store,
            "--workers",
            "4",
            "--kill-seconds",
            "8",
            "--period",
            "4",
            "--late",
            "5",
            "--kill-hosts",
            "20",
            "--postgres",
            server,
            "--folder",
            tmp_path,
            "--json",
            written,
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    rows = json.loads(written.read_text())["rows"]
    assert [row["failure"] for row in rows if row["failure"]] == [], run.stdout + run.stderr
    rates = [row["details"] for row in rows if row["unit"] == "%"]
    counts = {row["what"]: row["value"] for row in rows if row["unit"] != "%"}
    assert counts == {
        "hosts crawled within their delay": 0,
        "pages leased twice at a time": 0,
        "acknowledged reports that are lost": 0,
        "pages unaccounted for": 0,
    }
    n_crawls = sum(rate["crawls"] for rate in rates)
    assert n_crawls == pytest.approx(sum(rate["scheduled"] for rate in rates), rel=OFF)
