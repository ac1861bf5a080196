"""Holds of due pages by what is around them: host, caps, budget and crawlers. Pure."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from shlex import quote

from service.api.holds.facts import ALL_HOSTS, OF_GROUP, HostNow, LeaseNow, Pause, Turn
from service.api.holds.hold import Hold, first
from service.model.arrays import LATEST
from service.model.pause_words import paused_because
from service.model.words import ahead, counted, every, moment, number, span

LONG_CRAWL = timedelta(minutes=1)
"""Time for which a lease runs before its worker may be gone; for a short lease, half of it."""
MOST_S = 86_400.0 * 365_000
"""Longest wait for a turn that is an instant, seconds."""
LONG = timedelta(days=1)
"""Time until the turn of a page from which an operator may want a shorter delay."""


def hold_of_turn(turn: Turn, due_at: datetime) -> Hold:
    """Return what holds a due page of a host queue whose own rules do not hold it."""
    held = first(question(turn, due_at) for question in OF_TURN)
    return _ready(turn, due_at) if held is None else held


def _host_paused(turn: Turn, _: datetime) -> Hold | None:
    pause = pause_beyond(turn, turn.now)
    return None if pause is None else hold_of_pause(pause, turn)


def pause_beyond(turn: Turn, due_at: datetime) -> Pause | None:
    """Return the pause that ends last, if it ends after now and after a due time."""
    last = max(turn.host.pauses, key=lambda pause: (pause.until, pause.by), default=None)
    return None if last is None or last.until <= max(due_at, turn.now) else last


def _ending(pause: Pause) -> str:
    """Return the command that ends an operator's pause."""
    if pause.of == ALL_HOSTS:
        return "`recrawl resume`"
    if pause.of.startswith(OF_GROUP):
        return "`recrawl hosts resume` and one of its hosts"
    return f"`recrawl hosts resume {pause.of}`"


def hold_of_pause(pause: Pause, turn: Turn) -> Hold:
    """Return the hold of a page whose host is paused."""
    until = _until(pause.until, turn)
    if pause.by == "operator":
        forever = pause.until >= LATEST
        until = "until an operator ends the pause" if forever else until
        cause = f"an operator has paused {pause.of} {until}"
        remedy = f"end the pause by {_ending(pause)} if its pages shall be crawled"
        return Hold(kind="host_paused", cause=cause, remedy=remedy, until=pause.until, by=pause.by)
    if pause.in_incident:
        cause = f"{pause.of} is paused {until}, because most of its pages suddenly show the same"
        return Hold(kind="host_paused", cause=cause, until=pause.until, by=pause.by)
    cause = f"{pause.of} is paused {until}, because it {paused_because(pause.status)}"
    return Hold(kind="host_paused", cause=cause, until=pause.until, by=pause.by)


def hold_of_window(turn: Turn, due_at: datetime) -> Hold | None:
    """Return the hold of a page that is due by the opening of its host's next window."""
    host = turn.host
    until = host.closed_until
    if until is None or until <= turn.now or due_at > until:
        return None
    if host.is_never_open:
        cause = f"no window of {host.name} opens within a year"
        remedy = "change its windows or blackouts by `recrawl hosts set`"
        return Hold(kind="window_closed", cause=cause, remedy=remedy, by=host.name)
    cause = f"window closed {_until(until, turn)}, by the {host.closed_by} of {host.name}"
    return Hold(kind="window_closed", cause=cause, until=until, by=host.name)


def _capped(turn: Turn, _: datetime) -> Hold | None:
    cap = turn.host.cap
    if cap is None or cap.until <= turn.now:
        return None
    what = "first crawls" if cap.of_first else "crawls"
    cause = (
        f"{cap.of} has had its {what} of today by its cap of {number(cap.crawls_a_day)} a day, "
        f"and goes on {ahead(cap.until, turn.now)}"
    )
    return Hold(
        kind="cap",
        cause=cause,
        remedy="raise the cap if more of its pages shall be crawled a day",
        until=cap.until,
        by=cap.of,
    )


def hold_of_budget(turn: Turn, due_at: datetime) -> Hold | None:
    """Return the hold of a page that is due before the budget has room."""
    until = turn.spent_until
    if until is None or until <= max(due_at, turn.now):
        return None
    if until >= LATEST:
        cause = "one crawl of it costs more than the budget of a day"
        return Hold(kind="budget", cause=cause, remedy="raise the budget if it shall be crawled")
    if until < _midnight(turn.now):
        then = "" if turn.each_s is None else f", then one each {span(turn.each_s)}"
        cause = (
            "the budget has spent its income so far; it allows the next crawl "
            f"{ahead(until, turn.now)}{then}"
        )
        remedy = "wait, or raise the budget"
        return Hold(kind="income", cause=cause, remedy=remedy, until=until)
    return Hold(
        kind="budget",
        cause=f"the budget is spent {_until(until, turn)}",
        remedy="wait, or raise the budget",
        until=until,
    )


def _midnight(now: datetime) -> datetime:
    """Return the end of the UTC day."""
    return now.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)


def _first_spent(turn: Turn, _: datetime) -> Hold | None:
    until = turn.first_spent_until
    if until is None or until <= turn.now:
        return None
    return Hold(
        kind="budget",
        cause="first crawls of new pages have had their part of the budget of today, and go on "
        f"{ahead(until, turn.now)}",
        remedy="wait, or raise the budget or RECRAWL_FIRST_SHARE",
        until=until,
    )


