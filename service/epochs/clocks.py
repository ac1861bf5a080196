"""Clocks of hosts in an epoch: what they know, and what the latest crawls teach them.

A host learns once a day, at an hour of its own, from the last crawl of each of its pages. So an
epoch reads and writes few hosts. `epochs.moves` uses the clocks.
"""

from typing import Any, NamedTuple

import numpy as np

from service.core.clocks.evidence import (
    ClockEvidence,
    Intervals,
    faded,
    forgotten,
    learn,
    packed,
    unpacked,
)
from service.core.clocks.fit import fit
from service.core.clocks.profile import Profiles
from service.core.clocks.timing import (
    MOST_INTERVAL,
)
from service.core.estimators.base import Estimator
from service.core.estimators.gamma import GammaState
from service.core.spending import Window
from service.epochs.urgency import LastEpoch, since
from service.model.arrays import DAY, Bools, Floats, Ints, days, distinct
from service.model.columns import (
    ClockColumns,
    EpochColumns,
    HostClocks,
    ShiftColumns,
)
from service.model.domain import Epoch, Observability
from service.storage import Transaction

LEAST_OBSERVATIONS = 3
"""Crawls of a page before its intervals are evidence: its change rate is unknown at first."""
LEAST_CRAWLS = 1.0
"""Minimum crawls a day of a host that learns a clock."""
DAY_MINUTES = 1440
DAY_S = 86_400.0
SOONEST = 0.05
"""Minimum time between crawls, in intervals by the crawl rate."""
LEAST_GAIN = 0.25
"""Gain by a second crawl a day, of that without a clock, below which it is not worth it."""
ONCE_A_DAY = 1.0
PER_WINDOW = 2.0
"""Minimum interval of pages that are moved, in times between epochs."""

WINDOW_DAYS = 1.0
"""Time between two lessons of a host, days."""


class Lesson(NamedTuple):
    """(K,) crawls that show something of clocks, in the order of their hosts."""

    row: Ints
    """Row of the page."""
    host_id: Ints


class Clocks(NamedTuple):
    """What an epoch reads of clocks."""

    hosts: HostClocks
    """Hosts with a clock."""
    shifts: ShiftColumns
    """Moves of the last epoch."""
    lesson: Lesson
    """Crawls of the hosts that learn in this epoch."""
    learnt: ClockColumns
    """What these hosts have learnt."""


def load_clocks(
    tx: Transaction, pages: EpochColumns, last: Epoch | None, now: np.datetime64
) -> Clocks:
    """Return the clocks of hosts as of the last epoch; few hosts are read in full."""
    crawls = lesson(pages, since(LastEpoch.of(last), now), now)
    hosts = tx.host_clocks()
    shifts = tx.shifts(last.epoch) if last and len(hosts) else ShiftColumns.empty()
    return Clocks(hosts, shifts, crawls, tx.clocks(distinct(crawls.host_id)))


# -- learning


def lesson(pages: EpochColumns, window: Window, now: np.datetime64) -> Lesson:
    """Return the last crawls of pages on hosts that learn now.

    `window` is the time since the last epoch. A host learns in the epoch after its hour of the day.
    """
    age = days(now - pages.last_observed_at)
    interval = np.abs(pages.last_interval)
    shown = (age >= window.end) & (age < window.start + WINDOW_DAYS)
    shown &= (interval > 0) & (interval <= MOST_INTERVAL) & (pages.importance > 0)
    shown &= pages.n_observations >= LEAST_OBSERVATIONS
    shown &= pages.observability != Observability.complete
    row = np.flatnonzero(shown)
    row = row[_turn_came(pages.host_id[row], now, window.days)]
    row = row[np.argsort(pages.host_id[row], kind="stable")]
    return Lesson(row, pages.host_id[row])


def _turn_came(host_id: Ints, now: np.datetime64, passed: float) -> Bools:
    """Return whether the hours of hosts lie within the last days."""
    hour = host_id * ((np.sqrt(5.0) - 1.0) / 2.0)
    return np.asarray((in_days(now) - hour) % 1.0 < passed)


