"""Politeness: the times at which a host queue may be crawled, by settings and reports. Pure.

An incident of a host is one pause: only a crawl that was leased after the pause began makes the
next pause longer. Twelve crawls in flight that all get a 429 are one incident.

A host queue is open if the delay since the last crawl and its pauses are over. Also, fewer leases
must run than the concurrency allows. The site pauses its host queue by trouble. An operator's pause
is apart: no report ends it or makes it longer. The store keeps all instants over a restart.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.core import latency, waits
from service.core.latency import Latency
from service.model.arrays import NO_TIME, Bools, Codes, Floats, Instants, Ints
from service.model.domain import MOST_FAILURES
from service.model.outcomes import asks_for_pause, host_in_trouble
from service.storage.queue.columns import HostQueues

Spans = NDArray[np.timedelta64]

TROUBLE_AFTER = 3
"""Reports of other trouble in a row after which a host queue pauses."""

PAUSE_S = 60.0
"""First pause after trouble, seconds."""
LONGEST_PAUSE_S = 86_400.0
"""Maximum pause after trouble, seconds."""
LONGEST_IN_INCIDENT_S = 3_600.0
"""Maximum pause in an incident (`ingest.incidents`), seconds: pages are crawled again as soon."""
FORGIVEN_AFTER_S = 86_400.0
"""Time from the end of a pause until failures no longer count, seconds."""

ANY_NUMBER = np.iinfo(np.int32).max
"""Room of a gate without limits, crawls."""
FIRST, LAST = np.datetime64(0, "us"), np.datetime64("9999-12-31", "us")
NO_DELAY = np.timedelta64(0, "us")

SETTINGS = ("min_delay_s", "robots_delay_s", "max_concurrency", "latency_factor", "max_delay_s")
"""Fields of a host queue that callers set."""
STATE = ("n_failures", "paused_until", "paused_at", "ready_at", "next_at")
"""Fields of a host queue that crawls and reports change, and that decide when its gate opens."""
LATENCY = ("latency_s", "usual_latency_s", "n_latencies")
"""Fields of a host queue that have its latency."""


@dataclass(frozen=True, slots=True)
class Politeness:
    """The politeness of host queues without settings of their own."""

    delay_s: float = 1.0
    """Delay from one crawl to the next, seconds."""
    concurrency: int = 1
    """Leases that may run at a time; 0: any number."""
    latency_factor: float = 0.0
    """Delay of a host that is slower than usual, over its latency; 0: latencies cause no delay."""
    max_delay_s: float = 30.0
    """Maximum delay by latency, seconds."""

    @property
    def gated(self) -> bool:
        """True if a crawl may have to wait for another crawl."""
        return self.delay_s > 0 or self.concurrency > 0 or self.latency_factor > 0


class Gates(NamedTuple):
    """(N,) gates of host queues at one instant."""

    delay: Spans
    concurrency: Ints
    """Leases that may run at a time; 0: any number."""
    n_running: Ints
    """Leases that run, or expired less than a delay ago."""
    room: Ints
    """Crawls that may be leased now."""


class ReportSummary(NamedTuple):
    """(N,) sums of a batch of reports by host queue; NaT: no such report."""

    ended: Bools
    """True if a lease ended."""
    last: Instants
    """Time of the newest crawl whose lease ended."""
    good: Instants
    """Time of the newest crawl that the host answered."""
    ill: Instants
    """Time of the newest crawl in trouble that is no part of the last pause."""
    n_ill: Ints
    """Number of such crawls."""
    slow: Bools
    """True if the host requested a pause by the status of such a crawl."""
    asked: Instants
    """Time of the newest crawl with a Retry-After."""
    retry_after_s: Floats
    """Pause that the host requested, seconds; 0: none."""
    queued: Instants
    """Earliest due time of the pages that were queued again."""
    in_incident: Bools
    """True if a crawl showed the sign of an incident of its host."""


# -- limits in force


def delays(min_delay_s: Floats, robots_delay_s: Floats, polite: Politeness) -> Floats:
    """Return delays in force, seconds: at least the delay of robots.txt, at most a day."""
    return waits.delay_in_force(min_delay_s, robots_delay_s, polite.delay_s)


def concurrencies(max_concurrency: Ints, polite: Politeness) -> Ints:
    """Return the numbers of leases that may run at a time; 0: any number."""
    return np.where(max_concurrency > 0, max_concurrency, polite.concurrency)


def latency_of(host_queues: HostQueues) -> Latency:
    """Return the latencies of host queues."""
    return Latency(host_queues.latency_s, host_queues.usual_latency_s, host_queues.n_latencies)


def latency_factors(host_queues: HostQueues, polite: Politeness) -> Floats:
    """Return the factors on the latency in force; 0: latencies cause no delay."""
    own = host_queues.latency_factor
    return np.where(np.isnan(own), polite.latency_factor, own)


def delays_by_latency(host_queues: HostQueues, polite: Politeness) -> Floats:
    """Return the delays that latencies cause, seconds; 0: none."""
    most_s = host_queues.max_delay_s
    most_s = np.where(np.isnan(most_s), polite.max_delay_s, most_s)
    return latency.delay_s(latency_of(host_queues), latency_factors(host_queues, polite), most_s)


def slowed(host_queues: HostQueues, polite: Politeness) -> Bools:
    """Return which host queues have one crawl at a time, because they are slower than usual."""
    slow = latency.one_at_a_time(latency_of(host_queues))
    return slow & (latency_factors(host_queues, polite) > 0)


def limits_s(host_queues: HostQueues, polite: Politeness) -> tuple[Floats, Ints]:
    """Return each host queue's delay, seconds, and concurrency in force."""
    delay_s = delays(host_queues.min_delay_s, host_queues.robots_delay_s, polite)
    concurrency = concurrencies(host_queues.max_concurrency, polite)
    if np.isnan(host_queues.latency_s).all():  # most fleets
        return delay_s, concurrency
    slow = slowed(host_queues, polite)
    if slow.any():
        delay_s = np.fmax(delay_s, delays_by_latency(host_queues, polite))
        concurrency = np.where(slow, 1, concurrency)
    return delay_s, concurrency


