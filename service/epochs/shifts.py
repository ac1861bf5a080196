"""Shifts of crawls by change hours: rates, better hours, busy hours, and extra crawls. Pure.

A shift becomes part of the urgency, so the due rule does not know it. The next epoch needs the
shifts to find the instants by the crawl rate again.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from service.core.change_hours.best_hours import (
    CONCENTRATION,
    DAY_MINUTES,
    FAST_INTERVAL,
    MAX_SHIFT,
    MOST_INTERVAL,
    PROBE_EXPECTED,
    Masses,
    Planned,
    excess_mass,
    moves,
    probe_delay,
    turns,
)
from service.core.change_hours.busy_hours import changes, pace, paced, passed
from service.core.change_hours.profile import Profiles
from service.core.change_hours.stretches import stretches
from service.core.open_hours import OpenHours
from service.epochs.change_hours import Hours, in_days
from service.epochs.group_hours import HoursInForce, place_groups
from service.epochs.open_shifts import nominal_in_open_time, shifts_in_open_time
from service.epochs.urgency import LastEpoch, bounded, since
from service.epochs.windows import HostWindows
from service.estimation.estimates import RateEstimates
from service.leases.open_due import by_hours
from service.model.arrays import Bools, Codes, Floats, Ints, distinct, places
from service.model.columns import (
    NOT_SHIFTED,
    OUT_OF_TURN,
    CapColumns,
    EpochColumns,
    ShiftColumns,
)
from service.model.domain import Observability

DAY_S = 86_400.0
SOONEST = 0.05
"""Minimum time between crawls, in intervals by the crawl rate."""
PER_WINDOW = 2.0
"""Minimum interval of pages that are shifted, in times between epochs."""
FREQUENT_EVERY = 1.0 / 24.0
"""Maximum time between epochs for pages crawled often, days."""
SHIFTED_AHEAD = 1.5 * MAX_SHIFT
"""Time beyond the next epoch for which better hours are looked for, days."""
BLOCK = 1 << 18
"""Maximum pages whose shifts are computed at a time."""
NO_HOSTS: Ints = np.zeros(0, np.int64)
MOST_PROBED = 4.0
"""Maximum interval of pages with extra crawls, days."""


class Shifted(NamedTuple):
    """(N,) pages after some of their crawls were shifted."""

    urgency: Floats
    shift: Codes
    """As in `ScheduleColumns`."""
    carried: Codes


class Situation(NamedTuple):
    """(N,) pages as an epoch has them before change hours count."""

    pages: EpochColumns
    crawl_rate: Floats
    rate: Floats
    """Crawl rate times urgency, 1/day."""
    change_rate: Floats
    free: Bools
    """True for pages without pings in use, which have been crawled."""
    place: Ints
    """Row of the page's URL group or host among the change hours; -1 without any."""


def exposures(pages: EpochColumns, change_hours: Hours | None, place: Ints) -> Floats | None:
    """Return (N,) operational lengths of last intervals, days; None: the lengths.

    `place` has rows as of `placed`. An interval over busy hours counts as longer. Otherwise the
    changes of a busy hour would seem to be more than expected.
    """
    if change_hours is None or not len(change_hours.in_force.rows):
        return None
    profiles = change_hours.in_force.profiles
    exposure = np.abs(pages.last_interval)
    row = np.flatnonzero(_timed(profiles.weight > 0, place) & (exposure > 0))
    table = changes(profiles)
    for some in _blocks(row):
        end = in_days(pages.last_observed_at[some])
        exposure[some] = passed(table, place[some], end - exposure[some], end)
    return exposure


def shifted(
    pages: EpochColumns,
    estimates: RateEstimates,
    crawl_rate: Floats,
    urgency: Floats,
    change_hours: Hours | None,
    place: Ints,
    caps: CapColumns,
    last: LastEpoch,
    now: np.datetime64,
    windows: HostWindows | None = None,
) -> Shifted:
    """Return the urgency that shifts crawls to better hours, and the shifts.

    `place` has rows as of `placed`. Pages of hosts with a cap have no extra crawls. Those of hosts
    with `windows` are shifted within the windows.
    """
    if change_hours is None:
        still: Codes = np.broadcast_to(np.int16(NOT_SHIFTED), len(pages))
        return Shifted(urgency, still, still)
    still = np.full(len(pages), NOT_SHIFTED, np.int16)
    free = (estimates.ping_rate == 0) & (pages.observability != Observability.complete)
    rate = crawl_rate * urgency
    free &= ~np.isnat(pages.last_observed_at) & (rate > 0)
    before = Situation(pages, crawl_rate, rate, estimates.change_rate, free, place)
    after = Shifted(urgency.copy(), still, still.copy())
    hours = change_hours.in_force
    if len(hours.rows):
        _shift(before, change_hours, hours, last, now, windows, after)
        if windows is not None:  # an opening decides more about such pages than a busy hour
            closes = places(pages.host_id, windows.host_id) >= 0
            before = before._replace(free=before.free & ~closes)
        _follow_busy_hours(before, hours.profiles, last, now, after)
    if len(caps):
        before = before._replace(free=free & ~np.isin(pages.host_id, caps.host_id))
    _probe(before, hours.certain, after)
    return after


