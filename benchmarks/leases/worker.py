"""A worker as plain as can be, fit to be killed at any instant: it writes down what it does."""

import json
import os
import time
from datetime import UTC, datetime
from http.client import HTTPConnection, HTTPException
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

COUNT, WAIT_S, TTL_S = 4, 1.0, 2


class Crawl(NamedTuple):
    """A page that was fetched."""

    at: float
    """Seconds since 1970, by the clock of all processes."""
    page_id: int
    host: str
    lease: str
    expires_at: float


class Acknowledged(NamedTuple):
    """A report that the service has answered."""

    lease: str
    at: float


def work(ports: list[int], name: str, path: str) -> None:
    """Take crawls and report them for ever, at the next server when one does not answer."""
    log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for port in cycle(ports):
        connection = HTTPConnection("127.0.0.1", port, timeout=10)
        try:
            while True:
                crawl(connection, name, log)
        except (OSError, HTTPException):
            time.sleep(0.05)
        finally:
            connection.close()


def crawl(connection: HTTPConnection, name: str, log: int) -> None:
    """Take what is due and report it; a lease that has ended meanwhile is left alone."""
    asked = {"worker": name, "count": COUNT, "wait_s": WAIT_S, "ttl_s": TTL_S}
    for item in ask(connection, "/leases", asked)["items"]:
        now = datetime.now(UTC)
        expires_at = datetime.fromisoformat(item["expires_at"])
        if now < expires_at:
            at, end = now.timestamp(), expires_at.timestamp()
            write(log, Crawl(at, item["page_id"], item["host"], item["lease"], end))
            seen = {"lease": item["lease"], "observed_at": now.isoformat(), "status": 200}
            ask(connection, "/observations", [seen | {"changed": False}])
            write(log, Acknowledged(item["lease"], at))


def ask(connection: HTTPConnection, path: str, body: Any) -> Any:
    """Post and give the answer; what is refused is no more than no answer."""
    connection.request(
        "POST", path, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    response = connection.getresponse()
    answer = response.read()
    if response.status != 200:
        raise HTTPException(f"{response.status}: {answer[:200]!r}")
    return json.loads(answer)


def write(log: int, entry: Crawl | Acknowledged) -> None:
    """Append one line, which is there even if the process is killed next."""
    os.write(log, (json.dumps(entry) + "\n").encode())


def read(path: Path) -> tuple[list[Crawl], list[Acknowledged]]:
    """Read what all workers wrote, in the order of time."""
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    crawls = [Crawl(*entry) for entry in entries if len(entry) == len(Crawl._fields)]
    acknowledged = [Acknowledged(*entry) for entry in entries if len(entry) == 2]
    return sorted(crawls), acknowledged