def limits(host_queues: HostQueues, polite: Politeness) -> tuple[Spans, Ints]:
    """Return each host queue's delay and concurrency in force."""
    delay_s, concurrency = limits_s(host_queues, polite)
    return seconds(delay_s), concurrency


def seconds(spans: Floats) -> Spans:
    """Return seconds as time spans, rounded up so that no gate opens early."""
    return np.ceil(spans * 1e6).astype("m8[us]")


# -- leasing


def ends_of_pauses(host_queues: HostQueues) -> Instants:
    """Return when the pauses of host queues end, by an operator and by the site; NaT: no pause."""
    ends: Instants = np.fmax(host_queues.blocked_until, host_queues.paused_until)
    return ends


def gates(
    host_queues: HostQueues, delay: Spans, concurrency: Ints, n_running: Ints, at: np.datetime64
) -> Gates:
    """Return the gates of host queues at an instant, by their `limits`."""
    room = np.where(concurrency > 0, np.maximum(concurrency - n_running, 0), ANY_NUMBER)
    # a delay runs from one crawl to the next, so only one crawl may begin now
    room = np.where(delay > NO_DELAY, np.minimum(room, 1), room)
    waits = (host_queues.ready_at > at) | (ends_of_pauses(host_queues) > at)
    return Gates(delay, concurrency, n_running, np.where(waits, 0, room))


def heads(n: int, host_queue: Ints, bound: Instants, before: Instants, each: int) -> Instants:
    """Return a lower bound of the time at which each of n host queues has a page; NaT: no page.

    At most `each` rows of a host queue were read, in the order of `before`. `bound` is the time at
    which each row can be leased now; NaT: the row was removed. If `each` rows were read, more rows
    may follow.
    """
    first, last = np.full(n, LAST), np.full(n, FIRST)
    present = ~np.isnat(bound)
    np.minimum.at(first, host_queue[present], bound[present])
    np.maximum.at(last, host_queue, before)
    more = np.bincount(host_queue, minlength=n) >= each
    first = np.where(more, np.minimum(first, last), first)
    return np.where(first == LAST, NO_TIME, first)


def shut(
    host_queues: HostQueues,
    gates: Gates,
    n_taken: Ints,
    ends: Instants,
    head: Instants,
    at: np.datetime64,
) -> HostQueues:
    """Return host queues after crawls were leased; `ends` has the end of each one's first lease.

    Because a worker whose lease expires may have crawled at its last instant, the delay counts from
    there.
    """
    waits = (n_taken > 0) & (gates.delay > NO_DELAY)
    ready_at = np.where(waits, at + gates.delay, host_queues.ready_at)
    full = (gates.concurrency > 0) & (gates.n_running + n_taken >= gates.concurrency)
    opens = np.fmax(
        np.fmax(ready_at, ends_of_pauses(host_queues)), np.where(full, ends + gates.delay, NO_TIME)
    )
    next_at = np.where(np.isnat(head), NO_TIME, np.fmax(head, opens))
    return replace(host_queues, ready_at=ready_at, next_at=next_at)