def placed(pages: EpochColumns, hours: HoursInForce | None) -> Ints:
    """Return (N,) rows of pages among the change hours; -1 for pages without any.

    A page follows its URL group where that has a row, and its host otherwise.
    """
    if hours is None:
        return places(pages.host_id, NO_HOSTS)
    place = places(pages.host_id, hours.hosts.host_id)
    return place_groups(place, pages.host_id, pages.url_group, hours)


def _timed(has_hours: Bools, place: Ints) -> Bools:
    """Return (N,) which pages follow a row with hours."""
    return np.asarray(np.append(has_hours, False)[place])


def _shift(
    before: Situation,
    change_hours: Hours,
    hours: HoursInForce,
    last: LastEpoch,
    now: np.datetime64,
    windows: HostWindows | None,
    after: Shifted,
) -> None:
    """Shift crawls to better hours.

    The instant by the crawl rate of a page is one interval after that of its last crawl. A page is
    shifted if its interval is at least `PER_WINDOW` times the time between epochs. Otherwise the
    next crawl but one, which the same urgency dates, would be in the same epoch. Crawls beyond
    `SHIFTED_AHEAD` stay at their instants until a later epoch, as do those whose window has passed.
    """
    between = since(last, now).days
    slowest, fastest = 1.0 / MOST_INTERVAL, 1.0 / max(FAST_INTERVAL, PER_WINDOW * between)
    there = before.free & (before.place >= 0)
    row = np.flatnonzero(there & (before.rate >= slowest) & (before.rate <= fastest))
    crawls = np.bincount(before.place[row], before.rate[row], len(hours.rows))
    mass = excess_mass(hours.profiles, 1.0 / CONCENTRATION)
    spread = _spread(hours, mass, crawls.astype(np.float64), change_hours.host_delay_s)
    if (spread != 1.0 / CONCENTRATION).any():
        mass = excess_mass(hours.profiles, spread)
    # crawls of groups without hours are a load on their host, but stay at their instants
    row = row[_timed(np.asarray(mass.any(axis=1)), before.place[row])]
    today = float(in_days(now))
    # the next epoch may be late; later epochs know the change hours better and move the rest
    earliest, latest = today - MAX_SHIFT, today + between + SHIFTED_AHEAD
    if windows is not None:
        host = places(before.pages.host_id[row], windows.host_id)
        among = _Among(before, change_hours.shifts, last, after)
        horizon = _Horizon(mass, spread, today, earliest, latest)
        inside = row[host >= 0]
        for own, some in by_hours(windows.hours[host[host >= 0]]):
            if not own.is_never_open:
                _shift_in_windows(own, among, inside[some], horizon)
        row = row[host < 0]
    for some in _blocks(row):
        step = before.pages.interval_factor[some] / before.rate[some]
        carried = _carried(before.pages, some, change_hours.shifts, last.started_at)
        nominal = in_days(before.pages.last_observed_at[some]) - carried / DAY_MINUTES + step
        soon = np.flatnonzero((nominal >= earliest) & (nominal < latest))
        planned = _planned(before, some[soon], nominal[soon])
        minutes = np.zeros(len(some))
        minutes[soon] = np.rint(moves(mass, planned, spread, today) * DAY_MINUTES)
        _wait(before, some, step + (minutes - carried) / DAY_MINUTES, after.urgency)
        after.shift[some], after.carried[some] = minutes, carried


class _Among(NamedTuple):
    """Pages that are shifted, and where the shifts are written."""

    before: Situation
    shifts: ShiftColumns
    last: LastEpoch
    after: Shifted


class _Horizon(NamedTuple):
    """Excess masses, and the time in which crawls are shifted, days."""

    mass: Masses
    spread: Floats
    today: float
    earliest: float
    latest: float


