"""`recrawl worker` with Dask over three databases: readers and kills."""

import os
import signal
from datetime import UTC, datetime
from pathlib import Path

import pytest
from support.live_server import until
from support.processes import serving, started
from support.shard_cases import host_in, map_file

from recrawl_cluster.sharded import ShardedStore
from recrawl_cluster.store.claims import add
from recrawl_cluster.store.shard_map import read_map

pytestmark = pytest.mark.slow

URLS = [f"https://{host_in(p, n)}/{i}" for p in range(3) for n in range(4) for i in range(4)]


def children(pid: int) -> list[int]:
    """Return the processes that a process has started and that compute parts."""
    own = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((path / "stat").read_text().rsplit(")", 1)[1].split()[1])
            command = (path / "cmdline").read_text()
        except OSError:  # it has ended
            continue
        if parent == pid and "spawn_main" in command and "resource_tracker" not in command:
            own.append(int(path.name))
    return sorted(own)


def walked(client) -> int:
    """Read a schedule by its cursor; return its epoch, which is that of each part."""
    epochs, urls, cursor = set(), [], None
    while True:
        part = client.get(
            "/schedule", params={"limit": 5, **({"cursor": cursor} if cursor else {})}
        )
        if part.status_code == 410:  # so many epochs later
            return walked(client)
        assert part.status_code == 200, part.text
        body = part.json()
        epochs.add(body["epoch"])
        urls += [item["url"] for item in body["items"]]
        cursor = body["next_cursor"]
        if cursor is None:
            break
    assert len(epochs) == 1, "one cursor shows one epoch"
    assert sorted(urls) == sorted(URLS)
    return epochs.pop()


def test_a_worker_whose_processes_are_killed_goes_on_and_readers_see_whole_epochs(
    shard_urls, tmp_path
):
    file = map_file(tmp_path / "cluster.toml", shard_urls)
    store = ShardedStore(read_map(file), 3)
    add(store.databases, store.shard_map)
    store.close()
    settings = {"cluster": file, "epoch_interval_s": 1, "bandwidth": 1e5, "host_delay_s": 0}
    dask = {"dask": "local"}
    with (
        serving(tmp_path, **settings) as one,
        started(tmp_path, "worker", **settings, **dask) as worker,
        started(tmp_path, "worker", **settings, **dask) as other,
    ):
        one.post("/pages", [{"url": url} for url in URLS])
        now = datetime.now(UTC).isoformat()
        one.post("/observations", [{"url": u, "observed_at": now, "changed": True} for u in URLS])
        newest = lambda: one.client.get("/epochs").json()["items"]  # noqa: E731

        def published() -> int:
            done = [e["epoch"] for e in newest() if e["status"] == "published"]
            return max(done, default=0)

        def is_whole() -> bool:
            sizes = [e["n_pages"] for e in newest() if e["status"] == "published"]
            return bool(sizes) and sizes[0] == len(URLS)

        until(is_whole, "an epoch of all pages is published")
        seen = {walked(one.client) for _ in range(20)}

        def processes() -> list[int]:
            return [pid for each in (worker, other) for pid in children(each.popen.pid)]

        for _ in range(3):
            until(processes, "the worker that leads has processes")
            os.kill(processes()[0], signal.SIGKILL)
            before = published()
            until(lambda before=before: published() >= before + 2, "epochs go on after a kill")
            seen |= {walked(one.client) for _ in range(5)}
        worker.kill()
        before = published()
        until(lambda: published() >= before + 2, "the other worker leads")
        seen.add(walked(one.client))
        assert len(seen) >= 4
        reasons = {e["reason"] for e in newest() if e["status"] == "failed"}
        assert all("its process ended" in reason for reason in reasons), reasons
    for log in tmp_path.glob("*.log"):
        assert "Traceback" not in log.read_text(), log.read_text()[-3000:]
