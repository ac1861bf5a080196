"""Clients of the campaign, each a process that may be killed or stopped at any instant.

Crawlers take leases, fetch and report. Reporters report without leases. Pingers send pings.
Registrars add new pages. Readers follow the schedule's cursors and its stream, and list epochs.
"""

import json
import random
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.faults.caller import Caller
from benchmarks.faults.history import (
    Book,
    EpochList,
    Fetch,
    Grant,
    Lease,
    LeaseRequest,
    Receipt,
    Registration,
    Release,
    Report,
    Verdicts,
    Walk,
    now,
)

UNIX_ZERO = datetime(1970, 1, 1, tzinfo=UTC)
TTL_S = 3.0
"""Lease duration, seconds."""
CRAWLS, PINGS = 0, 1
MOST_BURST = 1_000
"""Maximum crawls of a burst."""
BURST_EVERY_S = 0.5
"""Time from one burst of changes to the next, seconds."""
STREAMED = "application/x-ndjson"


@dataclass(frozen=True)
class Task:
    """Parameters of one client."""

    name: str
    ports: Sequence[int]
    folder: Path
    pages: Sequence[int]
    """Pages with a crawl rate, which must be handed out to crawlers again and again."""
    others: Sequence[int]
    """Pages without a crawl rate."""
    seed: int
    bulk: Sequence[int] = ()
    """Pages of the client that reports changes in bursts."""
    all_changed: bool = False
    """True: every crawl of a burst finds a change, and bursts come at `BURST_EVERY_S`."""
    hook_port: int = 0
    """Port of the receiver of webhooks."""


class Client:
    """One client: its connection, its history file and its random generator."""

    def __init__(self, task: Task) -> None:
        self.name, self.pages, self.others = task.name, task.pages, task.others
        self.bulk, self.folder = task.bulk, task.folder
        self.all_changed = task.all_changed
        self.book = Book(task.folder, task.name)
        self.caller = Caller(task.ports, self.book)
        self.draw = random.Random(f"{task.seed} {task.name}")
        self.ops = count()

    def stamp(self) -> dict[str, Any]:
        """Return the fields that every line of the history has."""
        return {"client": self.name, "at": now()}

    def report(
        self, kind: int, pages: Sequence[int], lease: str = "", share_changed: float = 0.3
    ) -> None:
        """Report crawls or pings of this instant, and repeat until an answer comes.

        A report under a lease is sent only once. Because the lease may expire, its crawl may belong
        to another client by the time of a repetition.
        """
        at = (datetime.now(UTC) - UNIX_ZERO) // timedelta(microseconds=1)
        items = [(page, at + i) for i, page in enumerate(pages)]
        body = [self.item(kind, page, instant, lease, share_changed) for page, instant in items]
        for _ in range(1 if lease else 5):
            op = next(self.ops)
            self.book.write(Report(**self.stamp(), op=op, kind=kind, items=items, lease=lease))
            answer = self.caller.post("/pings" if kind == PINGS else "/observations", body)
            if answer is not None:
                counts = {name: answer[name] for name in ("accepted", "duplicate", "late")}
                rejected = answer["n_rejected"]
                self.book.write(Verdicts(**self.stamp(), op=op, rejected=rejected, **counts))
                return

    def item(
        self, kind: int, page: int, instant: int, lease: str, share_changed: float
    ) -> dict[str, Any]:
        """Return one item of a report."""
        at = (UNIX_ZERO + timedelta(microseconds=instant)).isoformat()
        if kind == PINGS:
            return {"page_id": page, "changed_at": at}
        name = {"lease": lease} if lease else {"page_id": page}
        return name | {
            "observed_at": at,
            "status": 200,
            "changed": self.draw.random() < share_changed,
        }


def crawl(client: Client) -> None:
    """Take crawls and report them; sometimes release one or let its lease expire."""
    request = LeaseRequest(**client.stamp(), op=next(client.ops), ttl_s=TTL_S)
    client.book.write(request)
    body = {"worker": client.name, "count": client.draw.randint(1, 6), "ttl_s": TTL_S}
    answer = client.caller.post("/leases", body)
    if answer is None:
        return
    leases = [Lease(item["lease"], item["page_id"], item["host"]) for item in answer["items"]]
    client.book.write(Grant(**client.stamp(), op=request.op, leases=leases))
    for lease in leases:
        fetch(client, lease, request.at + TTL_S)
    time.sleep(0.02 if leases else 0.1)


