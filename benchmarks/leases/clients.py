"""Workers on raw sockets: they take crawls and report them, or ask where nothing is ready."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from benchmarks.http.clients import Answer, Requests, post
from benchmarks.http.processes import Failed

LEASE = re.compile(rb'"lease":\s*"([^"]*)"')
ENDED = re.compile(rb'"leases_ended":\s*(\d+)')


@dataclass(frozen=True)
class Crawling:
    """Takes `batch` crawls, reports them under their leases, takes more."""

    batch: int
    wait_s: float = 0.0
    """For a first crawl; 0: there must be one."""

    def requests(self, client: int) -> Requests:
        asked = f'{{"worker":"w{client}","count":{self.batch},"wait_s":{self.wait_s}}}'
        while True:
            answer = yield post("/leases", asked.encode())
            if leases := LEASE.findall(answer.body):
                yield post("/observations", reports(leases))
            elif not self.wait_s:
                raise Failed(f"nothing was due: {answer.body[:300]!r}")

    def count(self, answer: Answer) -> int:
        """Count crawls when their leases have ended, not when they begin."""
        if answer.status != 200:
            raise Failed(f"{answer.status}: {answer.body[:300]!r}")
        ended = ENDED.search(answer.body, max(0, len(answer.body) - 200))
        return int(ended[1]) if ended else 0


def reports(leases: list[bytes]) -> bytes:
    """Write what the crawls saw, all at this instant."""
    seen = f'","observed_at":"{datetime.now(UTC).isoformat()}","status":200,"changed":false}}'
    items = b",".join(b'{"lease":"' + lease + seen.encode() for lease in leases)
    return b"[" + items + b"]"


@dataclass(frozen=True)
class Polling:
    """Asks for crawls where none is ready."""

    def requests(self, client: int) -> Requests:
        ask = post("/leases", f'{{"worker":"w{client}","count":100}}'.encode())
        while True:
            yield ask

    def count(self, answer: Answer) -> int:
        if answer.status != 200 or LEASE.search(answer.body):
            raise Failed(f"{answer.status}: {answer.body[:300]!r}")
        return 1
