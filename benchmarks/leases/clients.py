"""Workers on raw sockets: they take and report crawls, or poll where no page is ready."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import uuid4

from benchmarks.http.clients import Answer, Requests, post
from benchmarks.http.processes import Failed

LEASE = re.compile(rb'"lease":\s*"([^"]*)"')
ENDED = re.compile(rb'"leases_ended":\s*(\d+)')


@dataclass(frozen=True)
class Crawling:
    """A worker that takes `batch` crawls, reports them under their leases, and repeats."""

    batch: int
    wait_s: float = 0.0
    """Maximum wait for a crawl, seconds; 0: a page must be ready."""

    def requests(self, client: int) -> Requests:
        body = f'{{"worker":"w{client}","count":{self.batch},"wait_s":{self.wait_s}}}'
        while True:
            answer = yield post("/leases", body.encode())
            if leases := LEASE.findall(answer.body):
                yield post("/observations", reports(leases))
            elif not self.wait_s:
                raise Failed(f"no page was due: {answer.body[:300]!r}")

    def count(self, answer: Answer) -> int:
        """Return the number of crawls whose leases have ended."""
        if answer.status != 200:
            raise Failed(f"{answer.status}: {answer.body[:300]!r}")
        ended = ENDED.search(answer.body, max(0, len(answer.body) - 200))
        return int(ended[1]) if ended else 0


@dataclass(frozen=True)
class Together(Crawling):
    """A worker that reports its last crawls in the request for the next ones."""

    keyed: bool = False
    """True: each request has an Idempotency-Key."""

    def requests(self, client: int) -> Requests:
        report, ask = b"[]", f'{{"worker":"w{client}","count":{self.batch},"report":'.encode()
        while True:
            key = (f"Idempotency-Key: {uuid4()}",) if self.keyed else ()
            answer = yield post("/leases", ask + report + b"}", *key)
            if not (leases := LEASE.findall(answer.body)):
                raise Failed(f"no page was due: {answer.body[:300]!r}")
            report = reports(leases)


def reports(leases: list[bytes]) -> bytes:
    """Return a POST that reports the crawls of leases as made at this instant."""
    result = f'","observed_at":"{datetime.now(UTC).isoformat()}","status":200,"changed":false}}'
    items = b",".join(b'{"lease":"' + lease + result.encode() for lease in leases)
    return b"[" + items + b"]"


@dataclass(frozen=True)
class Polling:
    """A worker that asks for crawls where no page is ready."""

    def requests(self, client: int) -> Requests:
        ask = post("/leases", f'{{"worker":"w{client}","count":100}}'.encode())
        while True:
            yield ask

    def count(self, answer: Answer) -> int:
        if answer.status != 200 or LEASE.search(answer.body):
            raise Failed(f"{answer.status}: {answer.body[:300]!r}")
        return 1
