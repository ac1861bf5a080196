"""Host queues after reports of crawls: delays, failures in a row, and pauses after trouble. Pure.

An incident of a host is one pause: only a crawl that was leased after the pause began makes the
next pause longer. Twelve crawls in flight that all get a 429 are one incident.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from service.core import waits
from service.leases.politeness import NO_DELAY, Politeness, ends_of_pauses, limits, seconds
from service.model.arrays import NO_TIME, Bools, Codes, Floats, Instants, Ints
from service.model.domain import MOST_FAILURES
from service.model.outcomes import asks_for_pause, host_in_trouble
from service.storage.queue.columns import NO_STATUS, HostQueues

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
    status: Ints
    """Status of the newest crawl in trouble, or with a Retry-After; `NO_STATUS`: none."""


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
    status_of = np.full(n, NO_STATUS)
    causes = np.flatnonzero(bad | asks)
    causes = causes[np.argsort(dated[causes], kind="stable")]
    status_of[row[causes]] = status[causes]  # the last one stays
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
        status=status_of,
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
        paused_status=np.where(longer, summary.status, host_queues.paused_status),
    )
