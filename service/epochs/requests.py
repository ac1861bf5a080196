"""Requests of crawlers as the history has counted them, which an epoch plans by."""

from datetime import datetime, timedelta
from typing import NamedTuple

from service.core.budget_factor import Spent, Window, budget_factor, settling_days, share_wanted
from service.core.common_values import Joint, total
from service.epochs.urgency import LATE, Readers
from service.history.reading import counts_between
from service.model.domain import Certificate, Epoch
from service.model.history import STEP, step_of
from service.storage import Transaction

LEARNT_IN = timedelta(days=7)
"""Time by which requests that teach nothing are foreseen, and by which leases count as usual."""
DAY = timedelta(days=1)
FEW_LEASES = 100
"""Crawls for each lease from which on a fleet reads the schedule alone."""

NO_TIME = Window(0.0, 0.0)


class RequestCounts(NamedTuple):
    """Requests of one database, or of all."""

    n_since: float = 0.0
    """Requests since the last epoch."""
    n_leased: float = 0.0
    """Leases of the last `LEARNT_IN`."""
    n_reported: float = 0.0
    """Crawls that were reported in that time."""
    overhead: float = 0.0
    """Requests a day in that time that taught nothing."""
    n_taught_nothing: float = 0.0
    """Number of these requests."""
    n_of_day: float = 0.0
    """Crawls that were reported in the last day."""
    since: Window = NO_TIME
    """The time of `n_since`, in whole steps; the same for all parts."""

    @property
    def with_leases(self) -> bool:
        """True if at least half of the crawls have leases, whose pace keeps the budget."""
        return self.n_leased > 0 and 2 * self.n_leased >= self.n_reported

    def overhead_of(self, bandwidth: float) -> float:
        """Return the requests a day that teach nothing within a budget, crawls a day.

        A budget below the requests so far has the same share of them.

        >>> counts = RequestCounts(n_reported=700.0, overhead=10.0, n_taught_nothing=70.0)
        >>> counts.overhead_of(40.0), counts.overhead_of(1_000.0)
        (4.0, 10.0)
        """
        share = self.n_taught_nothing / max(self.n_reported, self.n_taught_nothing, 1.0)
        return min(self.overhead, share * bandwidth)

    @property
    def of_readers(self) -> bool:
        """True if nearly all crawls are of readers, who crawl all that is due."""
        return self.n_reported > 0 and FEW_LEASES * self.n_leased <= self.n_reported


NO_REQUESTS = RequestCounts()


def read_requests(tx: Transaction, last: Epoch | None, at: datetime) -> RequestCounts:
    """Return the requests that the history of one database has.

    Requests since the last epoch are those that were reported in whole steps, because each counts
    in one epoch.
    """
    end = step_of(at - LATE)
    started = None if last is None else last.started_at
    begin = end if started is None else step_of(started - LATE)
    begin = min(max(begin, end - LEARNT_IN), end)
    since = Window((at - begin) / DAY, (at - end) / DAY)
    week = counts_between(tx, at - LEARNT_IN, at + STEP)
    if week.first_at is None:
        return RequestCounts(since=since)
    watched = min(max(at - week.first_at, DAY), LEARNT_IN) / DAY
    counts, reported = week.counts, counts_between(tx, begin, end).counts
    return RequestCounts(
        n_since=reported["n_reported"] + reported["n_late"],
        n_leased=counts["n_leased"],
        n_reported=counts["n_reported"],
        overhead=counts["n_taught_nothing"] / watched,
        n_taught_nothing=counts["n_taught_nothing"],
        n_of_day=counts_between(tx, at - DAY, at + STEP).counts["n_reported"],
        since=since,
    )


def of_other_shards(own: RequestCounts) -> RequestCounts:
    """Return the requests of the logical shards of a database that are not its first one."""
    return RequestCounts(since=own.since)


def joined(own: RequestCounts) -> Joint[RequestCounts]:
    """Return the requests of all parts."""
    sums = yield from total(own._replace(since=NO_TIME))
    return sums._replace(since=own.since)


def factor_after(
    last: Epoch | None, requests: RequestCounts, n_first: int, n_pages: int, each: float = 1.0
) -> float:
    """Return the feedback of the requests since the last epoch; 1 with leases.

    `each` is the mean cost of a crawl in the unit of the budget, by which crawls are compared.

    `n_first` of the requests were first crawls. The plan of the last epoch has paid for those that
    it expected. The others are not saved later, or a new corpus would wait for weeks. Without any
    request there is nothing to correct.
    """
    if last is None or last.certificate is None or requests.with_leases:
        return 1.0
    certificate = last.certificate
    # in an epoch of an older release, the feedback was the factor itself
    before = certificate.feedback or certificate.budget_factor
    if not requests.n_reported:
        return before
    n, days = max(requests.n_since - n_first, 0.0), requests.since.days
    crawls = Spent(n, _without_first_crawls(certificate) / each * days, n_pages)
    return budget_factor(before, crawls, days)


def readers_after(
    last: Epoch | None,
    requests: RequestCounts,
    n_first: int,
    feedback: float,
    n_pages: int,
    each: float = 1.0,
) -> tuple[float, Readers | None]:
    """Return the budget factor until now, and what is known of readers; None: nobody is to count.

    The factor is 1 where leases keep the budget. Without any request, it stays. A pace may hold
    back what is due, so with some leases the feedback alone is the factor.
    """
    if last is None or last.certificate is None or requests.with_leases:
        return 1.0, None
    before, since = last.certificate, requests.since
    a_day = _without_first_crawls(before) / each
    if not (requests.n_reported and a_day):
        return before.budget_factor, None
    if not requests.of_readers:
        return feedback, None
    a_day *= share_wanted(feedback, settling_days(a_day, n_pages))
    still_due = before.still_due or 0.0
    still_due += a_day * since.days - max(requests.n_since - n_first, 0.0)
    return before.budget_factor, Readers(still_due, since, a_day, feedback)


def _without_first_crawls(certificate: Certificate) -> float:
    """Return the part of a budget that is not for first crawls, amount a day."""
    if certificate.planned is None:
        return certificate.bandwidth
    return min(certificate.planned + (certificate.overhead or 0.0), certificate.bandwidth)
