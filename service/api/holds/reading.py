"""The facts of holds, read from the store in a few statements."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from math import isfinite
from typing import NamedTuple

import numpy as np

from service.api.assembly import Service
from service.api.holds.facts import (
    ALL_HOSTS,
    OF_GROUP,
    Cap,
    CrawlersNow,
    HostNow,
    LeaseNow,
    PageNow,
    Pause,
    Standstill,
    Turn,
)
from service.api.holds.rules import UNNAMED, is_held_alone
from service.budget.allotments import Terms
from service.budget.day_plans import first_crawls_a_day, in_force
from service.budget.host_days import first_room, on_day, room
from service.budget.room_today import first_spent_until, spent_until
from service.budget.shown import HELD, groups_above, stopped_of
from service.core.division import FIRST_SHARE
from service.core.open_hours import OpenHours
from service.epochs.constraints import CONSTRAINED
from service.leases import due, politeness
from service.leases.turns import HostTurns, n_turns_before
from service.leases.unfinished import UnfinishedPage
from service.model.amounts import CRAWLS
from service.model.arrays import Bools, Floats, instant, moment
from service.model.calendars import HourRules
from service.model.domain import Epoch, Kind, Page
from service.model.outcome_words import is_wall
from service.model.outcomes import Outcome
from service.status.crawler_needs import reader_patience, unasked_since
from service.status.epoch_needs import epoch_late, first_epoch_late
from service.status.facts import PATIENCE
from service.status.slow_hosts import SlowHost, slow_hosts
from service.storage import Transaction
from service.storage.budget.caps import CappedDays
from service.storage.budget.pace import days_since_1970, moment_of
from service.storage.queue.columns import NEVER_FILLED, NO_STATUS, HostQueues
from service.storage.queue.holds import PagePlace

MOST_INCIDENTS = 1_000
"""Maximum number of hosts with an incident that are read."""
DAY_S = 86_400.0
PACED = timedelta(seconds=1)
"""Maximum wait for the income of the budget that holds no page back."""
MOST_BEFORE = 10_000
"""Maximum number of pages before a page that are counted."""


class Around(NamedTuple):
    """A page and its surroundings."""

    page: PageNow
    turn: Turn


def _leads_to_wall(tx: Transaction, page: Page) -> bool:
    """Return whether a page redirects to a wall (`ingest.redirects.walls`)."""
    if page.redirects_to is None or page.redirects_to_url is None:  # it may be deleted
        return False
    if len(tx.shared_targets(np.array([page.redirects_to]))):
        return True
    target = tx.page(page.redirects_to)
    if target.outcome is not Outcome.absent or not target.hops:
        return False
    newest = tx.page_log(target.page_id, 1, kind=Kind.crawl)
    return bool(newest) and is_wall(target.outcome, newest[0].status)


def around_page(
    tx: Transaction,
    service: Service,
    page: Page,
    place: PagePlace,
    now: datetime,
    *,
    unfinished: UnfinishedPage | None,
    status: int | None,
    epoch: Epoch | None,
) -> Around:
    """Return the facts that decide what holds a page now."""
    queue_id, due_at = np.array([place.queue_id]), due.next_crawl_at(page)
    planned_at = None if epoch is None else epoch.started_at
    name = page.host if place.group is None else f"{OF_GROUP}{place.group}"
    host_queue = tx.read_host_queues(queue_id)
    hosts = hosts_now(tx, service, host_queue, [name], now, counts_leases=False)
    (host,) = hosts or [HostNow(name=name)]
    host = by_rules(in_hours(host, page.hours, now), tx.calendars.rules_of(page.host_id))
    lease = None
    if place.expires_at is not None:
        lease = LeaseNow(place.worker or UNNAMED, place.expires_at)
    held = page.held and due_at is None  # a request admits a page
    groups = groups_above(tx.of_host(page.host), page.url) if held else []
    stop = stopped_of(groups)
    idle = held and not any(group.n_in_flight for group in groups)
    of_page = PageNow(
        page=page,
        due_at=due_at,
        in_queue=place.next_at is not None,
        retired=due.retired(page),
        status=status,
        behind_wall=_leads_to_wall(tx, page),
        lease=lease,
        unfinished=unfinished,
        stopped_at=None if stop is None else stop.level.name,
        stop_by_rule=stop is not None and stop.state == HELD,
        stop_forbidden=stop is not None and stop.level.is_forbidden,
        admits_at=_next_fill(tx, service, now) if idle else None,
        planned_at=planned_at,
        all_have_shares=service.plan.objective == CONSTRAINED,
        unit=service.budget.unit,
    )
    alone = Turn(
        now=now,
        host=host,
        crawlers=CrawlersNow(),
        spent_until=budget_spent_until(tx, service, page.cost or 0.0),
        each_s=income_of_crawl_s(service.keeper.terms),
        slow=_slow(tx, service, page, place, epoch),
        standstill=standstill(tx, service, now, planned_at, page.created_at),
    )
    if not held and is_held_alone(of_page, alone):  # the turn of the page decides nothing
        return Around(of_page, alone)
    caps = _caps(tx, service, page, place, name, now)
    n_before, is_least = 0, False
    waits = due_at is not None and due_at <= now and place.expires_at is None
    if waits and not page.feed:  # no other page comes before a feed
        n_before, is_least = _n_before(tx, service, page, place, host_queue, now)
    n_running = int(tx.n_running(queue_id, now)[0]) if host.concurrency else 0
    all_crawlers, own = crawlers_now(tx, service, {place.queue_id: page.host})
    return Around(
        of_page,
        replace(
            alone,
            host=replace(
                host,
                n_running=n_running,
                lease=lease_that_ends_first(tx, place.queue_id, now) if n_running else None,
                cap=next(iter(caps.values()), None),
                n_before=n_before,
                n_before_is_least=is_least,
            ),
            crawlers=own.get(place.queue_id, all_crawlers),
            first_spent_until=_first_spent_until(tx, service, page),
        ),
    )


def _slow(
    tx: Transaction, service: Service, page: Page, place: PagePlace, epoch: Epoch | None
) -> SlowHost | None:
    """Return the host of a page, or its group, if its delay costs much freshness."""
    certificate = None if epoch is None else epoch.certificate
    for slow in slow_hosts(tx, certificate, service.settler.polite.delay_s):
        if slow.host == page.host or (slow.group and slow.group == place.group):
            return slow
    return None


def _caps(
    tx: Transaction, service: Service, page: Page, place: PagePlace, name: str, now: datetime
) -> dict[int, Cap]:
    """Return the caps of a page's host queue and host without room, by host queue."""
    first_share = _first_share(tx, service, page)
    capped = tx.ask_capped(np.array([place.queue_id]))()
    caps = full_caps(capped, {place.queue_id: name}, now, first_share)
    if place.group is not None:
        members = tx.capped_members(np.array([page.host_id]))
        caps |= full_caps(members, {page.host_id: page.host}, now, first_share)
    return caps


