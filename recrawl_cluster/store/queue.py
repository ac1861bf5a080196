"""The queue, leases, hosts and groups over several databases.

A host, its group and its queue live in one database. A transaction leases from the one database
whose host queues have been ready longest; "the most overdue first" holds within it.
"""

from abc import abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import fields
from datetime import datetime
from typing import Any

import numpy as np
from typing_extensions import override

from recrawl_cluster.store.database import ShardTransaction
from recrawl_cluster.store.routing import (
    Routing,
    Share,
    aligned,
    ascending,
    by_column,
    by_id,
    by_ids,
    joined,
    nothing,
    on_all,
    on_range,
)
from recrawl_cluster.store.shard_map import SHIFT
from service.model.arrays import Instants, Ints, is_among
from service.model.calendars import StoredRules
from service.model.domain import Host, HostGroup, HostPages
from service.model.errors import GroupDivided, GroupNotFound, StoreUnavailable
from service.model.incidents import HostIncidents, Incident
from service.storage.budget.caps import CappedDays
from service.storage.queue.answers import LeaseAnswers
from service.storage.queue.columns import (
    ALL_PAGES,
    FillMark,
    HostQueues,
    LeaseFilter,
    LeaseTokens,
    QueueCensus,
    QueuedPages,
)
from service.storage.queue.holds import MOST_QUEUES
from service.storage.queue.signs import PausedQueue, ReturnedPages
from service.storage.queue.unfinished import WorkerCounts, WorkerLeases


def all_waiting(_: Sequence[Share], results: Sequence[Callable[[], Ints]]) -> Callable[[], Ints]:
    """Return the function that returns the pages of all databases, ascending."""
    return lambda: np.sort(np.concatenate([ask() for ask in results]))


def all_capped(
    shares: Sequence[Share], results: Sequence[Callable[[], CappedDays]]
) -> Callable[[], CappedDays]:
    """Return the function that returns the host queues of all databases, ascending."""

    def read() -> CappedDays:
        whole: CappedDays = ascending(shares, [ask() for ask in results])
        return whole

    return read


def joined_pairs(_: Sequence[Share], results: Sequence[Any]) -> Any:
    """Return pairs of arrays, each of the two one after the other."""
    return tuple(joined(parts) for parts in zip(*results, strict=True))


