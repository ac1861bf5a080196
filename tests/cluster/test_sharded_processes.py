"""`recrawl serve` and `recrawl worker` over three databases, behind a real socket."""

from datetime import UTC, datetime

import pytest
from support.live_server import until
from support.processes import serving, started
from support.shard_cases import host_in, map_file

from recrawl_cluster.sharded import ShardedStore
from recrawl_cluster.store.claims import add
from recrawl_cluster.store.shard_map import read_map

pytestmark = pytest.mark.slow


def now() -> str:
    return datetime.now(UTC).isoformat()


def test_two_servers_and_two_workers_crawl_over_three_databases(shard_urls, tmp_path):
    file = map_file(tmp_path / "cluster.toml", shard_urls)
    store = ShardedStore(read_map(file), 3)
    add(store.databases, store.shard_map)
    store.close()
    urls = [f"https://{host_in(p, n)}/{i}" for p in range(3) for n in range(4) for i in range(2)]
    settings = {"cluster": file, "epoch_interval_s": 1, "bandwidth": 1e6, "host_delay_s": 0}
    with (
        serving(tmp_path, **settings) as one,
        serving(tmp_path, **settings) as other,
        started(tmp_path, "worker", **settings),
        started(tmp_path, "worker", **settings),
    ):
        registered = one.client.post("/pages", json=[{"url": url} for url in urls]).json()
        assert registered["created"] == len(urls)
        clients = [one.client, other.client]
        crawled: dict[str, int] = dict.fromkeys(urls, 0)
        report: list[dict] = []

        def crawl() -> bool:
            nonlocal report
            clients.reverse()
            body = {"worker": "w", "count": 10, "report": report}
            answer = clients[0].post("/leases", json=body)
            assert answer.status_code == 200, answer.text
            if report:
                assert answer.json()["reported"]["leases_ended"] == len(report)
            items = answer.json()["items"]
            report = [
                {"url": i["url"], "lease": i["lease"], "observed_at": now(), "changed": True}
                for i in items
            ]
            for item in items:
                crawled[item["url"]] += 1
            return min(crawled.values()) >= 2

        until(crawl, "each page is crawled twice")

        def published() -> dict | None:
            epochs = other.client.get("/epochs").json()["items"]
            done = [e for e in epochs if e["status"] == "published" and e["n_pages"] == len(urls)]
            return done[0] if done else None

        until(published, "an epoch of all pages is published")
        rows, cursor = [], None
        while True:
            query = {"limit": 7, **({"cursor": cursor} if cursor else {})}
            part = one.client.get("/schedule", params=query)
            if part.status_code == 410:  # so many epochs later; start again
                rows, cursor = [], None
                continue
            rows += part.json()["items"]
            cursor = part.json()["next_cursor"]
            if cursor is None:
                break
        assert sorted(row["url"] for row in rows) == sorted(urls)
        assert one.client.get("/readyz").json()["status"] == "ok"
    for log in tmp_path.glob("*.log"):
        assert "Traceback" not in log.read_text(), log.read_text()[-3000:]