def lease_that_ends_first(tx: Transaction, queue_id: int, now: datetime) -> LeaseNow | None:
    """Return the lease on a host queue that ends first; None: none runs."""
    lease = tx.next_to_end(queue_id, now)
    if lease is None:
        return None
    return LeaseNow(lease.worker or UNNAMED, lease.expires_at, lease.leased_at)


def _n_before(
    tx: Transaction,
    service: Service,
    page: Page,
    place: PagePlace,
    queues: HostQueues,
    now: datetime,
) -> tuple[int, bool]:
    """Return how many crawls of its host come before a due page, and whether it may be more."""
    share, first = _default_share(tx, service), page.last_crawl_at is None
    if share is None or not len(queues):
        before = now if place.next_at is None else min(place.next_at, now)
        return tx.n_before(place.queue_id, before, page.page_id, MOST_BEFORE)
    n_own, n_other, is_least = tx.n_before_in_turns(
        page.page_id, place, now, MOST_BEFORE, first=first
    )
    if not first and _first_are_spent(tx, service):
        n_other = 0
    turns = HostTurns.of(queues, share)
    of_queue = {"share": float(turns.share[0]), "credit": float(turns.credit[0])}
    return n_turns_before(n_own, n_other, first=first, **of_queue), is_least


def _next_fill(tx: Transaction, service: Service, now: datetime) -> datetime:
    """Return the time of the next round that fills the queue and admits pages that wait."""
    mark = tx.filled()
    return now if mark == NEVER_FILLED else max(mark.until - service.runner.ahead / 2, now)