def learn_clocks(
    pages: EpochColumns,
    estimator: Estimator[Any],
    clocks: Clocks,
    last: Epoch | None,
    now: np.datetime64,
) -> Clocks:
    """Return the clocks after the hosts of the lesson have learnt.

    A crawl that a host has learnt from does not count again. Hosts with less than `LEAST_CRAWLS` a
    day learn nothing.
    """
    crawls, window = clocks.lesson, since(LastEpoch.of(last), now)
    known = _of_hosts(distinct(crawls.host_id), clocks.learnt, now)
    host = known.host_id.searchsorted(crawls.host_id)
    late = np.timedelta64(round(window.end * DAY_S), "s")
    new = pages.last_observed_at[crawls.row] >= (known.learnt_at - late)[host]
    passed = days(now - known.learnt_at)
    active = np.bincount(host[new], minlength=len(known)) >= LEAST_CRAWLS * passed
    new &= active[host]
    host, row = (np.cumsum(active) - 1)[host[new]], crawls.row[new]
    known, passed = known.take(active), passed[active]
    end = in_days(pages.last_observed_at[row])
    interval = pages.last_interval[row]
    intervals = Intervals(host, end - np.abs(interval), end, *_posterior(pages, estimator, row))
    profiles = Profiles(known.profile[:, 1:], known.profile[:, 0])
    evidence = faded(unpacked(known.evidence), passed)
    evidence = forgotten(learn(evidence, profiles, intervals, interval > 0))
    profiles = fit(evidence, profiles)
    learnt = ClockColumns(
        host_id=known.host_id,
        learnt_at=np.full(len(known), now),
        evidence=packed(evidence).astype(np.float64),
        profile=np.column_stack((profiles.weight, profiles.coefficients)),
    )
    return clocks._replace(hosts=_renewed(clocks.hosts, learnt), learnt=learnt)


def _of_hosts(host_id: Ints, known: ClockColumns, now: np.datetime64) -> ClockColumns:
    """Return the evidence of hosts; a host that is not known has none since a day ago."""
    n, flat = len(host_id), Profiles.flat(1)
    columns = ClockColumns(
        host_id=host_id,
        learnt_at=np.full(n, now - DAY),
        evidence=packed(ClockEvidence.none(n)).astype(np.float64),
        profile=np.tile(np.append(flat.weight, flat.coefficients), (n, 1)),
    )
    at = host_id.searchsorted(known.host_id)
    columns.learnt_at[at], columns.evidence[at] = known.learnt_at, known.evidence
    columns.profile[at] = known.profile
    return columns


def _posterior(pages: EpochColumns, estimator: Estimator[Any], row: Ints) -> tuple[Floats, Floats]:
    """Return shapes and rates (days) of the posteriors of change rates."""
    own = estimator.of_url_groups(pages.url_group[row]).steady
    estimate = pages.estimate[row]
    a, b = own.posterior(GammaState(estimate[:, 0], estimate[:, 1]))
    return np.broadcast_to(a, len(row)), np.broadcast_to(b, len(row))


def _renewed(hosts: HostClocks, new: ClockColumns) -> HostClocks:
    """Return the hosts with a clock after some have learnt."""
    has_clock = new.take(new.profile[:, 0] > 0)
    kept = hosts.take(~np.isin(hosts.host_id, new.host_id))
    delay = np.full(len(has_clock), np.nan)
    at = np.flatnonzero(np.isin(has_clock.host_id, hosts.host_id))
    delay[at] = hosts.delay_s[hosts.host_id.searchsorted(has_clock.host_id[at])]
    added = HostClocks(host_id=has_clock.host_id, profile=has_clock.profile, delay_s=delay)
    both = HostClocks.concatenate([kept, added])
    return both.take(np.argsort(both.host_id))


def in_days(at: Any) -> Floats:
    """Return instants as days since 1970."""
    return np.asarray((at - np.datetime64(0, "us")) / DAY)
