"""No request that was answered with a crawl is lost, whatever comes between, on both databases.

Crawlers have right, slow and fast clocks, or state no time. They report late, twice or not at all,
and their crawls fail. Publishers have wrong clocks too. The test knows when each page was fetched.
"""

import shutil
from dataclasses import dataclass, field
from datetime import datetime, timedelta

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
from support.crawl_cases import (
    RUDE,
    RULES,
    UNTIL,
    Crawl,
    commit_reports,
    ids,
    queue,
    release,
    rng,
    take,
)
from support.examples import examples
from support.live_server import command
from support.own_postgres import EMPTY
from support.store_cases import (
    DAY,
    T0,
    due_of,
    instants,
    page_columns,
    page_of,
    ping_columns,
    publish,
    register,
    schedule_columns,
    states_of,
)

from service.batching.reports import PingReport, Recorder
from service.estimation.rules import InForce
from service.ingest.bulk import Recrawl, act_on
from service.ingest.page_names import PageNames
from service.leases.queue import fill_queue
from service.leases.settle import LeaseSettler
from service.model.domain import ItemVerdict, Observability
from service.storage import open_store

TTL = timedelta(seconds=60)
HOUR = timedelta(hours=1)
SLACK = timedelta(milliseconds=1)
PROMPT = timedelta(seconds=1)
"""Time before a report in which the stated start may be the report's."""
CONTENT = {"status": 200, "digest": 7, "changed": -1}
FAILURES = [{"status": status, "digest": 0, "changed": -1} for status in (0, 204, 302, 403, 503)]


@dataclass
class Fetch:
    """A leased page, and when its crawler sent the request."""

    crawl: object
    leased_at: datetime
    started_at: datetime | None = None


@dataclass
class Wish:
    """A request that was answered with a crawl."""

    at: datetime
    answered: bool = False
    """True if a crawl that began later has shown the page."""
    tried: bool = False
    """True if a crawl that began later has failed."""


@dataclass
class Told:
    """A report as it was sent, to be sent again."""

    crawl: object
    observed_at: datetime | None
    result: dict = field(default_factory=dict)


