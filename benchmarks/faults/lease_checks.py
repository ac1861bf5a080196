"""Checks of leases and host delays, by the instants at which clients sent and received.

The service processes a request between the first byte of the request and the last byte of its
answer. A check counts a violation only if it is one at every instant of that interval. This
avoids false alarms.
"""

from collections.abc import Iterable
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

from benchmarks.faults.history import Fetch, Grant, History, LeaseRequest, Release, Report
from benchmarks.faults.verdicts import Verdict, by

TOLERANCE_S = 0.002
"""Tolerance of host delays, seconds, because the clocks of database and clients are read apart."""


class Hold(NamedTuple):
    """A lease, with the instants between which it was certainly in force."""

    page_id: int
    host: str
    lease: str
    earliest: float
    """Instant at which its request was sent: the lease began no earlier."""
    latest: float
    """Instant at which its answer arrived: the lease began no later."""
    ends_at: float
    """Earliest end: by expiry, or by a report or release that was sent."""


def holds(history: History) -> list[Hold]:
    """Return all leases that clients received, by the instant of their answers."""
    ended: dict[str, float] = {}
    for report in history.of(Report):
        if report.lease:
            ended.setdefault(report.lease, report.at)
    for release in history.of(Release):
        ended.setdefault(release.lease, release.at)
    held = [
        Hold(
            lease.page_id,
            lease.host,
            lease.lease,
            request.at,
            grant.at,
            min(request.at + request.ttl_s, ended.get(lease.lease, float("inf"))),
        )
        for request, grant in history.operations(LeaseRequest, Grant)
        if grant is not None
        for lease in grant.leases
    ]
    return sorted(held, key=attrgetter("latest"))


def leased_once(history: History) -> Verdict:
    """Check that no page has two leases in force at one time."""
    held = holds(history)
    wrong = []
    for of_page in by(held, "page_id"):
        for i, later in enumerate(of_page):
            wrong += [
                f"page {later.page_id}: {earlier} and {later}"
                for earlier in of_page[max(0, i - 4) : i]
                if later.latest < earlier.ends_at
                and (earlier.latest <= later.earliest or earlier.latest < later.ends_at)
            ]
    return Verdict("pages under two leases at a time", wrong, len(held))


def spaced_leases(history: History, delay_s: float) -> Verdict:
    """Check that two crawls of a host are not handed out within its delay."""
    held = holds(history)
    wrong = [
        f"{earlier.host}: {earlier} and {later}"
        for of_host in by(held, "host")
        for earlier, later in pairwise(of_host)
        if max(later.latest - earlier.earliest, earlier.latest - later.earliest)
        < delay_s - TOLERANCE_S
    ]
    return Verdict("crawls of a host handed out within its delay", wrong, len(held))


def spaced_fetches(history: History, delay_s: float) -> Verdict:
    """Check that fetches of a host, which allows one lease at a time, are its delay apart."""
    fetches = history.of(Fetch)
    wrong = [
        f"{later.host}: {later.at - earlier.at:.3f} s between {earlier} and {later}"
        for of_host in by(fetches, "host")
        for earlier, later in pairwise(of_host)
        if later.at - earlier.at < delay_s - TOLERANCE_S
    ]
    return Verdict("hosts crawled within their delay", wrong, len(fetches))


def crawled_again(history: History, pages: Iterable[int], healed_at: float) -> Verdict:
    """Check that every page with a crawl rate is handed out again after the last fault."""
    requested = {*pages}
    again = {
        lease.page_id
        for grant in history.of(Grant)
        if grant.at > healed_at
        for lease in grant.leases
    }
    wrong = [f"page {page}" for page in sorted(requested - again)]
    return Verdict("pages that were not handed out again", wrong, len(requested))