class SettledLeases(NamedTuple):
    """(N,) outcomes of reported leases."""

    queue_id: Ints
    """Host queue of each page; 0: no such page."""
    held: Bools
    """True if the token was in force."""
    next_at: Instants
    """Next due time of the page; NaT if not before the horizon."""
    leased_at: Instants
    """Start of the lease; NaT: no lease in force."""
    host_queues: HostQueues
    """The locked host queues."""


# -- reports


def sum_up(
    settled: SettledLeases,
    observed_at: Instants,
    status: Codes,
    retry_after_s: Floats,
    new: Bools,
    at: np.datetime64,
    in_incident: Bools | None = None,
) -> ReportSummary:
    """Return the sums of reports that are new or under a lease, by host queue.

    A crawl that shows the sign of an incident of its host counts as a request of a pause, whatever
    its status (None: no crawl does).
    Trouble of a crawl that began before the last pause is part of the incident of that pause. A
    crawl that a slow clock dates before its lease gets the time of the lease. Because such a
    crawl may be as late as its report, the delay counts from the report.
    """
    queue_id, n = settled.host_queues.queue_id, len(settled.host_queues)
    # a host queue that was not locked may lie beyond the last one; `here` leaves it out
    row = np.minimum(np.searchsorted(queue_id, settled.queue_id), n - 1)
    here = queue_id[row] == settled.queue_id
    dated = np.fmax(np.fmin(observed_at, at), settled.leased_at)
    dated = np.where(np.isnat(observed_at), NO_TIME, dated)
    fetched = np.where(observed_at <= settled.leased_at, at, dated)
    ended, counts = here & settled.held, here & (settled.held | new)
    shows = np.zeros(len(here), np.bool_) if in_incident is None else in_incident & counts
    bad = (counts & host_in_trouble(status)) | shows
    good = counts & ~bad & ~np.isnat(dated)
    began = np.where(np.isnat(settled.leased_at), dated, settled.leased_at)
    # no lease begins in a pause, so one of the pause's first instant is older
    bad &= ~(began <= settled.host_queues.paused_at[row])
    slow, asks = bad & (asks_for_pause(status) | shows), counts & (retry_after_s > 0)
    pause_s = np.zeros(n)
    np.maximum.at(pause_s, row[asks], retry_after_s[asks])
    queued = np.full(n, NO_TIME)
    np.fmin.at(queued, row[here], settled.next_at[here])
    return ReportSummary(
        ended=np.bincount(row[ended], minlength=n) > 0,
        last=_newest(n, row[ended], fetched[ended]),
        good=_newest(n, row[good], dated[good]),
        ill=_newest(n, row[bad], dated[bad]),
        n_ill=np.bincount(row[bad], minlength=n),
        slow=np.bincount(row[slow], minlength=n) > 0,
        asked=_newest(n, row[asks], dated[asks]),
        retry_after_s=pause_s,
        queued=queued,
        in_incident=np.bincount(row[shows], minlength=n) > 0,
    )


def _newest(n: int, row: Ints, at: Instants) -> Instants:
    newest = np.full(n, NO_TIME)
    np.fmax.at(newest, row, at)
    return newest


def after_reports(
    host_queues: HostQueues,
    summary: ReportSummary,
    polite: Politeness,
    at: np.datetime64,
    uniform: Floats,
) -> HostQueues:
    """Return host queues after reports, with new failures, pauses, delays and opening times."""
    ill = summary.slow | ~np.isnat(summary.ill) | (summary.retry_after_s > 0)
    if (ill | (host_queues.n_failures > 0)).any():
        host_queues = replace(host_queues, n_failures=failures_in_a_row(host_queues, summary))
        host_queues = pause(host_queues, summary, at, uniform)
    delay, concurrency = limits(host_queues, polite)
    waits = (delay > NO_DELAY) & summary.ended
    later = np.fmax(host_queues.ready_at, summary.last + delay)
    ready_at = np.where(waits, later, host_queues.ready_at)
    freed = np.where(summary.ended & (concurrency > 0), at, NO_TIME)
    first = np.fmin(np.fmin(host_queues.next_at, freed), summary.queued)
    opens = np.fmax(ready_at, ends_of_pauses(host_queues))
    next_at = np.where(np.isnat(first), NO_TIME, np.fmax(first, opens))
    return replace(host_queues, ready_at=ready_at, next_at=next_at)


