"""Change hours of hosts in an epoch: what they know, and what the latest crawls teach them.

A host learns from the last crawl of each of its pages, from the dates that these crawls reported,
and from pings. It learns once a day, at an hour of its own, so that an epoch reads and writes few
hosts. A host with pages that are crawled many times a day learns in every epoch. The URL groups of
a host learn with it (`epochs.group_hours`). `epochs.shifts` uses the change hours.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from service.core.budget_factor import Window
from service.core.change_hours.best_hours import MOST_INTERVAL
from service.core.change_hours.evidence import (
    HourEvidence,
    Intervals,
    faded,
    forgotten,
    packed,
    unpacked,
)
from service.core.change_hours.fit import fit
from service.core.change_hours.profile import Profiles
from service.core.estimators.base import Estimator
from service.core.estimators.gamma import Gamma, GammaState
from service.epochs.group_hours import (
    LEAST_EVENTS,
    Events,
    HoursInForce,
    Shown,
    Taught,
    learn_groups,
    renewed,
    taught,
    teaches,
)
from service.epochs.urgency import LastEpoch, since
from service.estimation.ages import at_ages
from service.model.arrays import DAY, Bools, Floats, Ints, days, distinct
from service.model.columns import (
    ChangeHours,
    EpochColumns,
    GroupHours,
    GroupProfiles,
    GroupScreens,
    HostHours,
    ShiftColumns,
)
from service.model.domain import Epoch, Observability
from service.storage import Transaction
from service.storage.epochs.group_hours import NO_PROFILES, NO_RECORDS, NO_SCREENS

LEAST_OBSERVATIONS = 3
"""Crawls of a page before its intervals are evidence."""
DAY_S = 86_400.0
"""Length of a day, seconds."""
LESSON_DAYS = 1.0
"""Time between two lessons of a host, days."""
OFTEN_DAYS = 0.25
"""Interval of pages below which their host learns in every epoch, days."""
GOLDEN = (np.sqrt(5.0) - 1.0) / 2.0
"""The golden ratio, less one."""
PING_PRIOR = 0.5
"""Imaginary pings, and imaginary days, of a page whose pings announce every change (K19 eq 11)."""


class Lesson(NamedTuple):
    """(K,) pages whose last crawl or ping shows something of the hours, in the order of hosts."""

    row: Ints
    """Row of the page."""
    host_id: Ints
    is_ping: Bools
    """True for a page whose pings announce its changes."""

    def where(self, mask: Bools | slice) -> "Lesson":
        """Return the pages of a mask, or of a stretch."""
        return Lesson(self.row[mask], self.host_id[mask], self.is_ping[mask])


class Hours(NamedTuple):
    """Change hours of hosts in an epoch."""

    hosts: HostHours
    """Hosts with change hours."""
    shifts: ShiftColumns
    """Shifts of the last epoch."""
    lesson: Lesson
    """Pages of the hosts that learn in this epoch."""
    learnt: ChangeHours
    """Evidence and profiles of these hosts."""
    host_delay_s: float = 0.0
    """Delay between two crawls of hosts without one of their own, seconds."""
    groups: GroupProfiles = NO_PROFILES
    """URL groups with a profile in force."""
    records: GroupHours = NO_RECORDS
    """URL groups with evidence, of the hosts that learn in this epoch."""
    screens: GroupScreens = NO_SCREENS
    """URL groups without evidence of their own, of these hosts."""
    with_groups: bool = True
    """True if URL groups learn."""

    @property
    def in_force(self) -> HoursInForce:
        """The change hours that pages follow."""
        return HoursInForce.of(self.hosts, self.groups)


def load_hours(
    tx: Transaction,
    pages: EpochColumns,
    last: Epoch | None,
    now: np.datetime64,
    host_delay_s: float = 0.0,
    *,
    with_groups: bool = True,
) -> Hours:
    """Return the change hours of hosts as of the last epoch; few hosts are read in full."""
    events = lesson(pages, since(LastEpoch.of(last), now), now)
    hosts, groups = tx.host_hours(), tx.group_profiles() if with_groups else NO_PROFILES
    any_hours = len(hosts) or len(groups)
    shifts = tx.shifts(last.epoch) if last and any_hours else ShiftColumns.empty()
    host_id = distinct(events.host_id)
    hours = Hours(hosts, shifts, events, tx.change_hours(host_id), host_delay_s, groups)
    if not with_groups:
        return hours._replace(with_groups=False)
    return hours._replace(records=tx.group_hours(host_id), screens=tx.group_screens(host_id))


# -- learning


def lesson(pages: EpochColumns, window: Window, now: np.datetime64) -> Lesson:
    """Return the pages that show something to the hosts that learn now.

    `window` is the time since the last epoch. A host learns in the epoch after its hour of the day,
    and whenever a page was crawled twice within `OFTEN_DAYS`.
    """
    complete = pages.observability == Observability.complete
    lately = now - pages.last_observed_at < _span(window.start + LESSON_DAYS)
    row = np.flatnonzero(np.where(complete, pages.n_pings > 0, lately))
    age, interval = days(now - pages.last_observed_at[row]), np.abs(pages.last_interval[row])
    complete = complete[row]
    crawled = (age >= window.end) & (age < window.start + LESSON_DAYS)
    crawled &= (interval > 0) & (interval <= MOST_INTERVAL) & (pages.importance[row] > 0)
    # the change rate of a page is unknown at first, and with it what an interval shows
    crawled &= pages.n_observations[row] >= LEAST_OBSERVATIONS
    often = crawled & (age < window.start) & (interval < OFTEN_DAYS) & ~complete
    host_id = pages.host_id[row]
    learns = _turn_came(host_id, now, window.days)
    learns |= np.isin(host_id, distinct(host_id[often]))
    row = row[learns & (complete | crawled)]
    row = row[np.argsort(pages.host_id[row], kind="stable")]
    return Lesson(row, pages.host_id[row], pages.observability[row] == Observability.complete)


def _span(length: float) -> np.timedelta64:
    """Return a time span of some days, rounded up to whole seconds."""
    return np.timedelta64(math.ceil(length * DAY_S), "s")


def _turn_came(host_id: Ints, now: np.datetime64, passed: float) -> Bools:
    """Return whether the hours of hosts lie within the last days."""
    # multiples of the golden ratio spread the hours of lessons evenly over the day
    return np.asarray((in_days(now) - host_id * GOLDEN) % 1.0 < passed)


def learn_hours(
    pages: EpochColumns,
    estimator: Estimator[Any],
    change_hours: Hours,
    last: Epoch | None,
    now: np.datetime64,
) -> Hours:
    """Return the change hours after the hosts of the lesson have learnt.

    A crawl or a ping that a host has learnt from does not count again. Hosts with less than
    `LEAST_EVENTS` a day learn nothing. Nor do hosts that learnt at this time, in an attempt of this
    epoch that was lost. All numbers are as stored, so that both attempts have the same change
    hours.
    """
    events, window = change_hours.lesson, since(LastEpoch.of(last), now)
    hosts = _of_hosts(distinct(events.host_id), change_hours.learnt, now)
    host = hosts.host_id.searchsorted(events.host_id)
    late = np.timedelta64(round(window.end * DAY_S), "s")
    at = np.where(
        events.is_ping, pages.last_ping_at[events.row], pages.last_observed_at[events.row]
    )
    new = at >= (hosts.learnt_at - late)[host]
    passed = days(now - hosts.learnt_at)
    n_new = np.bincount(host[new], minlength=len(hosts))
    watched = np.minimum(passed, window.days + LESSON_DAYS)  # the lesson has no older crawls
    active = (passed > 0) & (n_new >= LEAST_EVENTS * watched)
    counts = (new | events.is_ping) & active[host]
    host, events = (np.cumsum(active) - 1)[host[counts]], events.where(counts)
    hosts, passed = hosts.take(active), passed[active]
    evidence = faded(unpacked(hosts.evidence), passed)
    profiles = Profiles(hosts.profile[:, 1:], hosts.profile[:, 0])
    shown = _shown(pages, estimator, events, host, in_days(hosts.learnt_at), now)
    records, screens = change_hours.records, change_hours.screens
    records = records.where(np.isin(records.host_id, hosts.host_id))
    screens = screens.where(np.isin(screens.host_id, hosts.host_id))
    crawls = Events(host, pages.url_group[events.row], pages.page_id[events.row], shown)
    shown = shown.take(teaches(crawls, hosts.host_id, records))
    evidence, before = forgotten(taught(evidence, profiles, shown)), profiles
    profiles = fit(evidence, profiles)
    watched = watched[active]
    of_hosts = Taught(hosts.host_id, passed, watched, before, evidence, profiles)
    if change_hours.with_groups:
        records, screens = learn_groups(crawls, of_hosts, records, screens, now)
    learnt = ChangeHours(
        host_id=hosts.host_id,
        learnt_at=np.full(len(hosts), now),
        evidence=packed(evidence).astype(np.float64),
        # rounded as the store does, so that a second attempt of the epoch has the same change hours
        profile=np.column_stack((profiles.weight, profiles.coefficients)).astype("f4").astype("f8"),
    )
    groups = renewed(change_hours.groups, learnt, records, change_hours.hosts)
    return change_hours._replace(
        hosts=_renewed(change_hours.hosts, learnt),
        groups=groups,
        learnt=learnt,
        records=records,
        screens=screens,
    )


def _shown(
    pages: EpochColumns,
    estimator: Estimator[Any],
    events: Lesson,
    host: Ints,
    learnt_at: Floats,
    now: np.datetime64,
) -> Shown:
    """Return the intervals of crawls, those after a reported date, and those of pings.

    A date that contradicts the result of its crawl is ignored.
    """
    row, ping = events.row, np.flatnonzero(events.is_ping)
    end, age = in_days(pages.last_observed_at[row]), pages.last_age[row]
    start, changed = end - np.abs(pages.last_interval[row]), pages.last_interval[row] > 0
    a, b = _posterior(pages, estimator, row)
    agrees = ~np.isnan(age) & ((age < end - start) == changed)
    changed_at = np.where(agrees & changed, end - age, np.nan)
    start[ping], end[ping] = np.minimum(learnt_at[host[ping]], in_days(now)), in_days(now)
    a[ping], b[ping] = _posterior_of_pings(pages.take(row[ping]), now)
    ping_at = np.minimum(in_days(pages.last_ping_at[row[ping]]), end[ping])
    changed_at[ping] = np.where(ping_at > start[ping], ping_at, np.nan)
    intervals = Intervals(host, np.fmax(start, changed_at), end, a, b)
    return Shown(intervals, changed, agrees | events.is_ping, changed_at)


def _posterior_of_pings(pages: EpochColumns, now: np.datetime64) -> tuple[Floats, Floats]:
    """Return shapes and rates (days) of the posteriors of changes that pings announce."""
    counted = np.maximum(days(now - pages.pings_since), 0.0)
    return np.asarray(pages.n_pings + PING_PRIOR, np.float64), counted + PING_PRIOR


def _of_hosts(host_id: Ints, stored: ChangeHours, now: np.datetime64) -> ChangeHours:
    """Return the evidence of hosts; a host that is not known has none since a day ago.

    A host that has learnt after now, by a clock that was set back, counts as a day ago.
    """
    n, flat = len(host_id), Profiles.flat(1)
    columns = ChangeHours(
        host_id=host_id,
        learnt_at=np.full(n, now - DAY),
        evidence=packed(HourEvidence.none(n)).astype(np.float64),
        profile=np.tile(np.append(flat.weight, flat.coefficients), (n, 1)),
    )
    at = host_id.searchsorted(stored.host_id)
    columns.learnt_at[at] = np.where(stored.learnt_at > now, now - DAY, stored.learnt_at)
    columns.evidence[at] = stored.evidence
    columns.profile[at] = stored.profile
    return columns


def _posterior(pages: EpochColumns, estimator: Estimator[Any], row: Ints) -> tuple[Floats, Floats]:
    """Return shapes and rates (days) of the posteriors of change rates."""
    of_pages = estimator.of_url_groups(pages.url_group[row])
    if estimator.profile is not None:
        some = pages.take(row)
        of_pages = at_ages(of_pages.of_ages(None), some, some.last_observed_at)
    own = of_pages.steady
    if not isinstance(own, Gamma):
        raise TypeError(f"{type(estimator).__name__} has no posterior; switch change hours off")
    estimate = pages.estimate[row]
    posterior = own.posterior(GammaState(estimate[:, 0], estimate[:, 1]))
    a, b = (np.array(np.broadcast_to(column, len(row))) for column in posterior)
    return a, b


def _renewed(hosts: HostHours, new: ChangeHours) -> HostHours:
    """Return the hosts with change hours after some have learnt."""
    has_hours = new.take(new.profile[:, 0] > 0)
    kept = hosts.take(~np.isin(hosts.host_id, new.host_id))
    delay = np.full(len(has_hours), np.nan)
    at = np.flatnonzero(np.isin(has_hours.host_id, hosts.host_id))
    delay[at] = hosts.delay_s[hosts.host_id.searchsorted(has_hours.host_id[at])]
    added = HostHours(host_id=has_hours.host_id, profile=has_hours.profile, delay_s=delay)
    both = HostHours.concatenate([kept, added])
    return both.take(np.argsort(both.host_id))


def in_days(at: Any) -> Floats:
    """Return instants as days since 1970."""
    return np.asarray((at - np.datetime64(0, "us")) / DAY)