def _unasked(turn: Turn, _: datetime) -> Hold | None:
    seen_at, missed_from, host, since = turn.crawlers
    if missed_from is not None and turn.now < missed_from:
        if since is None or turn.host.n_running:
            return None
        cause = f"no crawler has asked for {host} for {span((turn.now - since).total_seconds())}"
        return Hold(kind="no_crawler", cause=cause, remedy=f"start a crawler that asks for {host}")
    asked = "has asked for leases or read the schedule"
    if seen_at is None:
        cause = f"no crawler has ever {asked.removeprefix('has ')}"
    else:
        cause = f"no crawler {asked} for {span((turn.now - seen_at).total_seconds())}"
    return Hold(kind="no_crawler", cause=cause, remedy="start a crawler")


def _busy(turn: Turn, _: datetime) -> Hold | None:
    host = turn.host
    is_full = 0 < host.concurrency <= host.n_running
    if is_full and host.lease is not None and _is_long(host.lease, turn.now):
        return _behind_lease(turn, host.lease)
    if host.n_before:
        return _behind(turn)
    if host.opens_at is not None and host.opens_at > turn.now:
        pace = _pace_of(host) or "with a delay"
        cause = f"{host.name} is crawled {pace}, next {ahead(host.opens_at, turn.now)}"
        return replace(_busy_host(host, cause), until=host.opens_at)
    return _busy_host(host, _full(host)) if is_full else None


def _full(host: HostNow) -> str:
    """Return that as many crawls of a host run as may, as a clause."""
    run = "a crawl" if host.n_running == 1 else counted(host.n_running, "crawl")
    verb = "runs" if host.n_running == 1 else "run"
    return f"{run} of {host.name} {verb}, which is the maximum at a time{_slowness(host)}"


def _is_long(lease: LeaseNow, now: datetime) -> bool:
    """Return whether a lease runs for so long that its worker may be gone."""
    return lease.since is not None and (
        now - lease.since >= min(LONG_CRAWL, (lease.until - lease.since) / 2)
    )


def _behind_lease(turn: Turn, lease: LeaseNow) -> Hold:
    """Return the hold of a page whose host has no room, by a lease that has run for long."""
    host = turn.host
    held_for = "" if lease.since is None else span((turn.now - lease.since).total_seconds())
    ends = f"under a lease that ends {ahead(lease.until, turn.now)}"
    cause = f"{_full(host)}; the worker {lease.worker} has held it for {held_for}, {ends}"
    if host.n_before:
        cause += f"; {_before(host)}"
    until = lease.until + timedelta(seconds=host.delay_s * (1 + host.n_before))
    release = f"`recrawl leases release --worker {quote(lease.worker)}`"
    remedy = f"end its lease by {release} if the worker {lease.worker} is gone"
    return replace(_busy_host(host, cause), until=until, remedy=remedy)


def _before(host: HostNow) -> str:
    """Return how many pages come before one, as a clause."""
    least = "at least " if host.n_before_is_least else ""
    verb = "is" if host.n_before == 1 else "are"
    return f"{least}{counted(host.n_before, 'page')} of {host.name} {verb} before it"


def in_turns(host: HostNow) -> Hold:
    """Return the hold of due pages that come after others of their host."""
    pace = _pace_of(host) or f"with {counted(host.concurrency, 'crawl')} at a time"
    return _busy_host(host, f"{host.name} is crawled {pace}, and others come first")


def _behind(turn: Turn) -> Hold:
    """Return the hold of a page that has others of its host before it."""
    host, pace = turn.host, _pace_of(turn.host)
    cause = _before(host)
    if not pace:
        return _busy_host(host, cause)
    begin = max(host.opens_at or turn.now, turn.now)
    turn_at = begin + timedelta(seconds=min(host.delay_s * host.n_before, MOST_S))
    remedy = ""
    if turn_at - turn.now >= LONG and not host.by_robots and not host.delayed:
        remedy = "lower the delay of the host if its site allows it"
    cause = f"{cause}, {pace}, so its turn is {ahead(turn_at, turn.now)}, or later"
    return replace(_busy_host(host, cause), until=turn_at, remedy=remedy)


def _busy_host(host: HostNow, cause: str) -> Hold:
    return Hold(kind="host_busy", cause=cause, by=host.name, n_before=host.n_before)


def _pace_of(host: HostNow) -> str:
    """Return the pace of a host with a delay, in words; "" without one."""
    if host.delay_s <= 0:
        return ""
    asks = ", as its robots.txt asks" if host.by_robots else ""
    if host.delayed:
        asks = _slowness(host)
    return f"once {every(86_400.0 / host.delay_s)}{asks}"


def _slowness(host: HostNow) -> str:
    """Return why a host is crawled more slowly, as the end of a clause; "" if it is not."""
    if host.latency_s is None:
        return ""
    usual = span(host.usual_latency_s)
    return f" because its answers take {span(host.latency_s)} in place of {usual}"


OF_TURN: tuple[Callable[[Turn, datetime], Hold | None], ...] = (
    _host_paused,
    hold_of_window,
    _capped,
    hold_of_budget,
    _first_spent,
    _unasked,
    _busy,
)
"""Questions about the turn of a due page, in their order."""


def _ready(turn: Turn, due_at: datetime) -> Hold:
    due = "it is due now"
    if due_at < turn.now:
        due = f"it was due {ahead(due_at, turn.now)}"
    return Hold(kind="ready", cause=f"{due}, and the next request for leases gets it")


def _until(at: datetime, turn: Turn) -> str:
    return f"until {moment(at)}, {span((at - turn.now).total_seconds())} from now"