class ShardedQueue(Routing):
    """The statements on the queue and on leases."""

    leasing: ShardTransaction | None = None
    """The database that this transaction leases from; None before `ready`."""

    hosts_of = by_ids("hosts_of", aligned)
    due_columns = by_ids("due_columns", aligned)
    due_block = on_range("due_block", ascending)
    waiting = on_range("waiting", ascending)
    enqueue = by_column("enqueue", ascending)
    lock_pages = by_ids("lock_pages", aligned)
    requeue = by_column("requeue")
    set_filled = on_all("set_filled")

    @override
    def filled(self) -> FillMark:
        marks = [tx.filled() for tx in self.every()]
        begins = [mark.at for mark in marks if mark.at is not None]
        return FillMark(
            min(mark.epoch for mark in marks),
            min(mark.until for mark in marks),
            min(begins) if len(begins) == len(marks) else None,
        )

    lower_host_queues = by_column("lower_host_queues", column="queue_id")
    lock_reported = by_ids("lock_reported", ascending)
    save_host_queues = by_column("save_host_queues", column="queue_id")
    running = by_ids("running", aligned, rowwise=True)
    lease = by_column("lease")
    lock_leases = by_column("lock_leases", aligned)
    extend_lease = by_id("extend_lease")
    last_leases = by_ids("last_leases", ascending)
    save_unfinished = by_column("save_unfinished")
    ask_waiting = by_ids("ask_waiting", all_waiting)
    forget_unfinished = by_ids("forget_unfinished", nothing)
    lift_waits = by_ids("lift_waits", nothing)
    ask_capped = by_ids("ask_capped", all_capped)
    capped_members = by_ids("capped_members", ascending)
    save_capped = by_column("save_capped", column="queue_id")
    page_place = by_id("page_place")
    read_host_queues = by_ids("read_host_queues", ascending)
    n_due_rows = by_ids("n_due_rows", aligned)
    n_before = by_id("n_before")
    n_before_in_turns = by_id("n_before_in_turns")
    next_to_end = by_id("next_to_end")
    n_running = by_ids("n_running", aligned)
    lease_ends = by_ids("lease_ends", joined_pairs)
    first_rows = by_ids("first_rows", aligned)

    @override
    def next_in_reach(self, of: LeaseFilter = ALL_PAGES, limit: int = MOST_QUEUES) -> HostQueues:
        whole: HostQueues = ascending(
            (), [tx.next_in_reach(of, limit) for tx in self.answering(of)]
        )
        first = np.sort(np.argsort(whole.next_at, kind="stable")[:limit])
        return whole.take(first)

    @override
    def queue_names(self, queue_id: Ints) -> list[str]:
        names = [""] * len(queue_id)
        for tx, rows in self.split(queue_id):
            places = np.arange(len(queue_id))[rows].tolist()
            for place, name in zip(places, tx.queue_names(queue_id[rows]), strict=True):
                names[place] = name
        return names

    @override
    def n_put_off(self, now: datetime, of: LeaseFilter = ALL_PAGES) -> tuple[int, int]:
        held, unreported = zip(*(tx.n_put_off(now, of) for tx in self.answering(of)), strict=True)
        return sum(held), sum(unreported)

    @override
    def newest_lease(self) -> datetime | None:
        newest = [tx.newest_lease() for tx in self.answering()]
        return max((at for at in newest if at is not None), default=None)

    @override
    def leases_of(self, worker: str, after: int, now: datetime) -> tuple[WorkerLeases, int | None]:
        for span in self.spans(after):
            leases, place = span.tx.leases_of(worker, span.after, now)
            here = leases.tokens.page_id <= span.last
            urls = [url for url, is_here in zip(leases.url, here.tolist(), strict=True) if is_here]
            if place is None or place >= span.last:
                place = None if span.is_end else span.last
            return WorkerLeases(leases.tokens.where(here), urls), place
        return WorkerLeases(LeaseTokens.empty(), []), None

    @override
    def workers(self, now: datetime, limit: int) -> list[WorkerCounts]:
        every = [counts for tx in self.answering() for counts in tx.workers(now, limit)]
        sums: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for worker, *counts in every:
            sums[worker].update(dict(zip(WorkerCounts._fields[1:], counts, strict=True)))
        merged = [WorkerCounts(worker, **own) for worker, own in sums.items()]
        return sorted(merged, key=lambda each: (-each.n_lost, each.worker))[:limit]

    @override
    def leases_end(self) -> datetime | None:
        ends = [tx.leases_end() for tx in self.answering()]
        return max((end for end in ends if end is not None), default=None)

    @override
    def incidents_in_force(self, now: datetime, limit: int) -> list[tuple[str, Incident]]:
        every = [each for tx in self.answering() for each in tx.incidents_in_force(now, limit)]
        return sorted(every, key=lambda each: (-each[1].n_pages, each[0]))[:limit]

    @override
    def pauses(self, now: datetime, limit: int) -> list[PausedQueue]:
        every = [pause for tx in self.answering() for pause in tx.pauses(now, limit)]
        every.sort(key=lambda pause: (pause.n_failures, pause.until), reverse=True)
        return every[:limit]

    @override
    def lost_at(self, worker: str, now: datetime, limit: int) -> Instants:
        every = [tx.lost_at(worker, now, limit) for tx in self.answering()]
        return np.sort(np.concatenate(every))[::-1][:limit]

    @override
    def returned_again(self, limit: int) -> list[ReturnedPages]:
        of: dict[str, list[ReturnedPages]] = defaultdict(list)
        for tx in self.answering():
            for each in tx.returned_again(limit):
                of[each.worker].append(each)
        every = [
            ReturnedPages(worker, sum(each.n for each in some), min(each.since for each in some))
            for worker, some in of.items()
        ]
        return sorted(every, key=lambda each: (-each.n, each.worker))[:limit]

    @override
    def ready(
        self,
        now: datetime,
        n_host_queues: int,
        n_rows: int,
        of: LeaseFilter = ALL_PAGES,
        *,
        wait: bool = True,
    ) -> tuple[HostQueues, QueuedPages]:
        times = [(tx.next_ready_at(of), n, tx) for n, tx in enumerate(self.answering(of))]
        for _, _, tx in sorted((t, n, tx) for t, n, tx in times if t is not None and t <= now):
            self.leasing = tx
            host_queues, rows = tx.ready(now, n_host_queues, n_rows, of, wait=wait)
            if len(host_queues):
                return host_queues, rows
        return HostQueues.empty(), QueuedPages.empty()

    @override
    def next_ready_at(self, of: LeaseFilter = ALL_PAGES) -> datetime | None:
        times = [tx.next_ready_at(of) for tx in self.answering(of)]
        return min((at for at in times if at is not None), default=None)

    @override
    def ready_since(self) -> datetime | None:
        times = [tx.ready_since() for tx in self.answering()]
        return min((at for at in times if at is not None), default=None)

    @override
    def oldest_snapshot(self) -> datetime | None:
        times = [tx.oldest_snapshot() for tx in self.answering()]
        return min((at for at in times if at is not None), default=None)

    def answering(self, of: LeaseFilter = ALL_PAGES) -> list[ShardTransaction]:
        """Return the transactions on the databases that may have pages of a filter, and answer.

        Raise the outage if none answers.
        """
        position: Iterable[int] = range(len(self.shard_map.databases))
        if of.hosts:
            hosts = np.array(of.hosts, object)
            position = sorted(set(self.shard_map.databases_of_hosts(hosts).tolist()))
        return self.those_that_answer(position)

    def those_that_answer(self, position: Iterable[int]) -> list[ShardTransaction]:
        """Return the transactions on those of these databases that answer; raise if none does."""
        answering: list[ShardTransaction] = []
        outage: StoreUnavailable | None = None
        for n in position:
            try:
                with self.named(n):
                    tx = self.on(n)
                    tx.number_in_force()  # a database that is away shows it at the first answer
                answering.append(tx)
            except StoreUnavailable as error:
                self.give_up(n)
                outage = error
        if outage is not None and not answering:
            raise outage
        return answering

    @abstractmethod
    def named(self, position: int) -> AbstractContextManager[None]:
        """Return a block that raises the driver's errors as outages of a database."""

    @abstractmethod
    def give_up(self, position: int) -> None:
        """Roll back the transaction on a database that does not answer."""

    @override
    def next_host_queues(self, after: int, limit: int) -> HostQueues:
        parts = [tx.next_host_queues(after, limit) for tx in self.every()]
        whole: HostQueues = ascending((), parts)
        return whole.take(slice(limit))

    @override
    def queue_census(self, now: datetime) -> QueueCensus:
        each = [tx.queue_census(now) for tx in self.every()]
        names = [field.name for field in fields(QueueCensus)]
        return QueueCensus(**{n: sum(getattr(census, n) for census in each) for n in names})

    # -- answers to lease requests, in the database of the leases

    @override
    def lease_answers(self, key: Ints) -> Iterable[tuple[int, int, str]]:
        return [row for tx in self.answering() for row in tx.lease_answers(key)]

    @override
    def add_lease_answers(self, answers: LeaseAnswers) -> None:
        (self.leasing or self.coordinator).add_lease_answers(answers)

    @override
    def drop_lease_answers(self, now: datetime) -> None:
        for tx in self.answering():
            tx.drop_lease_answers(now)


