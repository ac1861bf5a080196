"""A minimal worker that may be killed at any instant and logs its fetches and reports.

python tests/support/mortal_worker.py NAME LOG PORT …
"""

import json
import os
import sys
import time
from datetime import UTC, datetime
from http.client import HTTPConnection, HTTPException
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

COUNT, WAIT_S, TTL_S = 4, 1.0, 2


class Crawl(NamedTuple):
    """A fetch of a page."""

    at: float
    """Instant by the machine's clock, seconds since 1970."""
    page_id: int
    host: str
    lease: str
    expires_at: float


class Acknowledged(NamedTuple):
    """A report with an answer of the service."""

    lease: str
    at: float


def work(ports: list[int], name: str, path: str) -> None:
    """Take and report crawls until killed; move to the next server when one does not answer."""
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
    """Take due pages and report them, except those whose leases have expired."""
    body = {"worker": name, "count": COUNT, "wait_s": WAIT_S, "ttl_s": TTL_S}
    for item in ask(connection, "/leases", body)["items"]:
        now = datetime.now(UTC)
        expires_at = datetime.fromisoformat(item["expires_at"])
        if now < expires_at:
            at, end = now.timestamp(), expires_at.timestamp()
            write(log, Crawl(at, item["page_id"], item["host"], item["lease"], end))
            report = {"lease": item["lease"], "observed_at": now.isoformat(), "status": 200}
            ask(connection, "/observations", [report | {"changed": False}])
            write(log, Acknowledged(item["lease"], at))


def ask(connection: HTTPConnection, path: str, body: Any) -> Any:
    """Post a body and return the answer, or None for a refusal."""
    connection.request(
        "POST", path, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    response = connection.getresponse()
    answer = response.read()
    if response.status != 200:
        raise HTTPException(f"{response.status}: {answer[:200]!r}")
    return json.loads(answer)


def write(log: int, entry: Crawl | Acknowledged) -> None:
    """Append one line, which stays in the file if the process is killed next."""
    os.write(log, (json.dumps(entry) + "\n").encode())


def read(path: Path) -> tuple[list[Crawl], list[Acknowledged]]:
    """Return the lines of all workers, ordered by time."""
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    crawls = [Crawl(*entry) for entry in entries if len(entry) == len(Crawl._fields)]
    acknowledged = [Acknowledged(*entry) for entry in entries if len(entry) == 2]
    return sorted(crawls), acknowledged


if __name__ == "__main__":
    work([int(port) for port in sys.argv[3:]], *sys.argv[1:3])
