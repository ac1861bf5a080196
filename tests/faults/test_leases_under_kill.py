"""Workers killed every moment, servers now and then: no page is lost, no host pressed."""

from contextlib import nullcontext

import pytest
from support.killed_leases import killed
from support.live_server import created

pytestmark = pytest.mark.slow

OFF = 0.4
"""Share of all crawls by which their number may differ: a busy machine is late by a second."""


@pytest.mark.parametrize("store", ["postgres", "sqlite"])
def test_pages_are_crawled_on_time_and_politely_whoever_is_killed(store, postgres_server, tmp_path):
    database = nullcontext(f"sqlite:///{tmp_path}/leases.db")
    if store == "postgres":
        database = created(postgres_server)
    with database as url:
        outcome = killed(url, tmp_path, 1 + (store == "postgres"), seconds=8, late_s=5)
    assert outcome.wrong == {
        "hosts crawled within their delay": 0,
        "pages leased twice at a time": 0,
        "acknowledged reports that are lost": 0,
        "pages unaccounted for": 0,
    }
    assert outcome.n_crawls == pytest.approx(outcome.scheduled, rel=OFF)