def _shift_in_windows(hours: OpenHours, among: _Among, row: Ints, horizon: _Horizon) -> None:
    """Shift crawls of hosts with the same windows to better hours in which they are open."""
    before, shifts, last, after = among
    last_at = before.pages.last_observed_at[row]
    step = before.pages.interval_factor[row] / before.rate[row]
    carried = _carried(before.pages, row, shifts, last.started_at)
    open_us, at = nominal_in_open_time(hours, last_at, carried, step)
    nominal = in_days(at)
    soon = np.flatnonzero((nominal >= horizon.earliest) & (nominal < horizon.latest))
    planned = _planned(before, row[soon], nominal[soon])
    minutes = np.zeros(len(row))
    search = planned, open_us[soon], horizon.spread, horizon.today
    minutes[soon] = shifts_in_open_time(hours, horizon.mass, *search)
    wait = hours.step(step) + (minutes - carried) / DAY_MINUTES
    least = hours.step(SOONEST / before.rate[row])
    _wait(before, row, hours.interval(np.maximum(wait, least)), after.urgency)
    after.shift[row], after.carried[row] = minutes, carried


def _planned(before: Situation, row: Ints, nominal: Floats) -> Planned:
    """Return the next crawls of pages by their rates."""
    turn = turns(before.pages.page_id[row], nominal)
    interval = 1.0 / before.rate[row]
    return Planned(before.place[row], nominal, interval, before.change_rate[row], turn)


def _blocks(row: Ints) -> Iterator[Ints]:
    # temporary arrays of one block are reused by the next
    for start in range(0, len(row), BLOCK):
        yield row[start : start + BLOCK]


def _wait(before: Situation, row: Ints, wait: Floats, urgency: Floats) -> None:
    """Set the urgency of pages to wait some days after their last crawl, within their bounds."""
    rate = before.crawl_rate[row]
    least = SOONEST / before.rate[row]
    factor = before.pages.interval_factor[row] / (rate * np.maximum(wait, least))
    urgency[row] = bounded(before.pages, row, rate, factor)


def _carried(
    pages: EpochColumns, row: Ints, shifts: ShiftColumns, since_at: np.datetime64
) -> Floats:
    """Return (K,) shifts of the crawls that began the running intervals, minutes.

    `since_at` is the start of the last epoch. A crawl at that instant came after it.
    """
    if not len(shifts):
        return np.zeros(len(row))
    page_id = pages.page_id[row]
    at = np.minimum(shifts.page_id.searchsorted(page_id), len(shifts) - 1)
    crawled = pages.last_observed_at[row] >= since_at
    both = np.where(crawled, shifts.shift[at], shifts.carried[at])
    in_turn = (shifts.page_id[at] == page_id) & (both != OUT_OF_TURN)
    return np.where(in_turn, both, 0.0)


def _spread(hours: HoursInForce, mass: Masses, crawls: Floats, host_delay_s: float) -> Floats:
    """Return (R,) days over which the crawls of a best hour are spread, within politeness."""
    delay_s = np.nan_to_num(hours.rows.delay_s, nan=host_delay_s)
    host = distinct(hours.rows.host_id).searchsorted(hours.rows.host_id)
    return stretches(mass, host, hours.is_group, crawls, delay_s / DAY_S)


def _follow_busy_hours(
    before: Situation, profiles: Profiles, last: LastEpoch, now: np.datetime64, after: Shifted
) -> None:
    """Crawl pages with many crawls a day more often in the busy hours."""
    # with epochs further apart, the busy hours pass unseen
    if since(last, now).days > FREQUENT_EVERY:
        return
    timed = _timed(profiles.weight > 0, before.place)
    row = np.flatnonzero(before.free & timed & (before.rate > 1.0 / FAST_INTERVAL))
    if not row.size:
        return
    crawled_at = in_days(before.pages.last_observed_at[row])
    step = before.pages.interval_factor[row] / before.rate[row]
    at = paced(pace(profiles), before.place[row], crawled_at, step)
    _wait(before, row, at - crawled_at, after.urgency)
    after.shift[row] = after.carried[row] = OUT_OF_TURN


def _probe(before: Situation, certain: Floats, after: Shifted) -> None:
    """Crawl a few pages that nearly always change again within a day, to see at which hour.

    The next crawl counts from the extra crawl. Pages whose change hours are `certain` have none.
    """
    rate = before.rate
    # change hours gain little for pages with longer intervals
    often = before.free & (before.change_rate > PROBE_EXPECTED * rate) & (rate * MOST_PROBED >= 1)
    row = np.flatnonzero(often)
    place = before.place[row]
    weight = np.append(certain, 0.0)[place]
    crawled_at = in_days(before.pages.last_observed_at[row])
    expected = before.change_rate[row] / rate[row]
    delay = probe_delay(before.pages.page_id[row], crawled_at, weight, expected)
    sooner = delay * rate[row] < before.pages.interval_factor[row]
    row, delay = row[sooner], delay[sooner]
    _wait(before, row, delay, after.urgency)
    after.shift[row] = after.carried[row] = OUT_OF_TURN
