"""A service with pages, hosts, keys and a webhook, and browsers that visit its console."""

from collections.abc import Iterator

import pytest
from support.access_cases import ADMIN, new_key
from support.browsing import Browser
from support.live_server import Live, running

from service.model.access import Role

URLS = [f"https://{host}.example/{n}" for host in ("news", "shop") for n in range(6)]


def fill(live: Live) -> None:
    """Register pages, report crawls of five days, run epochs, pause a host, take leases."""
    live.post("/pages", [{"url": url, "importance": 2, "tags": ["all"]} for url in URLS])
    for day in range(5):
        live.clock.advance(days=1)
        items = [
            {"url": url, "observed_at": live.clock().isoformat(), "digest": f"{day * (n % 3)}"}
            for n, url in enumerate(URLS[:-1])
        ]
        assert live.post("/observations", items).status_code == 200
        live.epoch()
    live.client.put("/hosts/shop.example", json={"min_delay_s": 2})
    live.post("/leases", {"worker": "worker-1", "count": 2})
    live.client.post("/webhooks", json={"url": "https://93.184.216.34/hook"})


@pytest.fixture(scope="module")
def live(sqlite_template, tmp_path_factory) -> Iterator[Live]:
    """A service with keys for all tests of a module."""
    path = tmp_path_factory.mktemp("console") / "recrawl.db"
    path.write_bytes(sqlite_template.read_bytes())
    with running(f"sqlite:///{path}", api_keys=[ADMIN]) as live:
        fill(live)
        yield live


@pytest.fixture
def admin(live) -> Browser:
    browser = Browser(live.url)
    browser.sign_in()
    return browser


@pytest.fixture
def reader(live) -> Browser:
    key, _ = new_key(live.service.store, Role.read)
    live.service.gate.ring.refresh()
    browser = Browser(live.url)
    browser.sign_in(key)
    return browser
