"""Why a request for leases gets nothing: the due pages within its reach, counted by hold.

Host queues are judged by the same rules as a page (`holds.rules`), each once for all its due pages.
Those that open first are looked at, and all counts are bounded (`storage.queue.holds`).
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple

import numpy as np

from recrawl_client.wire.listing import HeldPages, LeasesExplained
from service.api.assembly import Service
from service.api.holds.facts import OF_GROUP, HostNow, Standstill, Turn
from service.api.holds.hold import NOTHING, Hold
from service.api.holds.reading import (
    budget_spent_until,
    by_rules,
    crawlers_now,
    full_caps,
    hosts_now,
    in_hours,
    income_of_crawl_s,
    lease_that_ends_first,
    standstill,
)
from service.api.holds.standstill import cause, remedy
from service.api.holds.turn import hold_of_budget, hold_of_turn, in_turns
from service.model.amounts import is_money
from service.model.arrays import Ints, moment
from service.model.errors import HostNotFound
from service.model.words import ahead, counted, span
from service.status.facts import PATIENCE
from service.storage import Transaction
from service.storage.queue.columns import LeaseFilter
from service.storage.queue.holds import MOST_QUEUES, MOST_ROWS, MOST_WAITING
from service.storage.queue.reach import MICROSECOND

LONGEST = timedelta(days=3_650)
"""Maximum wait of a host queue that is shown."""
FREE = ("ready", "no_crawler")
"""Holds of pages that the next request for leases gets."""
FREE_GO_ON = "pages whose crawls cost nothing go on"


@dataclass(slots=True)
class Held:
    """Due pages that the same kind of hold keeps."""

    example: Hold
    """The hold of the host queue with most of them."""
    n_pages: int = 0
    n_hosts: int = 0
    until: datetime | None = None
    most: int = 0
    oldest: "Waiting | None" = None
    """Host queue that has been ready for longest; None: the time is not known."""

    def add(self, hold: Hold, n_pages: int, waiting: "Waiting | None" = None) -> None:
        """Add the pages of one host queue."""
        if waiting is not None:
            self.oldest = waiting if self.oldest is None else min(self.oldest, waiting)
        if n_pages > self.most:
            self.example, self.most = hold, n_pages
        self.n_pages, self.n_hosts = self.n_pages + n_pages, self.n_hosts + 1
        ends = [at for at in (self.until, hold.until) if at is not None]
        self.until = min(ends, default=None)


class Waiting(NamedTuple):
    """A host queue that is ready, and since when."""

    since: datetime
    host: str

    def hold(self, now: datetime) -> Hold:
        """Return the hold of its pages, once they have been ready for long."""
        ago = span((now - self.since).total_seconds())
        cause = f"no crawler has taken the first for {ago}"
        remedy = f"see whether a crawler asks for {self.host}"
        return Hold(kind="ready", cause=cause, remedy=remedy)


class Soon(NamedTuple):
    """The next crawls as far as they are known, while no page is due."""

    next_at: datetime | None
    """Earliest crawl of a queued page, by its host alone; None: none is queued."""
    spent: Hold | None
    """Hold of the budget, if it is spent beyond that time; None: it is not."""
    opens_at: datetime | None
    """First opening of closed windows; None: no window is closed."""
    has_pages: bool
    """True if the request may get pages at some time."""


def explain_leases(tx: Transaction, service: Service, of: LeaseFilter) -> LeasesExplained:
    """Return why a request for leases with this filter gets nothing now, or that it gets some."""
    now, queues = tx.now(), tx.next_in_reach(of, MOST_QUEUES)
    each = MOST_ROWS // max(len(queues), 1)
    n_due = tx.n_due_rows(queues.queue_id, now + MICROSECOND, each, of)
    names = _names(tx, queues.queue_id)
    hosts = hosts_now(tx, service, queues, list(names.values()), now)
    if len(hosts) == 1:
        ends_first = lease_that_ends_first(tx, int(queues.queue_id[0]), now)
        hosts = [replace(hosts[0], lease=ends_first)]
    caps = full_caps(tx.ask_capped(queues.queue_id)(), names, now)
    single = {queue: name for queue, name in names.items() if queue > 0}
    all_crawlers, own_crawlers = crawlers_now(tx, service, single)
    turn = Turn(
        now=now,
        host=HostNow(name=""),
        crawlers=all_crawlers,
        spent_until=budget_spent_until(tx, service),
        each_s=income_of_crawl_s(service.keeper.terms),
        standstill=_standstill(tx, service, now),
    )
    held: dict[tuple[str, str | None], Held] = {}
    rows = zip(queues.queue_id.tolist(), hosts, n_due.tolist(), queues.next_at, strict=True)
    for queue_id, host, n, next_at in rows:
        waiting = _waiting(host.name, next_at, now)
        crawlers = own_crawlers.get(queue_id, all_crawlers)
        own = replace(turn, host=replace(host, cap=caps.get(queue_id)), crawlers=crawlers)
        parts = {own.host: n}
        if queue_id < 0 and n and tx.calendars.in_use:
            parts = _by_windows(tx, queue_id, own.host, n, each, of)
        for part, n_part in parts.items():
            for hold, n_pages in _holds_of(replace(own, host=part), n_part, waiting):
                by = hold.by if hold.kind == "host_paused" else None
                held.setdefault((hold.kind, by), Held(hold)).add(hold, n_pages, waiting)
    others = _others(tx, queues.queue_id, now, of)
    ready_at = tx.next_ready_at(of)
    ready_at = None if ready_at is None else max(ready_at, now)
    spent = hold_of_budget(turn, ready_at) if ready_at is not None else None
    free_go_on = spent is not None and is_money(service.budget.unit)
    if spent is not None and free_go_on:
        spent = replace(spent, cause=f"{spent.cause}; {FREE_GO_ON}")
    soon = Soon(ready_at, spent, tx.calendars.next_opening(now), has_pages=_has_pages(tx, of))
    by_size = sorted(held.items(), key=lambda pair: -pair[1].n_pages)
    looked_at_all = len(queues) < MOST_QUEUES and not (n_due >= each).any()
    return LeasesExplained(
        sentence=f"{_sentence(list(held.values()), others, soon, turn)}.",
        n_due=int(n_due.sum()),
        complete=looked_at_all and all(n < MOST_WAITING for n in others.values()),
        next_at=ready_at if spent is None or free_go_on else spent.until,
        holds=[
            HeldPages(
                hold=each.example.kind,
                by=by,
                n_pages=each.n_pages,
                n_hosts=each.n_hosts,
                until=each.until,
                sentence=f"{each.example.sentence}.",
            )
            for (_, by), each in by_size
        ],
        n_leased=others["leased"],
        n_waiting=others["waits"],
        n_unreported=others["unreported"],
    )


def _waiting(host: str, next_at: np.datetime64, now: datetime) -> Waiting | None:
    """Return since when a host queue is ready; None: it is not, or a request came first."""
    since = moment(next_at)
    # the bound of a requested page lies a century earlier
    return Waiting(since, host) if since is not None and now - LONGEST < since < now else None


def _has_pages(tx: Transaction, of: LeaseFilter) -> bool:
    """Return whether there are pages, or hosts that the filter names."""
    if not of.hosts:
        return len(tx.next_page_ids(0, 1)) > 0
    for name in of.hosts:
        with suppress(HostNotFound):
            tx.host(name)
            return True
    return False


def _names(tx: Transaction, queue_id: Ints) -> dict[int, str]:
    """Return a noun for each host queue."""
    named = zip(queue_id.tolist(), tx.queue_names(queue_id), strict=True)
    return {queue: f"{OF_GROUP}{name}" if queue < 0 else name for queue, name in named}


def _by_windows(
    tx: Transaction, queue_id: int, group: HostNow, n_due: int, each: int, of: LeaseFilter
) -> dict[HostNow, int]:
    """Return the numbers of due pages of a group by the windows of their hosts."""
    now, calendars = tx.now(), tx.calendars
    parts, rest = dict[HostNow, int](), n_due
    for rules, hosts in calendars.own_in_group(-queue_id).items():
        names = tx.queue_names(np.array(hosts))
        asked = tuple(name for name in names if not of.hosts or name in of.hosts)
        if not asked:
            continue
        own = replace(of, hosts=asked)
        (n,) = tx.n_due_rows(np.array([queue_id]), now + MICROSECOND, each, own).tolist()
        part = in_hours(replace(group, name=asked[0]), calendars.hours(rules, now), now)
        part = by_rules(part, rules)
        part = replace(part, name=group.name) if part.closed_until is None else part
        parts[part], rest = parts.get(part, 0) + n, rest - n
    of_group = calendars.rules_of_group(-queue_id)
    last = by_rules(in_hours(group, calendars.hours(of_group, now), now), of_group)
    return parts | {last: parts.get(last, 0) + rest}


def _holds_of(turn: Turn, n_due: int, waiting: Waiting | None) -> Iterator[tuple[Hold, int]]:
    """Yield the holds of the due pages of one host queue, and how many pages each keeps."""
    if not n_due:
        return
    hold = hold_of_turn(turn, turn.now)
    if hold.kind == "ready" and waiting is not None and turn.now - waiting.since >= PATIENCE:
        hold = waiting.hold(turn.now)
    if hold.kind not in FREE:
        yield hold, n_due
        return
    n_free = min(turn.host.room or n_due, n_due)
    yield hold, n_free
    if n_free < n_due:
        # without a crawler, the turn of the others never comes either
        yield replace(in_turns(turn.host), remedy=hold.remedy), n_due - n_free


def _others(tx: Transaction, queue_id: Ints, now: datetime, of: LeaseFilter) -> dict[str, int]:
    """Return the numbers of pages within reach that are leased, or not due for now."""
    n_waiting, n_unreported = tx.n_put_off(now, of)
    # hosts without a limit of leases have not been counted
    n_leased = int(tx.n_running(queue_id, now).sum())
    return {"leased": n_leased, "waits": n_waiting, "unreported": n_unreported}


def _standstill(tx: Transaction, service: Service, now: datetime) -> Standstill | None:
    """Return the standstill of epochs and of the queue; None: both are in time."""
    epoch, first_at = tx.epoch_in_force(), now
    if epoch is None:
        for page_id in tx.next_page_ids(0, 1).tolist():
            first_at = tx.page(page_id).created_at
    planned_at = None if epoch is None else epoch.started_at
    return standstill(tx, service, now, planned_at, first_at)


def _sentence(held: list[Held], others: dict[str, int], soon: Soon, turn: Turn) -> str:
    """Return the reason as a sentence without a full stop, which begins with what to do."""
    to_do, reason = _reason(held, others, soon, turn.now)
    still = turn.standstill
    free = any(each.example.kind in FREE for each in held)
    # pages that are due since the end of the queue are in no count
    if still is None or free or not soon.has_pages:
        return f"{to_do}: {reason}"
    is_busy = all(each.example.kind == "host_busy" for each in held)
    if still.queue_ended or (others["waits"] and (to_do == NOTHING or is_busy)):
        to_do = Hold(kind="no_worker", cause="", remedy=remedy(still)).to_do
        return f"{to_do}: {cause(turn)}; {reason}"
    return f"{to_do}: {reason}"


def _reason(held: list[Held], others: dict[str, int], soon: Soon, now: datetime) -> tuple[str, str]:
    """Return what to do, and the reason as a clause."""
    total = sum(each.n_pages for each in held)
    if not total:
        return _none_due(others, soon, now)
    main = max(held, key=lambda each: (each.example.kind in FREE, each.n_pages))
    hold, n = main.example, main.n_pages
    if hold.kind == "ready" and main.oldest and now - main.oldest.since >= PATIENCE:
        waits = main.oldest.hold(now)
        ready = f"{counted(n, 'page')} {'is' if n == 1 else 'are'} ready"
        return waits.to_do, f"{ready}, and {waits.cause}"
    if hold.kind == "ready":
        gets = "is ready, and the next request gets it" if n == 1 else "are ready"
        return hold.to_do, f"{counted(n, 'page')} {gets}"
    if hold.kind == "no_crawler":
        ready = f"{counted(n, 'page')} {'is' if n == 1 else 'are'} ready"
        return hold.to_do, f"{ready}; {hold.cause}"
    pages = f"{n:,} of {counted(total, 'due page')}" if n < total else counted(n, "due page")
    return hold.to_do, f"{pages} {'waits' if n == 1 else 'wait'}, because {hold.cause}"


def _none_due(others: dict[str, int], soon: Soon, now: datetime) -> tuple[str, str]:
    clauses = ["no page within reach is due"]
    if soon.spent is not None:
        clauses.append(soon.spent.cause)
    elif soon.next_at is not None and soon.next_at > now:
        clauses.append(f"the next crawl may begin {ahead(soon.next_at, now)}")
    if soon.opens_at is not None:
        clauses.append(f"the first closed window opens {ahead(soon.opens_at, now)}")
    nouns = {
        "leased": ("lease runs", "leases run"),
        "waits": ("page waits for its first crawl", "pages wait for their first crawl"),
        "unreported": (
            "page waits after leases without a report",
            "pages wait after leases without a report",
        ),
    }
    clauses += [counted(n, *nouns[kind]) for kind, n in others.items() if n]
    if soon.spent is not None:
        return soon.spent.to_do, "; ".join(clauses)
    knows = soon.has_pages or len(clauses) > 1
    return NOTHING if knows else "Register pages, or name other hosts", "; ".join(clauses)
