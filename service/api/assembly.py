"""The parts that all routes share, assembled from the settings."""

import asyncio
import gc
import secrets
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property, partial
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import numpy as np
from anyio import CapacityLimiter, fail_after, to_thread
from fastapi import Depends, Request

from service.access.gate import Gate
from service.api.requests.bodies import Body, read_body
from service.api.requests.lease_calls import CallFlush, LeaseCalls, batched_calls
from service.api.requests.meter import BODIES_AT_ONCE, BodiesInWork
from service.api.requests.posts import PostRecorder, SmallPosts
from service.api.waiting import LeaseWaiters
from service.batching.batcher import Batcher
from service.batching.divided import SeveralBatchers
from service.batching.registrations import Registrations, batched_registrations
from service.batching.reports import CrawlReports, PingReports, Recorder, batched
from service.budget.in_force import BudgetInForce
from service.budget.keeper import Keeper
from service.budget.spending import adopt_pace
from service.connectors.indexnow import looks
from service.connectors.indexnow_keys import KeyChecks
from service.connectors.renewals import Renewer
from service.epochs.plan import Plan
from service.epochs.run import Runner
from service.epochs.watch import Watch
from service.epochs.what_if import WhatIf
from service.estimation.rules import InForce
from service.events.courier import Courier
from service.events.watching import FeedWatch
from service.history.savings_kept import SavingsReader
from service.history.uniform import means_of
from service.leases.settle import LeaseSettler
from service.model.errors import OUTAGES
from service.runtime.access import open_gate
from service.runtime.bootstrap import opened, started_tracing
from service.runtime.metrics import Monitor, Telemetry
from service.runtime.settings import Settings
from service.runtime.siblings import Siblings
from service.status.asked import LastAsked
from service.status.state import StateReader
from service.storage import Store
from service.storage.budget.orders import Orders
from service.storage.clock import Clock
from service.storage.postgres.connections import request_deadlines
from service.transfer.archiving import Archivist

if TYPE_CHECKING:
    from service.runtime.tracing import Tracing

WITHIN_S = 1.5
"""Maximum time of one check, seconds."""
COUNT_WITHIN_S = 0.25
"""Maximum time that a scrape waits for the queue to be counted, seconds."""

ResultT = TypeVar("ResultT")


class BoundedCheck:
    """A check that runs in one thread at a time, apart from the threads of requests."""

    def __init__(self, within_s: float = WITHIN_S) -> None:
        self.within_s = within_s

    @cached_property
    def limiter(self) -> CapacityLimiter:
        """Limit of one thread; created on first use, because it belongs to an event loop."""
        return CapacityLimiter(1)

    async def run(self, check: Callable[[], ResultT]) -> ResultT:
        """Return the result of a check; raise `TimeoutError` after `within_s`.

        The thread then runs on to its own limits, and no other check starts before its end.
        """
        with fail_after(self.within_s):
            return await to_thread.run_sync(check, limiter=self.limiter, abandon_on_cancel=True)


FLUSHES = ("record posts", "record crawls", "record pings", "register pages", "lease")
"""Names of the spans of batchers, in the order of `Service.batchers`."""
MAX_THREADS = 24
"""Maximum number of requests in threads.

A store has ten connections more. This avoids that the writer of a batcher waits for one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Monitored:
    """The parts of a process that the routes of health and metrics use."""

    store: Store
    gate: Gate
    """The keys and tokens that the process accepts."""
    monitor: Monitor
    key_checks: KeyChecks | None = None
    """Checks of the keys of sites; None: IndexNow needs an API key."""
    incarnation: Callable[[], str] = str
    """Name of the database's incarnation, as far as this process knows it."""
    readiness: BoundedCheck = field(default_factory=BoundedCheck)
    scraping: BoundedCheck = field(default_factory=BoundedCheck)
    counting: BoundedCheck = field(default_factory=lambda: BoundedCheck(COUNT_WITHIN_S))