class ShardedHosts(Routing):
    """The statements on hosts, their incidents, and groups."""

    save_incidents = by_column("save_incidents", column="host_id")
    drop_incidents = by_ids("drop_incidents", nothing)
    crawled_between = by_id("crawled_between")
    gone_since = by_id("gone_since")
    incident_of = by_id("incident_of")
    forget_incidents = on_all("forget_incidents")

    @override
    def has_incidents(self) -> bool:
        # the databases of the pages whose states are locked, else all
        return any(tx.has_incidents() for tx in self.opened or self.every())

    @override
    def lock_incidents(self, host_id: Ints, suspected: Ints) -> HostIncidents:
        shares = self.split(host_id)
        parts = [
            tx.lock_incidents(own, suspected[is_among(suspected, own)])
            for tx, own in ((tx, host_id[rows]) for tx, rows in shares)
        ]
        locked: HostIncidents = ascending(shares, parts)
        return locked

    @override
    def hosts(self, after: int, limit: int) -> list[Host]:
        hosts: list[Host] = []
        for span in self.spans(after):
            some = span.tx.hosts(span.after, limit - len(hosts))
            hosts += [host for host in some if host.host_id <= span.last]
            if len(hosts) >= limit:
                break
        return hosts

    @override
    def host(self, host: str) -> Host:
        return self.of_host(host).host(host)

    @override
    def group(self, group: str) -> HostGroup:
        return self._with_group(group).group(group)

    def _with_group(self, group: str) -> ShardTransaction:
        """Return the transaction on the database of a group; of an unknown one the coordinator."""
        for tx in self.whole():
            with suppress(GroupNotFound):
                tx.group(group)
                return tx
        return self.coordinator

    @override
    def host_pages(self, host: Host, now: datetime) -> HostPages:
        return self.of(host.host_id).host_pages(host, now)

    members = by_id("members")
    member_ids = by_id("member_ids")

    @override
    def host_ids(self, names: Sequence[str]) -> Ints:
        hosts = np.array(names, object)
        shares = self.split_hosts(hosts)
        ids: Ints = aligned(shares, [tx.host_ids(hosts[rows].tolist()) for tx, rows in shares])
        return ids

    @override
    def group_id(self, group: str, near: str | None = None) -> int:
        with suppress(GroupNotFound):
            return self.group(group).group_id
        for tx in self.whole():  # each until it commits, so that no other database adds it too
            tx.hold_settings(f"new group {group}")
        with suppress(GroupNotFound):
            return self.group(group).group_id
        return self.of_host(group if near is None else near).group_id(group, near)

    @override
    def lock_hosts(self, host_id: Ints) -> Ints:
        shares = self.split(host_id)
        parts = [tx.lock_hosts(host_id[rows]) for tx, rows in shares]
        whole: Ints = joined(parts)
        return aligned(shares, parts) if len(whole) == len(host_id) else whole

    @override
    def move_hosts(self, host_id: Ints, queue_id: Ints) -> Ints:
        divided = np.flatnonzero((host_id >> SHIFT) != (np.abs(queue_id) >> SHIFT))
        if len(divided):
            host, queue = (int(ids[divided[0]]) for ids in (host_id, queue_id))
            name = self.of(host).host_names(np.array([host]))[host]
            raise GroupDivided(
                f"{name} is in logical shard {host >> SHIFT}, its group in {-queue >> SHIFT}; "
                "name the host under [exceptions] of RECRAWL_CLUSTER before its first page"
            )
        shares = self.split(host_id)
        parts = [tx.move_hosts(host_id[rows], queue_id[rows]) for tx, rows in shares]
        moved: Ints = ascending(shares, parts)
        return moved

    lock_host_queues = by_ids("lock_host_queues", ascending)
    robots_delays = by_ids("robots_delays", joined_pairs)
    save_settings = by_column("save_settings", column="queue_id")
    save_blocks = by_column("save_blocks", column="queue_id")
    save_cap = by_id("save_cap")
    save_hours = by_id("save_hours")
    save_first_share = by_id("save_first_share")
    delete_group = by_id("delete_group")
    hold_hosts = on_all("hold_hosts")

    @override
    def stored_rules(self) -> StoredRules:
        parts = [tx.stored_rules() for tx in self.every()]
        of_queue = {queue: rules for part in parts for queue, rules in part.of_queue.items()}
        return StoredRules(of_queue, {h: g for part in parts for h, g in part.group_of.items()})

    @override
    def any_latency_factor(self) -> bool:
        return any(tx.any_latency_factor() for tx in self.opened or self.every())

    @override
    def delete_host(self, host: Host) -> None:
        self.of(host.host_id).delete_host(host)

    @override
    def groups(self, after: int, limit: int) -> list[HostGroup]:
        every = [group for tx in self.whole() for group in tx.groups(after, limit)]
        return sorted(every, key=lambda group: group.group_id)[:limit]
