"""Some steps of life on a filled database, so that every view has numbers to show."""

from datetime import datetime, timedelta
from typing import Any

import httpx
import numpy as np

from service.api.assembly import Service
from service.model.history import STEP

KEY = "a key of the environment"
WORKERS = ("worker-1", "worker-2", "worker-3")
HOST = "host000007.example"
"""Host whose queue is blocked at the end."""
HOOK = "https://93.184.216.34/hook"


class StandingClock:
    """A clock that stands still until it is set."""

    def __init__(self, at: datetime) -> None:
        self.at = at

    def __call__(self) -> datetime:
        return self.at


def live(
    service: Service, client: httpx.Client, clock: StandingClock, *, steps: int, crawls: int
) -> None:
    """Run an epoch, then crawl and ping in steps of the history; end with leases that run.

    A tenth of the crawls has no answer, and two tenths find a change.
    """
    rng = np.random.default_rng(5)
    _send(client, "POST", "/webhooks", {"url": HOOK})
    _send(client, "POST", "/keys", {"name": "dashboards", "role": "read"})
    _send(client, "POST", "/epochs", None)
    service.runner.run_once()
    for _ in range(steps):
        for worker in WORKERS:
            leases = _lease(client, worker, crawls)
            _report(client, clock, leases[: 9 * len(leases) // 10], rng)
            failed = leases[9 * len(leases) // 10 :]
            _post(client, [{**_crawl(each, clock), "status": 500} for each in failed])
        pinged = [{"page_id": page, "changed_at": clock().isoformat()} for page in range(1, 41)]
        _send(client, "POST", "/pings", pinged)
        service.store.counter.write()
        clock.at += STEP
        service.runner.run_once()
    _send(client, "PUT", f"/hosts/{HOST}", {"blocked_until": (clock() + STEP).isoformat()})
    for worker in WORKERS:
        _lease(client, worker, crawls // 10)
    service.store.counter.write()


def _lease(client: httpx.Client, worker: str, count: int) -> list[dict[str, Any]]:
    wanted = {"worker": worker, "count": count}
    leases: list[dict[str, Any]] = _send(client, "POST", "/leases", wanted)["items"]
    return leases


def _report(
    client: httpx.Client,
    clock: StandingClock,
    leases: list[dict[str, Any]],
    rng: np.random.Generator,
) -> None:
    changed = (rng.random(len(leases)) < 2 / 9).tolist()
    pairs = zip(leases, changed, strict=True)
    _post(client, [{**_crawl(each, clock), "status": 200, "changed": c} for each, c in pairs])


def _crawl(lease: dict[str, Any], clock: StandingClock) -> dict[str, Any]:
    return {"lease": lease["lease"], "observed_at": clock().isoformat()}


def _post(client: httpx.Client, items: list[dict[str, Any]]) -> None:
    for first in range(0, len(items), 1_000):
        answer = _send(client, "POST", "/observations", items[first : first + 1_000])
        if answer["rejected"]:
            raise ValueError(f"crawls were rejected: {answer['rejected'][:3]}")


def _send(client: httpx.Client, method: str, path: str, body: Any) -> Any:
    response = client.request(method, path, json=body)
    response.raise_for_status()
    return response.json()


SETTINGS: dict[str, Any] = {
    "api_keys": [KEY],
    "epoch_interval_s": timedelta(days=30).total_seconds(),
    "host_delay_s": 0,
    "host_concurrency": 0,
}
"""Settings of the service: no epoch but the requested ones, no delay between crawls of a host."""
