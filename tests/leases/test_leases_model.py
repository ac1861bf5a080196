"""Leases against a model in plain Python: any steps in any order, on both databases."""

import shutil
from contextlib import contextmanager
from datetime import timedelta
from itertools import chain

import numpy as np
import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from support.crawl_cases import POLITE, RULES, UNTIL, next_ready_at, queue, release, report, rows
from support.lease_model import GROUPED, HOST_QUEUES, Model, Page
from support.live_server import command
from support.own_postgres import EMPTY
from support.store_cases import (
    DAY,
    T0,
    crawl_columns,
    instants,
    ping_columns,
    publish,
    register,
    schedule_columns,
    states_of,
)

from service.batching.lease_requests import LeaseRequest, lease_all
from service.ingest import record
from service.leases import queue as due_queue
from service.leases.dealt import WorkerRequest
from service.leases.host_settings import change_group, change_host
from service.leases.queue import fill_queue
from service.leases.settle import LeaseSettler
from service.model.domain import ItemVerdict
from service.model.outcomes import TROUBLE, Outcome
from service.model.unfinished import SET_ASIDE_AFTER
from service.storage import open_store
from service.storage.queue.columns import ALL_PAGES, LeaseFilter

N_RUNS = {"quick": 8, "thorough": 20}
"""Sequences of steps by the profile of hypothesis; `make test-all` is thorough."""
SLACK = timedelta(milliseconds=1)
"""Databases round due times to the microsecond, each in its own way."""

HOSTS = ["plain.example", "slow.example", "wide.example", "a.example", "b.example"]