def crawlers_now(
    tx: Transaction, service: Service, hosts: Mapping[int, str]
) -> tuple[CrawlersNow, dict[int, CrawlersNow]]:
    """Return the signs of crawlers at all servers, and those of hosts by their host queues.

    Readers of the schedule may come once a day. Crawlers that take leases may ask for other hosts
    only.
    """
    leases, schedule = service.asked.leases(tx), service.asked.schedule(tx)
    signs = [] if leases is None else [(leases.at, leases.until + PATIENCE)]
    if (leased_at := tx.newest_lease()) is not None:
        signs.append((leased_at, leased_at + PATIENCE))
    if schedule is not None:
        signs.append((schedule.at, schedule.at + reader_patience(leases)))
    if not signs:
        return CrawlersNow(), {}
    seen_at, missed_from = (max(times) for times in zip(*signs, strict=True))
    now = tx.now()
    reads = schedule is not None and now - schedule.at < reader_patience(leases)
    if reads or leases is None or now - leases.until >= PATIENCE:
        return CrawlersNow(seen_at, missed_from), {}
    askers, own = tx.askers(sorted(set(hosts.values()))), dict[int, CrawlersNow]()
    for queue_id, host in hosts.items():
        since = unasked_since(now, askers.newest(host, queue_id), askers.since)
        own[queue_id] = CrawlersNow(seen_at, missed_from, host, since)
    return CrawlersNow(seen_at, missed_from), own


def standstill(
    tx: Transaction,
    service: Service,
    now: datetime,
    planned_at: datetime | None,
    first_at: datetime,
) -> Standstill | None:
    """Return the standstill of epochs and of the queue; None: both are in time.

    `planned_at` is the start of the epoch in force, or None; an epoch is then due from `first_at`.
    """
    mark, interval = tx.filled(), service.runner.interval
    if mark != NEVER_FILLED and mark.until <= now:
        return Standstill(mark.until, queue_ended=True, in_server=service.store.embedded)
    due_at = first_at if planned_at is None else planned_at + interval
    patience = epoch_late(interval) - interval
    if planned_at is None:
        patience = first_epoch_late(interval)
    if now - due_at <= patience:
        return None
    return Standstill(due_at, queue_ended=False, in_server=service.store.embedded)


def budget_spent_until(tx: Transaction, service: Service, cost: float = 0.0) -> datetime | None:
    """Return the time until which the budget is spent; None: it has room, or none is set.

    An income that allows the next crawl within `PACED` holds no page back.
    """
    keeper = service.keeper
    until = None if keeper.has_room() else spent_until(tx, keeper.terms, cost)
    return None if until is None or until - tx.now() < PACED else until


def income_of_crawl_s(terms: Terms | None) -> float | None:
    """Return the time in which a budget of crawls has the income of one, seconds."""
    if terms is None or terms.unit != CRAWLS or not terms.budget:
        return None
    return DAY_S / terms.budget


def _first_spent_until(tx: Transaction, service: Service, page: Page) -> datetime | None:
    """Return the time until which first crawls have had their part; None: the page may begin."""
    if page.last_crawl_at is not None or service.keeper.has_room(first=True):
        return None
    return first_spent_until(tx, service.keeper.terms)


def _first_are_spent(tx: Transaction, service: Service) -> bool:
    """Return whether first crawls have had their part of the budget."""
    has_room = service.keeper.has_room(first=True)
    return not has_room and first_spent_until(tx, service.keeper.terms) is not None