class Requests(RuleBasedStateMachine):
    """Requests, leases, crawls and reports in any order."""

    url: str

    def __init__(self):
        super().__init__()
        self.now = T0
        self.store = open_store(self.url, 2, clock=lambda: self.now)
        self.fetches = []
        self.sent = []
        self.wishes = {}
        """Wishes that the service may hold open, by page."""

    @initialize()
    def begin(self):
        """All pages are known, have content, and are due by requests only."""
        for page in register(self.store, 2, T0, observability=Observability.complete):
            self.wishes[int(page)] = []
        page_id = np.array(sorted(self.wishes))
        queue(self.store, page_id, self.now)
        for crawl in self.lease(9):
            self.tell(crawl, self.now, CONTENT)
        publish(self.store, schedule_columns(page_id, crawl_rate=0.0, crawl_probability=1.0), T0)
        self.fetches = []
        self.now += timedelta(seconds=1)

    def pages(self, data):
        known = st.sampled_from(sorted(self.wishes))
        return sorted(data.draw(st.lists(known, min_size=1, max_size=3, unique=True)))

    @rule(span=st.sampled_from([0.001, 0.4, 1, 20, 45, 100, 400]))
    def advance(self, span):
        self.now += timedelta(seconds=span)

    # -- requests

    @rule(data=st.data(), late_s=st.sampled_from([0, 0, 15, -120]))
    def ping(self, data, late_s):
        """A change that happened some time ago, or in the future of a fast clock."""
        page_id = np.array(self.pages(data))
        changed_at = self.now - timedelta(seconds=late_s)
        pings = ping_columns(page_id, instants([changed_at] * len(page_id)))
        names = PageNames(page_id, np.full(len(page_id), -1), page_columns([]))
        settler = LeaseSettler(RUDE, UNTIL, rng())
        recorder = Recorder(self.store, InForce(RULES), settler)
        (outcome,) = recorder.flush_pings([PingReport(pings, names, False, self.now)])
        self.wish(page_id[outcome.crawl])

    @rule(data=st.data())
    def recrawl(self, data):
        self.request(np.array(self.pages(data)))

    def request(self, page_id):
        act_on(self.store, page_id, Recrawl(LeaseSettler(RUDE, UNTIL, rng())), self.now)
        self.wish(page_id)

    def wish(self, page_id):
        for page in page_id.tolist():
            self.wishes[page].append(Wish(self.now))

    # -- crawls

    def lease(self, count):
        crawls = take(self.store, self.now, count=count, ttl=TTL)
        self.fetches += [Fetch(crawl, self.now) for crawl in crawls]
        return crawls

    @rule(count=st.sampled_from([1, 2, 9]))
    def take(self, count):
        for crawl in self.lease(count):
            wishes = self.wishes[crawl.page_id]
            page = page_of(self.store, crawl.page_id)
            assert wishes or page.n_failures, "a crawl that nobody requested"

    @rule(
        data=st.data(),
        gaps=st.tuples(*[st.sampled_from([0.001, 1, 20, 50])] * 4),
        between=st.tuples(st.booleans(), st.booleans()),
        again=st.booleans(),
    )
    def visit(self, data, gaps, between, again):
        """One page is requested, leased, fetched and reported, with requests in between."""
        (page, *_) = self.pages(data)
        self.request(np.array([page]))
        leased = ids(self.lease(9))
        for n, gap in enumerate(gaps):
            self.now += timedelta(seconds=gap)
            if n == 1:
                self.begin_fetches(page)
            if n in (0, 2) and between[n // 2]:
                self.request(np.array([page]))
        if page in leased:
            clock = data.draw(st.sampled_from(["right", "right", "slow", "fast", "none"]))
            result = data.draw(st.just(CONTENT) | st.sampled_from(FAILURES))
            self.tell_of(self.fetch_of(page), clock, result, 250)
        if again:
            self.repeat_last()

    def fetch_of(self, page):
        return [one for one in self.fetches if one.crawl.page_id == page][-1]

    def begin_fetches(self, page):
        for one in self.fetches:
            if one.crawl.page_id == page:
                one.started_at = one.started_at or self.now

    @precondition(lambda self: self.fetches)
    @rule(data=st.data())
    def fetch(self, data):
        """A crawler sends its request some time after it has the lease."""
        one = data.draw(st.sampled_from(self.fetches))
        one.started_at = one.started_at or self.now

    @precondition(lambda self: self.fetches)
    @rule(
        data=st.data(),
        clock=st.sampled_from(["right", "right", "right", "slow", "fast", "none"]),
        result=st.just(CONTENT) | st.just(CONTENT) | st.sampled_from(FAILURES),
        off_s=st.sampled_from([1, 250]),
    )
    def report(self, data, clock, result, off_s):
        self.tell_of(data.draw(st.sampled_from(self.fetches)), clock, result, off_s)

    def tell_of(self, one, clock, result, off_s):
        self.fetches.remove(one)
        began, off = one.started_at or self.now, timedelta(seconds=off_s)
        # a fast clock shows only where its time lies after the report
        stated = {"right": began, "slow": began - off, "fast": self.now + off, "none": None}[clock]
        accepted, ended = self.tell(one.crawl, stated, result)
        if not ended:
            sure = None
        elif stated is not None and one.leased_at <= stated <= self.now - PROMPT:
            sure = stated
        else:
            sure = one.leased_at
        self.saw(one.crawl.page_id, began, result, accepted, sure)

    def tell(self, crawl, observed_at, result):
        """Send a report; return whether it was accepted and whether it ended its lease."""
        done = commit_reports(self.store, [crawl], [observed_at], self.now, **result)
        accepted = bool(done.verdict[0] == ItemVerdict.accepted)
        if accepted:
            self.sent.append(Told(crawl, observed_at, result))
        return accepted, bool(done.lease_ended[0])

    def saw(self, page, began, result, accepted, sure):
        """Tell the wishes of a page of a crawl that began, for the service surely at `sure`."""
        shows = result is CONTENT
        for wish in self.wishes[page]:
            if wish.at <= began:
                wish.answered |= shows
                wish.tried |= not shows
        if accepted and shows and sure is not None:
            self.wishes[page] = [wish for wish in self.wishes[page] if wish.at > sure]

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def repeat(self, data):
        self.repeat_one(data.draw(st.sampled_from(self.sent[-9:])))

    def repeat_last(self):
        if self.sent:
            self.repeat_one(self.sent[-1])

    def repeat_one(self, told):
        """A report that is sent again changes nothing."""
        before = states_of(self.store, [told.crawl.page_id])
        done = commit_reports(self.store, [told.crawl], [told.observed_at], self.now, **told.result)
        assert done.verdict.tolist() != [ItemVerdict.accepted]
        after = states_of(self.store, [told.crawl.page_id])
        for name in ("last_crawl_at", "requested_at", "renewed_at"):
            np.testing.assert_array_equal(getattr(before, name), getattr(after, name), name)

    @precondition(lambda self: self.fetches)
    @rule(data=st.data())
    def give_back(self, data):
        one = data.draw(st.sampled_from(self.fetches))
        self.fetches.remove(one)
        release(self.store, [one.crawl], self.now)

    @rule(data=st.data(), ago_s=st.sampled_from([0, 0.5, 30]), shows=st.booleans())
    def crawl_without_a_lease(self, data, ago_s, shows):
        """A reader of the schedule reports a crawl that began some time ago."""
        (page, *_), began = self.pages(data), self.now - timedelta(seconds=ago_s)
        result = CONTENT if shows else FAILURES[-1]
        last = page_of(self.store, page).last_crawl_at
        accepted, ended = self.tell(Crawl(page, "", "", 0, 0.0), began, result)
        assert (accepted, ended) == (began > last, False)
        self.saw(page, began, result, accepted, began)

    # -- what holds

    @invariant()
    def no_request_is_lost(self):
        live = {f.crawl.page_id for f in self.fetches if self.now < f.leased_at + TTL}
        for page, wishes in self.wishes.items():
            waiting = [wish for wish in wishes if not wish.answered]
            if not waiting or page in live:
                continue
            due = due_of(self.store, page)
            assert due is not None, "a request without a crawl"
            if not all(wish.tried for wish in waiting):
                assert due <= self.now + SLACK, "a requested page that is not due"

    def teardown(self):
        """Who goes on crawling answers all requests."""
        try:
            self.drain()
        finally:
            self.store.close()

    def drain(self):
        for _ in range(60):
            if all(wish.answered for wishes in self.wishes.values() for wish in wishes):
                return
            self.fetches = []
            self.now += timedelta(seconds=1)
            crawls = self.lease(9)
            for crawl in crawls:
                accepted, ended = self.tell(crawl, self.now, CONTENT)
                assert (accepted, ended) == (True, True)
                self.saw(crawl.page_id, self.now, CONTENT, True, self.now)
            if not crawls:  # a page that fails waits for up to 30 days; epochs fill the queue
                self.now += DAY
                fill_queue(self.store, self.now + UNTIL)
        raise AssertionError("requests without a crawl")


@pytest.mark.dear
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_no_request_is_lost_whatever_comes_between(kind, request):
    if kind == "postgres":
        url = sa.make_url(request.getfixturevalue("postgres_url"))

        def fresh():
            command(url, EMPTY)
            Requests.url = url.render_as_string(hide_password=False)
            return Requests()
    else:
        template = request.getfixturevalue("sqlite_template")
        path = request.getfixturevalue("tmp_path") / "requests.db"

        def fresh():
            for file in path.parent.glob("requests.db*"):
                file.unlink()
            shutil.copy(template, path)
            Requests.url = f"sqlite:///{path}"
            return Requests()

    run_state_machine_as_test(
        fresh,
        settings=settings(
            max_examples=examples(8, 40),
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.dear
def test_requested_pages_that_are_requested_again_and_again_are_all_crawled(queue_store):
    """A tenth of them is crawled a round, and all ask again during each crawl."""
    page_id = np.sort(register(queue_store, 1_000, observability=Observability.complete))
    queue(queue_store, page_id, T0)
    settler, counts = LeaseSettler(RUDE, UNTIL, rng()), dict.fromkeys(page_id.tolist(), 0)
    commit_reports(queue_store, take(queue_store, T0, count=1_000), T0, T0, digest=7)
    publish(queue_store, schedule_columns(page_id, crawl_rate=0.0, crawl_probability=1.0))
    act_on(queue_store, page_id, Recrawl(settler), T0 + HOUR)
    for hour in range(1, 21):
        now = T0 + hour * HOUR
        crawls = take(queue_store, now, count=100)
        for page in ids(crawls):
            counts[page] += 1
        act_on(queue_store, page_id, Recrawl(settler), now + timedelta(seconds=2))
        reported_at = now + timedelta(seconds=3)
        commit_reports(queue_store, crawls, now + timedelta(seconds=1), reported_at, digest=7)
    assert set(counts.values()) == {2}