class Leases(RuleBasedStateMachine):
    """Each step is done to a store and told the model; what must hold is checked there and then."""

    url: str

    def __init__(self):
        super().__init__()
        self.store = open_store(self.url, 2, clock=lambda: self.model.now)
        self.model = Model()
        self.given = []

    def pages(self, data, n=4):
        """Choose some pages that are there, in ascending order."""
        known = st.sampled_from(sorted(self.model.pages))
        return sorted(data.draw(st.lists(known, min_size=1, max_size=n, unique=True)))

    @initialize()
    def name_hosts(self):
        for host in HOSTS:
            self.register(host, 2)
        with self.store.begin() as tx:
            for host, group in GROUPED.items():
                change_host(tx, host, {"group": group}, T0, POLITE)
        for name, (delay_s, concurrency) in list(HOST_QUEUES.items())[1:]:
            self.be_polite(name, delay_s, concurrency)

    @rule(host=st.sampled_from(HOSTS), n=st.integers(1, 4))
    def register(self, host, n):
        """URLs that are there already are the same pages; one that was deleted is a new one."""
        page_id = register(self.store, n, self.model.now, host).tolist()
        queue(self.store, [p for p in page_id if p not in self.model.pages], self.model.now)
        for place, page in enumerate(page_id):
            if page not in self.model.pages:
                self.model.pages[page] = Page(host, self.model.now, place=place)
                self.adopt(page)

    def adopt(self, page_id):
        """The lease of a deleted page goes on as that of the new page with its URL."""
        page = self.model.pages[page_id]
        for old in self.model.deleted.values():
            if old.token and (old.host, old.place) == (page.host, page.place):
                goes_on = self.is_open([page_id])
                assert goes_on or not self.model.live(old), "a lease was lost"
                if goes_on:
                    page.adopt(old)
                old.token = 0

    def is_open(self, page_ids):
        """Return the pages whose leases run, or have expired without being counted."""
        with self.store.begin(write=False) as tx:
            last = tx.last_leases(np.array(sorted(page_ids), np.int64))
        return set(last.page_id[last.is_open].tolist())

    @rule(span=st.sampled_from([0.001, 0.4, 1, 1, 3, 5, 60, 300, 1800, 3600, 6 * 3600, 24 * 3600]))
    def advance(self, span):
        self.model.now += timedelta(seconds=span)

    @rule(
        counts=st.lists(st.sampled_from([1, 2, 5, 100]), min_size=1, max_size=3),
        hosts=st.just(()) | st.lists(st.sampled_from(HOSTS), min_size=1, max_size=2, unique=True),
        ttl_s=st.sampled_from([2, 300, 3600]),
    )
    def take(self, counts, hosts, ttl_s):
        """What is handed out is due, free and polite; who got less than asked got all there was."""
        now, ttl = self.model.now, timedelta(seconds=ttl_s)
        requests = [
            LeaseRequest(WorkerRequest(f"w{i}", n, ttl), LeaseFilter(tuple(hosts)))
            for i, n in enumerate(counts)
        ]
        dealt = lease_all(self.store, POLITE, RULES.rng, requests)
        waves = [
            [rows(part.leased.in_order(np.flatnonzero(part.to == i))) for part in dealt]
            for i in range(len(counts))
        ]
        for count, parts in zip(counts, waves, strict=True):
            assert sum(map(len, parts)) <= count
            for part in parts:
                urgency = [self.model.pages[c.page_id].urgency(now) for c in part]
                np.testing.assert_allclose(urgency, sorted(urgency)[::-1], rtol=1e-6)
        taken = list(chain.from_iterable(chain.from_iterable(waves)))
        self.expire({crawl.page_id for crawl in taken})
        for crawl in taken:
            self.hand_out(crawl, hosts, now + ttl)
        if len(taken) < sum(counts):
            self.nothing_ready_is_left(hosts)

    def expire(self, taken):
        """Count the expired leases that the store has counted; of taken pages it has all."""
        expired = {
            page_id: page
            for page_id, page in self.model.every_page.items()
            if page.token and not self.model.live(page)
        }
        open_ = self.is_open(expired)
        for page_id, page in expired.items():
            if page_id in taken or page_id not in open_:
                page.count(page.expires_at)
                stays = page.n_unfinished and page_id in self.model.pages
                page.expired_at = page.expires_at if stays else T0 - DAY
                page.ended_at = page.expires_at

    def hand_out(self, crawl, hosts, expires_at):
        model, page = self.model, self.model.pages[crawl.page_id]
        assert page.waits_until(model.now) <= model.now + SLACK, "a page that waits"
        assert crawl.token not in {c.token for c in self.given}, "a token was given twice"
        assert not model.live(page), "a second lease of a page"
        assert page.due_at() is not None, "a page that is never due"
        assert page.due_at() <= model.now + SLACK, "a page before it was due"
        assert not hosts or page.host in hosts, "a host nobody asked for"
        assert model.opens_at(page.host_queue) == model.now, "a host_queue whose gate is shut"
        host_queue = model.host_queues[page.host_queue]
        if host_queue.delay_s:
            host_queue.ready_at = model.now + timedelta(seconds=host_queue.delay_s)
        page.token, page.leased_at, page.expires_at = crawl.token, model.now, expires_at
        self.given.append(crawl)

    def nothing_ready_is_left(self, hosts=()):
        ready_at = self.model.next_ready_at(hosts)
        if ready_at is not None and self.model.knows(ready_at):
            assert ready_at > self.model.now - SLACK
            late = [
                page_id
                for page_id, page in self.model.pages.items()
                if (due_at := page.free_at(self.model.now)) is not None
                and due_at <= self.model.now - SLACK
                and not self.model.live(page)
                and (not hosts or page.host in hosts)
                and self.model.opens_at(page.host_queue, latest=True) <= self.model.now
            ]
            assert not late, "pages that are due were not handed out"

    @precondition(lambda self: self.given)
    @rule(
        data=st.data(),
        status=st.sampled_from([200, 200, 200, 304, 404, 503, 429, 0]),
        ago_s=st.sampled_from([0, 0, 1, 400]),
    )
    def report(self, data, status, ago_s):
        """Tokens in force end their leases, others nothing; late ones may be in force still."""
        sent = data.draw(st.lists(st.sampled_from(self.given[-12:]), min_size=1, max_size=5))
        at = self.model.now - timedelta(seconds=ago_s)
        held = report(
            self.store, sent, at, self.model.now, status, 0 if status == 200 else -1, polite=POLITE
        )
        new = [self.saw(crawl.page_id, at, status) for crawl in sent]
        self.ended(sent, held, at)
        for crawl, is_new, was_held in zip(sent, new, held, strict=True):
            if is_new and not was_held:
                self.model.pages[crawl.page_id].count_report()
        spoke = {c.page_id for c, *of in zip(sent, new, held, strict=True) if any(of)}
        self.count_reports({c.page_id for c in sent}, spoke, status, at)

    @precondition(lambda self: self.given)
    @rule(data=st.data())
    def release(self, data):
        sent = data.draw(st.lists(st.sampled_from(self.given[-12:]), min_size=1, max_size=3))
        """A page given back is due at once the first time; its host queue keeps its delay."""
        self.ended(sent, release(self.store, sent, self.model.now, POLITE), None)

    def ended(self, sent, held, at):
        for crawl, was_held in zip(sent, held, strict=True):
            page = self.model.every_page.get(crawl.page_id)
            if page is None or page.token != crawl.token:
                assert not was_held, "a token that has ended ended a lease"
                continue
            assert was_held or not self.model.live(page), "a lease did not end"
            if at is None:
                page.count(self.model.now, returned=True)
            else:
                page.reported()
            host_queue = self.model.host_queues[page.host_queue]
            if was_held and at and host_queue.delay_s:
                # the delay of a crawl dated before its lease counts from the report
                crawled_at = self.model.now if at <= page.leased_at else at
                ended_at = crawled_at + timedelta(seconds=host_queue.delay_s)
                host_queue.ready_at = max(host_queue.ready_at or ended_at, ended_at)

    def saw(self, page_id, at, status):
        """Tell whether it is news."""
        page = self.model.pages.get(page_id)
        if page is None or (page.last_crawl_at is not None and at <= page.last_crawl_at):
            return False
        n_before = page.n_failures
        if status == 404:
            page.look(at)
        elif status in (200, 304):
            page.gone, page.n_failures, page.absent_since = False, 0, None
            page.outcome = Outcome.content
        else:
            page.n_failures += not page.gone
            page.outcome = Outcome.failed
        page.last_crawl_at = at
        (page.interval_factor,) = states_of(self.store, [page_id]).interval_factor.tolist()
        answers = status in (200, 304) or (status == 404 and page.gone)
        if page.requested_at is not None and page.requested_at <= at:
            page.requested_at = None if answers and page.renewed_at <= at else page.renewed_at
        if page.n_failures and page.rate:
            page.retry_rate = page.rate
        elif not (page.n_failures or n_before):
            page.retry_rate = 0.0
        return True

    def count_reports(self, page_ids, spoke, status, at):
        """A host queue that is asked to slow down pauses at least half a minute, and only once."""
        pages = self.model.every_page
        host_queues = {p: pages[p].host_queue for p in page_ids}
        names, slow = (
            set(host_queues.values()),
            {host_queue for p, host_queue in host_queues.items() if p in spoke},
        )
        hosts = {page.host_queue: page.host for page in pages.values()}
        for name in names:
            with self.store.begin(write=False) as tx:
                paused_until = tx.host(hosts[name]).host_queue.paused_until
            host_queue = self.model.host_queues[name]
            if name in slow and status in (429, 503):
                # a crawl from before the last pause is part of the incident of that pause
                paused = host_queue.paused_at
                assert paused_until is not None
                assert paused or paused_until >= at + timedelta(seconds=30)
                host_queue.paused_at = self.model.now
            elif name not in slow or 0 < status < TROUBLE.start:
                assert (paused_until or T0) == host_queue.paused_until
            host_queue.paused_until = max(host_queue.paused_until, paused_until or T0)

    @precondition(lambda self: self.model.pages)
    @rule(data=st.data(), status=st.sampled_from([200, 404, 503]))
    def crawl_without_a_lease(self, data, status):
        page_id = self.pages(data)
        crawled = crawl_columns(
            np.array(page_id),
            instants([self.model.now] * len(page_id)),
            0 if status == 200 else -1,
            status=status,
        )
        with self.store.begin() as tx:
            settler = LeaseSettler(POLITE, UNTIL, RULES.rng)
            rates = record.needs_rates(crawled)
            states, leased = settler.lock(tx, np.unique(page_id), crawled, scheduled=rates)
            made = record.record(tx, crawled, RULES, states)
            new = made.verdict == ItemVerdict.accepted
            settler.settle_crawls(tx, crawled, new, made.states, leased, self.model.now)
            waiting = leased.waiting()
        queue(self.store, np.append(crawled.page_id[made.sooner], waiting), self.model.now)
        spoke = {page for page in page_id if self.saw(page, self.model.now, status)}
        for page in spoke:
            if status >= TROUBLE.start or not self.model.pages[page].token:
                self.model.pages[page].count_report()
        self.count_reports(page_id, spoke, status, self.model.now)

    @precondition(lambda self: self.model.pages)
    @rule(data=st.data(), ago_s=st.sampled_from([0, 0, 400]))
    def ping(self, data, ago_s):
        """A ping that wants a crawl makes its page due at once."""
        page_id, at = self.pages(data), self.model.now - timedelta(seconds=ago_s)
        pings = ping_columns(np.array(page_id), instants([at] * len(page_id)))
        with self.store.begin() as tx:
            answered = record.ping(tx, pings, RULES)
            settler = LeaseSettler(POLITE, UNTIL, RULES.rng)
            settler.queue_requested(tx, pings.page_id[answered.crawl], self.model.now)
        after = states_of(self.store, page_id)
        for place, (page, crawl) in enumerate(zip(page_id, answered.crawl.tolist(), strict=True)):
            known = self.model.pages[page]
            known.interval_factor = after.interval_factor[place]
            known.retry_rate = after.retry_rate[place]
            if crawl:
                is_open = known.requested
                known.requested_at = known.requested_at if is_open else at
                known.renewed_at = max(known.renewed_at, at) if is_open else at
            is_aside = known.n_unfinished >= SET_ASIDE_AFTER
            if crawl and not is_aside and not known.token and known.renewed_at > known.leased_at:
                known.until = T0  # once: the next lease is newer than the request

    @precondition(lambda self: self.given)
    @rule(data=st.data(), ttl_s=st.sampled_from([1, 600]))
    def extend(self, data, ttl_s):
        """A lease is extended while it runs."""
        crawl = data.draw(st.sampled_from(self.given[-12:]))
        until = self.model.now + timedelta(seconds=ttl_s)
        with self.store.begin() as tx:
            extended = tx.extend_lease(crawl.page_id, crawl.token, self.model.now, until)
        page = self.model.every_page.get(crawl.page_id)
        runs = bool(page and page.token == crawl.token and self.model.live(page))
        assert extended == runs
        if runs:
            page.expires_at = until

    @precondition(lambda self: self.model.pages)
    @rule(
        data=st.data(),
        rates=st.lists(st.sampled_from([0.0, 0.5, 4.0, 48.0]), min_size=4, max_size=4),
    )
    def publish(self, data, rates):
        """An epoch gives pages other rates; who runs it may die before the queue knows."""
        page_id = sorted(self.model.pages)
        given = [rates[page % 4] for page in page_id]
        publish(
            self.store,
            schedule_columns(np.array(page_id), crawl_rate=given, crawl_probability=1.0),
            self.model.now,
        )
        for page, rate in zip(page_id, given, strict=True):
            self.model.pages[page].rate = rate
        self.model.filled_at = None
        if data.draw(st.integers(0, 3)):
            self.fill()

    @rule()
    def fill(self):
        fill_queue(self.store, self.model.now + UNTIL)
        self.model.filled_at = self.model.now

    @rule(
        name=st.sampled_from(list(HOST_QUEUES)),
        delay_s=st.sampled_from([0.0, 1.0, 7.0]),
        concurrency=st.sampled_from([1, 2, 3]),
    )
    def be_polite(self, name, delay_s, concurrency):
        """A new delay counts from the last crawl that had one; a first one from now."""
        self.configure(name, {"min_delay_s": delay_s, "max_concurrency": concurrency})
        host_queue = self.model.host_queues[name]
        if host_queue.ready_at is not None:
            host_queue.ready_at += timedelta(seconds=delay_s - host_queue.delay_s)
        if delay_s and not host_queue.delay_s and self.model.n_live(name):
            host_queue.ready_at = self.model.now + timedelta(seconds=delay_s)
        host_queue.delay_s, host_queue.concurrency = delay_s, concurrency

    @rule(name=st.sampled_from(list(HOST_QUEUES)), seconds=st.sampled_from([0, 2, 100]))
    def block(self, name, seconds):
        """A host queue is blocked for a time, or no longer."""
        until = self.model.now + timedelta(seconds=seconds) if seconds else None
        self.configure(name, {"blocked_until": until})
        self.model.host_queues[name].blocked_until = until or T0

    def configure(self, name, said):
        with self.store.begin() as tx:
            if name in GROUPED.values():
                change_group(tx, name, said, None, self.model.now, POLITE)
            else:
                change_host(tx, name, said, self.model.now, POLITE)

    @precondition(lambda self: len(self.model.pages) > 3)
    @rule(data=st.data())
    def delete(self, data):
        """A crawl that runs goes on, and counts for its host until its lease ends."""
        for page_id in self.pages(data, 2):
            with self.store.begin() as tx:
                tx.delete_page(page_id)
            page = self.model.deleted[page_id] = self.model.pages.pop(page_id)
            page.expired_at = T0 - DAY
            if not self.model.live(page):
                page.token = 0

    @rule()
    def restart(self):
        self.store.close()
        self.store = open_store(self.url, 2, clock=lambda: self.model.now)

    @precondition(lambda self: self.given)
    @rule(data=st.data(), count=st.integers(1, 5))
    def die(self, data, count):
        """Nothing is left of a transaction that was not committed."""
        sent = data.draw(st.lists(st.sampled_from(self.given[-12:]), min_size=1, max_size=5))
        dying, ask = Dying(self.store), LeaseRequest(WorkerRequest("w", count, DAY), ALL_PAGES)
        with pytest.raises(Died):
            report(dying, sent, self.model.now, polite=POLITE)
        with pytest.raises(Died):
            lease_all(dying, POLITE, RULES.rng, [ask])

    @invariant()
    def no_worker_comes_back_too_late(self):
        for hosts in ((), ("wide.example",), ("a.example",)):
            truth = self.model.next_ready_at(hosts)
            if truth is not None and self.model.knows(truth):
                ready_at = next_ready_at(self.store, hosts)
                assert ready_at is not None, "a due page counts as not queued"
                assert ready_at <= max(truth, self.model.now) + SLACK

    def teardown(self):
        """No page is lost: who asks, reports and comes back when told crawls all that is due."""
        try:
            self.drain()
        finally:
            self.store.close()

    def drain(self):
        self.fill()
        waiting = {
            page_id
            for page_id, page in self.model.pages.items()
            if (due_at := page.due_at()) is not None and due_at <= self.model.now
        }
        # a page whose leases ended without a report waits for up to a day
        end = self.model.now + timedelta(days=2)
        while self.model.now < end:
            before = len(self.given)
            self.take([100], (), 3600)
            taken = self.given[before:]
            waiting -= {crawl.page_id for crawl in taken}
            if not waiting:
                return
            if taken:
                held = report(
                    self.store, taken, self.model.now, status=200, changed=0, polite=POLITE
                )
                assert all(held)
                for crawl in taken:
                    self.saw(crawl.page_id, self.model.now, 200)
                self.ended(taken, held, self.model.now)
            else:
                ready_at = next_ready_at(self.store)
                assert ready_at is not None, f"{waiting} were lost"
                self.model.now = max(ready_at, self.model.now + SLACK)
        raise AssertionError(f"{waiting} were never handed out")


class Died(Exception):
    """What ends the transactions of `Dying`."""


class Dying:
    """A store whose transactions all fail at their end."""

    def __init__(self, store):
        self.store = store

    @contextmanager
    def begin(self, *, write=True):
        with self.store.begin(write=write) as tx:
            yield tx
            raise Died


@pytest.mark.dear
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_any_steps_in_any_order_lose_no_page_and_lease_none_twice(kind, request, monkeypatch):
    monkeypatch.setattr(due_queue, "BLOCK", 3)
    if kind == "postgres":
        url = sa.make_url(request.getfixturevalue("postgres_url"))

        def fresh():
            command(url, EMPTY)
            Leases.url = url.render_as_string(hide_password=False)
            return Leases()
    else:
        template = request.getfixturevalue("sqlite_template")
        path = request.getfixturevalue("tmp_path") / "leases.db"

        def fresh():
            for file in path.parent.glob("leases.db*"):
                file.unlink()
            shutil.copy(template, path)
            Leases.url = f"sqlite:///{path}"
            return Leases()

    run_state_machine_as_test(
        fresh,
        settings=settings(
            max_examples=N_RUNS[settings.get_current_profile_name()],
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