def failing(summary: ReportSummary) -> Bools:
    """Return which host queues were in trouble at their last crawl."""
    ill: Bools = ~np.isnat(summary.ill) & ~(summary.good > summary.ill)
    return ill


def failures_in_a_row(host_queues: HostQueues, summary: ReportSummary) -> Ints:
    """Return the reports of trouble in a row.

    A batch counts once, but its reports count one by one up to `TROUBLE_AFTER`. The reports of a
    host that requested a pause are one incident, and count once. An answer clears
    all failures before it, and so does a day after the end of the last pause.
    """
    answered = ~np.isnat(summary.good)
    day = seconds(np.array(FORGIVEN_AFTER_S))
    # without leases, no answer would clear the failures
    forgiven = answered | (summary.ill > host_queues.paused_until + day)
    before = np.where(forgiven, 0, host_queues.n_failures)
    # `n_ill` counts trouble before the answer too; only one is certain to be newer
    one_by_one = before + np.where(answered | summary.slow, 1, summary.n_ill)
    after = np.maximum(before + 1, np.minimum(one_by_one, TROUBLE_AFTER))
    return np.minimum(np.where(failing(summary), after, before), MOST_FAILURES)


def pause(
    host_queues: HostQueues, summary: ReportSummary, at: np.datetime64, uniform: Floats
) -> HostQueues:
    """Return host queues, paused after trouble; `n_failures` must include the reports.

    A host that requests a pause gets one at once. Other trouble causes a pause from `TROUBLE_AFTER`
    failures on. A Retry-After counts whatever the trouble, and without any. A pause counts from the
    crawl and never shortens a longer pause.
    """
    n_failures = host_queues.n_failures
    n_pauses = np.where(summary.slow, np.maximum(n_failures, 1), n_failures - (TROUBLE_AFTER - 1))
    since: Instants = np.where(np.isnat(summary.ill), at, summary.ill)
    trouble = summary.slow | (failing(summary) & (n_pauses > 0))
    longest_s = np.where(summary.in_incident, LONGEST_IN_INCIDENT_S, LONGEST_PAUSE_S)
    paused_s = waits.backoff(np.maximum(n_pauses, 1), PAUSE_S, LONGEST_PAUSE_S, uniform)
    paused_s = np.minimum(paused_s, longest_s)
    until = np.where(trouble, since + seconds(paused_s), NO_TIME)
    asked_s = seconds(np.minimum(summary.retry_after_s, LONGEST_PAUSE_S))
    asked: Instants = np.where(np.isnat(summary.asked), at, summary.asked)
    until = np.fmax(until, np.where(asked_s > NO_DELAY, asked + asked_s, NO_TIME))
    pauses = ~np.isnat(until)
    # not `>`, which is false for NaT, a host queue without a pause
    longer = pauses & ~(until <= host_queues.paused_until)
    return replace(
        host_queues,
        paused_until=np.where(longer, until, host_queues.paused_until),
        paused_at=np.where(longer, at, host_queues.paused_at),
    )


# -- saving


def set_back(host_queues: HostQueues, polite: Politeness, at: np.datetime64) -> HostQueues:
    """Return host queues after the clock was set back, without crawls and pauses after `at`.

    The remaining time of a delay or a pause counts from now. A pause by an operator keeps its end.
    """
    if not ((host_queues.ready_at > at) | (host_queues.paused_at > at)).any():
        return host_queues
    delay, _ = limits(host_queues, polite)
    ready_at = np.fmin(host_queues.ready_at, at + delay)
    # fmin makes a delay of NaT, but no crawl has begun one
    ready_at = np.where(np.isnat(host_queues.ready_at), NO_TIME, ready_at)
    ahead = host_queues.paused_at > at
    rest = host_queues.paused_until - host_queues.paused_at
    again = ahead | (host_queues.ready_at > ready_at)
    return replace(
        host_queues,
        ready_at=ready_at,
        paused_until=np.where(ahead, at + rest, host_queues.paused_until),
        paused_at=np.where(ahead, at, host_queues.paused_at),
        next_at=np.where(again, np.fmin(host_queues.next_at, at), host_queues.next_at),
    )


def differs(
    before: HostQueues, after: HostQueues, names: tuple[str, ...] = (*STATE, *LATENCY)
) -> Bools:
    """Return which host queues differ in the named fields, so that they must be saved."""
    different = np.zeros(len(before), np.bool_)
    for name in names:
        old, new = getattr(before, name), getattr(after, name)
        if old is new:
            continue
        different |= (old != new) & ~(np.isnan(old) & np.isnan(new))
    return different