def hosts_now(
    tx: Transaction,
    service: Service,
    host_queues: HostQueues,
    names: Sequence[str],
    now: datetime,
    *,
    counts_leases: bool = True,
) -> list[HostNow]:
    """Return host queues without their caps and pages; `names` are nouns for sentences."""
    if not len(host_queues):
        return []
    polite = service.settler.polite
    delay, concurrency = politeness.limits(host_queues, polite)
    n_running = np.zeros(len(host_queues), np.int64)
    if counts_leases and concurrency.any():
        n_running = tx.n_running(host_queues.queue_id, now)
    delay_s: Floats = delay / np.timedelta64(1, "s")
    own = np.where(np.isnan(host_queues.min_delay_s), polite.delay_s, host_queues.min_delay_s)
    of_all = tx.orders().paused_until
    in_incident = set[str]()
    if (host_queues.paused_until > instant(now)).any() and tx.has_incidents():
        in_incident = {host for host, _ in tx.incidents_in_force(now, MOST_INCIDENTS)}
    by_latency = politeness.delays_by_latency(host_queues, polite)
    delayed: Bools = by_latency > np.fmax(own, host_queues.robots_delay_s)
    by_robots: Bools = (host_queues.robots_delay_s > own) & ~delayed
    slowed = politeness.slowed(host_queues, polite)
    hours = dict(tx.calendars.of_queues(host_queues.queue_id, now)) if tx.calendars.in_use else {}
    hosts = [
        HostNow(
            name=name,
            delay_s=float(delay_s[n]),
            by_robots=bool(by_robots[n]),
            latency_s=float(host_queues.latency_s[n]) if slowed[n] else None,
            usual_latency_s=float(host_queues.usual_latency_s[n]) if slowed[n] else 0.0,
            delayed=bool(delayed[n]),
            opens_at=moment(host_queues.ready_at[n]),
            concurrency=int(concurrency[n]),
            n_running=int(n_running[n]),
            pauses=tuple(_pauses(host_queues, n, name, of_all, in_incident)),
        )
        for n, name in enumerate(names)
    ]
    closed = [in_hours(host, hours.get(n), now) for n, host in enumerate(hosts)]
    return [
        by_rules(host, rules_of_queue(tx, queue))
        for host, queue in zip(closed, host_queues.queue_id.tolist(), strict=True)
    ]


def rules_of_queue(tx: Transaction, queue_id: int) -> HourRules:
    """Return the windows and blackouts of a host queue."""
    calendars = tx.calendars
    return calendars.rules_of(queue_id) if queue_id > 0 else calendars.rules_of_group(-queue_id)


def by_rules(host: HostNow, rules: HourRules) -> HostNow:
    """Return a host with the kinds of the rules that close it, if it is closed."""
    if host.closed_until is None:
        return host
    kinds = ["windows"] * bool(rules.windows) + ["blackouts"] * bool(rules.blackouts)
    return replace(host, closed_by=" and ".join(kinds) or "windows")


def in_hours(host: HostNow, hours: OpenHours | str | None, now: datetime) -> HostNow:
    """Return a host with its open hours; None or "": it is always open."""
    if not isinstance(hours, OpenHours):
        return replace(host, closed_until=None, is_never_open=False)
    opens = moment(hours.opening(np.array([instant(now)]))[0])
    return replace(
        host,
        closed_until=opens if opens is not None and opens > now else None,
        is_never_open=not hours.opens_from(instant(now)),
    )


def _pauses(
    host_queues: HostQueues, n: int, name: str, of_all: datetime | None, in_incident: set[str]
) -> Iterator[Pause]:
    """Yield the pause by an operator, that by the site, and that of all hosts."""
    if (until := moment(host_queues.blocked_until[n])) is not None:
        yield Pause(until, "operator", name)
    if (until := moment(host_queues.paused_until[n])) is not None:
        status = int(host_queues.paused_status[n])
        answer = None if status == NO_STATUS else status
        yield Pause(until, "site", name, name in in_incident, answer)
    if of_all is not None:
        yield Pause(of_all, "operator", ALL_HOSTS)


def full_caps(
    capped: CappedDays, names: Mapping[int, str], now: datetime, first_share: float | None = None
) -> dict[int, Cap]:
    """Return the caps that have had their crawls of today, by host queue.

    With `first_share`, the share of first crawls counts too (`budget.host_days.first_room`).
    """
    if not len(capped):
        return {}
    day = int(days_since_1970(now))
    days, until = on_day(capped, day), moment_of(day + 1)
    full: Bools = room(days) < 1
    short = full if first_share is None else full | (first_room(days, first_share) < 1)
    queue_ids, rates = days.queue_id.tolist(), days.max_crawl_rate.tolist()
    return {
        queue_ids[n]: Cap(names[queue_ids[n]], rates[n], until, of_first=not full[n])
        for n in np.flatnonzero(short).tolist()
    }


def _first_share(tx: Transaction, service: Service, page: Page) -> float | None:
    """Return the share of the caps for first crawls; None where it does not bound the page."""
    return _default_share(tx, service) if page.last_crawl_at is None else None


def _default_share(tx: Transaction, service: Service) -> float | None:
    """Return the share of first crawls without one of the host; None where none is in force."""
    if not isfinite(first_crawls_a_day(in_force(tx))):
        return None
    terms = service.keeper.terms
    return FIRST_SHARE if terms is None else terms.first_share