@dataclass(frozen=True, slots=True, kw_only=True)
class Service(Monitored):
    """The parts that routes use, shared by all threads."""

    rules: InForce
    small_posts: SmallPosts
    crawl_reports: CrawlReports
    ping_reports: PingReports
    registrations: Registrations
    lease_calls: LeaseCalls
    keeper: Keeper
    """The allotment of the budget that this server holds."""
    asked: LastAsked
    """The last requests of crawlers at this server."""
    state: StateReader
    settler: LeaseSettler
    lease_ttl: timedelta
    budget: BudgetInForce
    what_if: WhatIf
    savings: SavingsReader
    rng: np.random.Generator
    """Draws of the rows of a schedule that have no validators."""
    runner: Runner
    watch: Watch
    feed: FeedWatch
    courier: Courier
    archivist: Archivist
    renewer: Renewer
    readers: asyncio.Semaphore
    """Limit of requests that read the schedule at a time; one on SQLite.

    The driver of SQLite releases the interpreter at every row, and then waits for requests that
    encode."""
    embedded: bool
    """True where epochs run in a thread of this process."""
    stands_in: bool
    """True where this process fills the queue if no worker does."""
    now: Clock
    telemetry: Telemetry
    divided: bool
    """True where several databases commit the items of a request, each its own."""
    max_items: int
    max_body_bytes: int
    bodies: BodiesInWork
    slow_request_s: float
    """Duration from which a request is logged as slow, seconds; waiting is not counted."""
    log_requests: bool
    """True where each request is logged."""
    cors_origins: tuple[str, ...]
    """Origins whose pages may call the service."""
    webhooks_private: bool
    """True where webhooks may have addresses that are not public."""
    root_path: str
    """Path under which a proxy shows the service, "" at the root."""
    tracing: "Tracing | None" = None
    """Traces of this process; None: it makes none."""
    lease_waiters: LeaseWaiters = field(default_factory=LeaseWaiters)
    planning: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by the request whose plan is computed; others wait without a thread."""
    comparing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """The same for the request whose savings are computed."""

    @property
    def plan(self) -> Plan:
        """The plan of epochs with the budget in force."""
        return self.runner.plan

    def follow(self, orders: Orders) -> None:
        """Put orders of operators in force in this process."""
        self.keeper.paused_until = orders.paused_until
        self.keeper.adopt(self.budget.follow(orders))

    def forget_past(self) -> None:
        """Forget what this process remembers of the database, which was restored meanwhile.

        Keys, sessions, orders and windows follow versions of their own, rules their epoch.
        """
        if (terms := self.budget.terms) is not None:
            with self.store.begin() as tx:
                adopt_pace(tx, terms)
        self.keeper.forget()
        self.feed.forget()
        self.asked.forget()
        self.savings.forget()
        self.what_if.kept = None

    @property
    def batchers(self) -> tuple[Batcher[Any, Any], ...]:
        """All batchers, in the order in which their threads start."""
        return (
            self.small_posts,
            self.crawl_reports,
            self.ping_reports,
            self.registrations,
            self.lease_calls,
        )

    @property
    def n_waiting_items(self) -> int:
        """Number of crawls and pings that wait to be committed."""
        reports = self.small_posts, self.crawl_reports, self.ping_reports
        return sum(batcher.n_waiting for batcher in reports)

    def watch_queues(self) -> None:
        """Add the numbers of waiting requests and items to the metrics."""
        self.telemetry.watch(
            "recrawl_waiting_requests",
            "Requests that wait for an epoch",
            lambda: self.watch.n_waiting,
        )
        self.telemetry.watch(
            "recrawl_waiting_items", "Items that wait to be written", lambda: self.n_waiting_items
        )
        self.telemetry.watch(
            "recrawl_body_bytes",
            "Memory of the large request bodies in work",
            lambda: self.bodies.held,
        )


def open_service(
    settings: Settings,
    *,
    now: Clock | None = None,
    rng: np.random.Generator | None = None,
    siblings: Siblings | None = None,
) -> Service:
    """Open the store and return the service; raise what `opened` raises.

    A process among several of one server has `siblings`.
    """
    tracing = started_tracing(settings)
    base = opened(settings, now=now, rng=rng, batch=False)
    store, now = base.store, base.store.clock
    telemetry = Telemetry(store, now, base.runner.interval, base.plan.estimator.name, siblings)
    polite, seeds = settings.politeness(), base.rules.rng.spawn(3)
    settler_rng, lease_rng, rng_of_readers = seeds
    settler = LeaseSettler(polite, base.runner.ahead, settler_rng)
    n_writers = 1 if store.embedded else 2
    writers = n_writers, telemetry.count_commit
    patience_s = request_deadlines(settings.database_timeout_s).lock_s
    # a lease of several databases cannot write to that of the pace
    server = 0 if len(store.parts) > 1 else secrets.randbits(62) or 1
    keeper, asked = Keeper(store, base.budget.terms, server=server), LastAsked(store)
    estimator, interval = base.plan.estimator, base.runner.interval
    state = StateReader(
        *(store, estimator, interval, lambda: base.budget.terms, asked, keeper, polite.delay_s)
    )
    telemetry.watch_needs(state.needs)
    recorder = Recorder(store, InForce(base.rules), settler, patience_s, keeper)
    posts = PostRecorder(recorder, telemetry, now, base.budget)
    if isinstance(store, SeveralBatchers):
        divided = store.divided_batchers(base.rules, settler, *writers, keeper)
        crawl_reports, ping_reports = divided.crawls(), divided.pings()
        registrations = divided.registrations()
    else:
        crawl_reports = batched("crawls", recorder.flush_crawls, *writers)
        ping_reports = batched("pings", recorder.flush_pings, *writers)
        registrations = batched_registrations(store, settler, n_writers, patience_s)
    watch = Watch(store)
    service = Service(
        store=store,
        incarnation=lambda: watch.incarnation,
        rules=recorder.rules,
        small_posts=batched("small-posts", posts.flush, *writers),
        crawl_reports=crawl_reports,
        ping_reports=ping_reports,
        registrations=registrations,
        lease_calls=batched_calls(CallFlush(store, polite, lease_rng, posts, keeper)),
        keeper=keeper,
        asked=asked,
        state=state,
        settler=settler,
        lease_ttl=timedelta(seconds=settings.lease_ttl_s),
        budget=base.budget,
        what_if=WhatIf(store, base.plan, now, budget=base.budget),
        savings=SavingsReader(
            *(store, InForce(base.rules), now),
            lambda: means_of(base.budget.amount, polite.delay_s),
        ),
        rng=rng_of_readers,
        runner=base.runner,
        watch=watch,
        feed=FeedWatch(store),
        courier=base.courier,
        archivist=base.archivist,
        renewer=base.renewer,
        readers=asyncio.Semaphore(1 if store.embedded else MAX_THREADS),
        embedded=store.embedded,
        stands_in=not store.embedded,
        now=now,
        telemetry=telemetry,
        monitor=telemetry,
        divided=isinstance(store, SeveralBatchers),
        max_items=settings.max_items,
        max_body_bytes=settings.max_body_bytes,
        bodies=BodiesInWork(BODIES_AT_ONCE * settings.max_body_bytes),
        slow_request_s=settings.slow_request_s,
        log_requests=settings.log_level == "debug",
        key_checks=KeyChecks(now, looks(settings.outgoing)) if settings.indexnow_check else None,
        gate=open_gate(store, settings, now, settings.outgoing, siblings),
        cors_origins=settings.cors_origins,
        webhooks_private=settings.webhooks_private,
        root_path=settings.root_path,
        tracing=tracing,
    )
    service.follow(base.budget.orders)
    service.watch.follow = service.follow
    service.watch.forget = service.forget_past
    service.watch_queues()
    if tracing is not None:
        for batcher, title in zip(service.batchers, FLUSHES, strict=True):
            tracing.follow(batcher, title)
    return service


def the_service(request: Request) -> Service:
    """Return the service of this application."""
    service: Service = request.app.state.service
    return service


def the_monitored(request: Request) -> Monitored:
    """Return the parts of this process that its health and metrics need."""
    monitored: Monitored = request.app.state.service
    return monitored


def start_runner(service: Service) -> list[threading.Thread]:
    """Return the threads of epochs, webhooks, archive and hubs, if they run in this process.

    If workers run them, one thread fills the queue while no worker does.
    """
    if service.stands_in:
        looks = threading.Thread(target=service.runner.stand_in_every, name="queue", daemon=True)
        looks.start()
        return [looks]
    if not service.embedded:
        return []
    with suppress(*OUTAGES):  # the runner tries again
        service.store.keep_time()
    run = partial(service.runner.run_every, after_each=keep_for_good)
    threads = [
        threading.Thread(target=run, name="epochs", daemon=True),
        threading.Thread(target=service.courier.run_every, name="webhooks", daemon=True),
        threading.Thread(target=service.archivist.run_every, name="archive", daemon=True),
        threading.Thread(target=service.renewer.run_every, name="websub", daemon=True),
    ]
    for thread in threads:
        thread.start()
    return threads


def keep_for_good() -> None:
    """Exempt all loaded objects from garbage collection, because a full pass delays requests."""
    gc.collect()
    gc.freeze()


TheMonitored = Annotated[Monitored, Depends(the_monitored)]
TheService = Annotated[Service, Depends(the_service)]
TheBody = Annotated[Body, Depends(read_body)]