def fetch(client: Client, lease: Lease, ends_at: float) -> None:
    """Fetch a page while its lease is in force, then report it, release it or do neither."""
    choice = client.draw.random()
    if choice < 0.05:
        client.book.write(Release(**client.stamp(), lease=lease.lease))
        client.caller.call("DELETE", f"/leases/{lease.lease}")
    elif choice > 0.08 and (at := now()) < ends_at:
        client.book.write(
            Fetch(
                client=client.name,
                at=at,
                page_id=lease.page_id,
                host=lease.host,
                lease=lease.lease,
            )
        )
        client.report(CRAWLS, [lease.page_id], lease.lease)


def observe(client: Client) -> None:
    """Report crawls of some pages without leases, seldom of a page that crawlers wait for."""
    due = client.draw.sample(client.pages, client.draw.random() < 0.1)
    client.report(CRAWLS, client.draw.sample(client.others, 5) + due)
    time.sleep(client.draw.uniform(0.05, 0.2))


def burst(client: Client) -> None:
    """Report crawls of many pages at once."""
    ends_at = now() + (BURST_EVERY_S if client.all_changed else 0.05)
    pages = client.draw.sample(client.bulk, min(len(client.bulk), MOST_BURST))
    client.report(CRAWLS, pages, share_changed=1.0 if client.all_changed else 0.3)
    time.sleep(max(ends_at - now(), 0.05))


def ping(client: Client) -> None:
    """Send pings for some pages."""
    client.report(PINGS, client.draw.sample([*client.pages, *client.others], 3))
    time.sleep(client.draw.uniform(0.1, 0.4))


def register(client: Client) -> None:
    """Register new pages, and repeat the request until an answer comes."""
    first = next(client.ops)
    urls = [f"https://{client.name}-{first}.example/{i}" for i in range(3)]
    for _ in range(5):
        op = next(client.ops)
        client.book.write(Registration(**client.stamp(), op=op, urls=urls))
        answer = client.caller.post("/pages", [{"url": url} for url in urls])
        if answer is not None:
            line = Receipt(**client.stamp(), op=op, page_ids=answer["page_ids"])
            client.book.write(line)
            break
    time.sleep(client.draw.uniform(1.0, 2.0))


def read(client: Client) -> None:
    """Follow the cursors of the schedule or read its stream, and list the epochs."""
    walk = stream if client.draw.random() < 0.3 else follow
    epochs, pages, whole = walk(client)
    if epochs:
        client.book.write(Walk(**client.stamp(), epochs=epochs, pages=pages, whole=whole))
    answer = client.caller.call("GET", "/epochs?limit=10")
    if answer and answer[0] == 200:
        published = [
            (epoch["epoch"], epoch["n_pages"], epoch["finished_at"])
            for epoch in json.loads(answer[2])["items"]
            if epoch["status"] == "published"
        ]
        client.book.write(EpochList(**client.stamp(), epochs=published))
    time.sleep(client.draw.uniform(0.05, 0.3))


Way = tuple[list[int], list[int], bool]


def follow(client: Client) -> Way:
    """Follow the cursors to the end of the schedule or to the first silence."""
    epochs, pages, place, failures = list[int](), list[int](), "", 0
    while failures < 5:
        answer = client.caller.call("GET", f"/schedule?limit=37{place}")
        if answer is None or answer[0] >= 500:
            failures += 1
            continue
        if answer[0] != 200:
            break
        part = json.loads(answer[2])
        if part["epoch"] is None:
            break
        epochs.append(part["epoch"])
        pages += [item["page_id"] for item in part["items"]]
        if part["next_cursor"] is None:
            return epochs, pages, True
        place = f"&cursor={part['next_cursor']}"
    return epochs, pages, False


def stream(client: Client) -> Way:
    """Read the schedule as one stream; a broken stream counts as silence."""
    answer = client.caller.call("GET", "/schedule", headers={"Accept": STREAMED})
    if answer is None or answer[0] != 200:
        return [], [], False
    number = re.search(r"epoch-(\d+)", answer[1]["etag"])
    pages = [json.loads(line)["page_id"] for line in answer[2].splitlines()]
    return ([int(number[1])], pages, True) if number and number[1] != "0" else ([], [], False)


KINDS: dict[str, Callable[[Client], None]] = {
    "crawler": crawl,
    "reporter": observe,
    "burster": burst,
    "pinger": ping,
    "registrar": register,
    "reader": read,
}
