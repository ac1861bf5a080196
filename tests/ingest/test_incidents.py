"""The rules of incidents, against sets of pages, and where they must not see one."""

from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.ingest.incidents import (
    DAY,
    HOUR,
    NEVER,
    CrawlVerdict,
    HostWatch,
    PageSeen,
    SuspectCrawl,
    incidents_of,
    judged,
    watches_of,
)
from service.model.incidents import Sign
from service.model.outcomes import Outcome

MINUTE = HOUR // 60
START = 1_000 * DAY
OWN = 1_000
"""Digest of page 0; page n has the digest OWN + n."""
SAME = 7
PLAIN, DOUBTFUL, INCIDENT, AS_BEFORE, WAITS = CrawlVerdict


def crawl(page_id, at, outcome=Outcome.content, digest=None, n_alike=0, before=0, doubtful=True):
    digest = (OWN + page_id if outcome == Outcome.content else 0) if digest is None else digest
    shared = n_alike > 0, n_alike > 0 and doubtful, n_alike, before
    return SuspectCrawl(page_id, START + at, int(outcome), digest, False, *shared)


def absent(page_id, at):
    return crawl(page_id, at, Outcome.absent)


def refused(page_id, at):
    return crawl(page_id, at, Outcome.refused)


def alike(page_id, at, digest=SAME):
    """A crawl that found the digest that page 0 was the first to show."""
    return crawl(page_id, at, digest=digest, n_alike=1, before=OWN)


def known(n=100, **fields):
    """Pages that had content long before."""
    usual = {
        "last_at": START - 30 * DAY,
        "outcome": int(Outcome.content),
        "answered": True,
        "gone": False,
        "doubted_at": NEVER,
    }
    return {i: PageSeen(**{**usual, "digest": OWN + i, **fields}) for i in range(n)}


def verdicts(crawls, pages=None, watch=None):
    return judged(watch or HostWatch(1), crawls, known() if pages is None else pages)


@pytest.mark.parametrize("kind", [absent, refused, alike])
@pytest.mark.parametrize(("n", "others", "begins"), [(4, 0, 0), (5, 0, 1), (5, 4, 1), (5, 5, 0)])
def test_an_incident_needs_five_pages_and_more_than_half_of_those_crawled(kind, n, others, begins):
    # page 0 was the first one to show the digest, before the hour
    watch = HostWatch(1, crawled_before=lambda *_: int(kind is alike))
    first = [kind(1, 0)]
    crawls = first + [crawl(50 + i, 1 + i) for i in range(others)]
    crawls += [kind(2 + i, 100 + i) for i in range(n - 1)]
    if kind is alike:
        crawls.pop()
    found = verdicts(crawls, watch=watch)
    assert (found[-1] == INCIDENT) == watch.in_force == bool(begins)
    if begins:
        assert (Sign(watch.kind).name, watch.n_pages) == (kind.__name__, 5)


@pytest.mark.parametrize(("before", "begins"), [(0, True), (4, True), (5, False), (95, False)])
def test_pages_crawled_in_the_hour_before_the_first_sign_count_too(before, begins):
    watch = HostWatch(1, crawled_before=lambda after, end: before if end - after == HOUR - 4 else 0)
    found = verdicts([absent(i, i) for i in range(5)], watch=watch)
    assert (found[-1] == INCIDENT) is begins


@pytest.mark.parametrize("n", [10, 20, 31, 50])
def test_a_page_crawled_in_the_hour_before_counts_by_its_newest_crawl_alone(n):
    second, pages = MINUTE // 60, known(n, last_at=START - HOUR // 2)

    def crawled_before(after, end):
        return sum(after < page.last_at < end for page in pages.values())

    watch = HostWatch(1, crawled_before=crawled_before)
    found = verdicts([absent(i, i * second) for i in range(n)], pages, watch)
    assert found.index(INCIDENT) == n // 2, "more than half of the pages show it"


def test_the_hour_before_passes():
    watch = HostWatch(1, crawled_before=lambda *_: 60)
    minutes = [absent(i, i * MINUTE) for i in range(60)]
    found = verdicts(minutes, watch=watch)
    # by minute n, n + 1 pages are absent and some 60 - n were crawled only before
    assert 28 <= found.index(INCIDENT) <= 32


def test_a_page_counts_once():
    watch = HostWatch(1)
    assert INCIDENT not in verdicts([absent(i % 4, i) for i in range(40)], watch=watch)
    assert (watch.n_absent, watch.n_crawled) == (4, 4)


def test_an_incident_begins_with_the_first_crawl_that_shows_its_own_sign():
    watch, half = HostWatch(1), 30 * MINUTE
    verdicts(
        [refused(0, 0), refused(1, MINUTE), *(absent(i, half + i) for i in range(2, 9))],
        watch=watch,
    )
    assert (watch.kind, watch.since) == (Sign.absent, START + half + 2)


def moved(page_id, at):
    return crawl(page_id, at, Outcome.moved)


def test_a_section_that_has_moved_is_no_absence():
    watch = HostWatch(1)
    found = verdicts(
        [absent(0, 0), *(moved(i, (8 + i) * MINUTE) for i in range(1, 8))], watch=watch
    )
    assert found == [PLAIN] * 5 + [INCIDENT] * 3
    assert (watch.kind, watch.since) == (Sign.moved, START + 9 * MINUTE)


@pytest.mark.parametrize("sign", [absent, moved, refused])
def test_a_page_that_was_back_before_an_incident_does_not_begin_it(sign):
    watch = HostWatch(1)
    first = [sign(0, 0), crawl(0, MINUTE)]
    verdicts([*first, *(sign(i, (8 + i) * MINUTE) for i in range(1, 9))], watch=watch)
    assert watch.in_force
    assert watch.since == START + 9 * MINUTE


def test_an_incident_of_one_digest_begins_before_its_second_page():
    watch = HostWatch(1)
    later = [crawl(i, i * MINUTE, digest=SAME, n_alike=i, before=OWN) for i in range(1, 9)]
    verdicts([each._replace(shared_since=START) for each in later], watch=watch)
    assert (watch.kind, watch.since) == (Sign.alike, START)


def test_an_incident_of_one_digest_begins_with_the_first_page_that_shows_it():
    watch, half = HostWatch(1), 30 * MINUTE
    first = [crawl(i, i, digest=8, n_alike=i, before=OWN) for i in range(1, 4)]
    # the second digest is the most frequent one from its fifth page on
    others = [crawl(i, half + i, digest=SAME, n_alike=i - 4, before=OWN) for i in range(4, 14)]
    others = [each._replace(shared_since=START + half + 4) for each in others]
    verdicts([*first, *others], watch=watch)
    assert (watch.kind, watch.digest, watch.since) == (Sign.alike, SAME, START + half + 4)


def test_the_first_other_content_ends_an_incident():
    watch = HostWatch(1)
    found = verdicts([*(alike(i, i) for i in range(1, 6)), alike(6, 60), crawl(7, 61)], watch=watch)
    assert found[-3:] == [INCIDENT, INCIDENT, PLAIN]
    assert not watch.in_force
    assert watch.ended_at == START + 61


def test_content_of_a_crawl_before_the_last_sign_does_not_end_an_incident():
    watch = HostWatch(1)
    verdicts([*(absent(i, i) for i in range(1, 6)), crawl(7, 3)], watch=watch)
    assert watch.in_force


@pytest.mark.parametrize("outcome", [Outcome.failed, Outcome.elsewhere, Outcome.empty])
def test_other_crawls_without_content_neither_show_nor_end_an_incident(outcome):
    watch = HostWatch(1)
    found = verdicts([*(absent(i, i) for i in range(5)), crawl(9, 60, outcome)], watch=watch)
    assert (found[-1], watch.in_force) == (PLAIN, True)


def test_the_digest_of_an_incident_is_none_to_pages_that_had_it_before_either():
    watch, pages = HostWatch(1), known()
    pages[50].digest = SAME
    found = verdicts(
        [*(alike(i, i) for i in range(1, 6)), crawl(50, 60, digest=SAME)], pages, watch
    )
    assert (found[-1], watch.in_force) == (AS_BEFORE, True)
    assert watch.shown_at == START + 5


@pytest.mark.parametrize(
    ("kind", "before"),
    [
        (absent, {"answered": False, "outcome": int(Outcome.elsewhere)}),
        (absent, {"answered": False, "gone": True, "outcome": int(Outcome.absent)}),
        (refused, {"outcome": int(Outcome.refused)}),
    ],
)
def test_a_page_that_showed_the_sign_before_does_not_tell_whether_an_incident_goes_on(kind, before):
    watch, pages = HostWatch(1), known()
    pages[50] = known(51, **before)[50]
    found = verdicts([*(kind(i, i) for i in range(1, 6)), kind(50, 60)], pages, watch)
    assert (found[-1], watch.in_force, watch.n_pages) == (AS_BEFORE, True, 5)
    assert watch.shown_at == START + 5, "content of a crawl before this one ends the incident"


def test_after_a_day_the_sign_is_taken_as_it_is_until_there_is_content():
    watch, pages = HostWatch(1), known()
    hourly = [absent(i, 24 * hour * MINUTE) for hour in range(100) for i in range(9)]
    found = verdicts(hourly, pages, watch)
    after_a_day = [v for c, v in zip(hourly, found, strict=True) if c.at >= START + DAY]
    assert set(found[9 : -len(after_a_day)]) == {INCIDENT}
    assert set(after_a_day) == {PLAIN}
    assert watch.is_taken
    verdicts([crawl(1, 3 * DAY)], pages, watch)
    assert watch.is_over
    assert verdicts([absent(i, 4 * DAY) for i in range(9)], pages, watch)[-1] == INCIDENT


def test_a_site_that_deletes_most_of_its_pages_has_one_alarm_an_hour_at_most():
    watch, pages = HostWatch(1), known(1_000)
    # of ten pages in a row six are gone; one crawl in two seconds
    crawls = [(absent if i % 10 < 6 else crawl)(i, i * 2_000_000) for i in range(1_000)]
    found = verdicts(crawls, pages, watch)
    begun = sum(a != INCIDENT == b for a, b in pairwise(found))
    assert begun == 1
    assert found.count(INCIDENT) <= 2


def test_a_page_that_was_refused_before_is_no_sign():
    pages = known(outcome=int(Outcome.refused))
    assert set(verdicts([refused(i, i) for i in range(9)], pages)) == {PLAIN}


def test_a_page_that_never_answered_or_is_gone_is_no_sign_of_absence():
    for state in ({"answered": False}, {"answered": False, "gone": True}):
        assert set(verdicts([absent(i, i) for i in range(9)], known(**state))) == {PLAIN}


def twin(page_id, at):
    return crawl(page_id, at, digest=SAME, n_alike=page_id, before=3, doubtful=False)


def test_twins_that_change_together_are_not_doubtful():
    watch, pages = HostWatch(1), known(digest=3)
    others = [crawl(20 + i, 5 * i, digest=3) for i in range(50)]
    crawls = sorted([*others, *(twin(i, 10 * i + 1) for i in range(20))], key=lambda c: c.at)
    assert set(verdicts(crawls, pages, watch)) == {PLAIN}


def test_twins_are_an_incident_if_they_are_most_pages():
    pages, watch = known(digest=3), HostWatch(1)
    assert verdicts([twin(i, i) for i in range(4)], pages, watch) == [PLAIN] * 4
    assert verdicts([twin(4, 4)], pages, watch) == [INCIDENT]
    # page 0 was the first and shared the digest with nobody yet
    assert set(verdicts([twin(i, i) for i in range(9)], known(digest=3))[1:]) == {INCIDENT}


def test_a_doubt_is_over_after_an_hour():
    watch, pages = HostWatch(1), known()
    early = [alike(1, 0), alike(2, 1), alike(1, HOUR - 1)]
    assert verdicts(early, pages, watch) == [DOUBTFUL] * 3
    assert verdicts([alike(1, HOUR), alike(2, HOUR + 1)], pages, watch) == [PLAIN, PLAIN]
    assert pages[1].digest == SAME


def test_a_digest_is_counted_by_its_frequency_not_by_its_turn():
    watch = HostWatch(1)
    crawls = [alike(1, 0, digest=8)]
    crawls += [crawl(2 + i, 10 + i, digest=9, n_alike=1 + i, before=OWN) for i in range(6)]
    assert verdicts(crawls, watch=watch)[-1] == INCIDENT
    assert watch.digest == 9


def test_watches_survive_the_table():
    watches = [
        HostWatch(1),
        HostWatch(2, START, 5, 4, 3, 2, 1, -9, 8, 7, START, 1, START, START, NEVER, 6),
    ]
    assert list(watches_of(incidents_of(watches)).values()) == watches


events = st.lists(
    st.tuples(
        st.integers(0, 11),
        st.sampled_from(
            [
                *(Outcome.content, Outcome.absent, Outcome.moved),
                *(Outcome.refused, Outcome.failed),
            ]
        ),
        st.integers(1, 8 * MINUTE),
    ),
    max_size=60,
)


@dataclass
class Oracle:
    """The rules by sets: each page by its last crawl in the hour."""

    pages: dict
    opened: int | None = None
    shown: dict = field(default_factory=dict)
    first: dict = field(default_factory=dict)
    incident: Sign | None = None
    since: int = 0
    ended: int | None = None

    def judge(self, event):
        page, at = self.pages[event.page_id], event.at
        if self.opened is not None and at - self.opened >= HOUR:
            self.opened, self.shown = None, {}
        if self.incident and self.ended is not None and at - self.ended >= HOUR:
            self.incident = None
        signs = {name: Sign[name] for name in ("absent", "moved", "refused")}
        raw = signs.get(Outcome(event.outcome).name, Sign.none)
        if self.incident and self.ended is None:
            if raw == self.incident:
                was_refused = page.outcome == Outcome.refused and page.last_at < self.since
                if raw is Sign.refused and was_refused:
                    return AS_BEFORE
                if self.opened is not None:
                    self.shown[event.page_id] = (raw, Sign.none)
                return INCIDENT
            if event.outcome == Outcome.content:
                self.ended, self.opened, self.shown = at, None, {}
        new = page.outcome != Outcome.refused if raw is Sign.refused else page.answered
        sign = raw if new else Sign.none
        if self.opened is None and sign:
            self.opened, self.first = at, {}
        if self.opened is not None:
            was = self.shown.get(event.page_id)
            if not (was and was[0] == raw != Sign.none):
                self.shown[event.page_id] = (raw, sign)
                if was and all(shown != was[1] for _, shown in self.shown.values()):
                    self.first.pop(was[1], None)
                self.first.setdefault(sign, at)
            n = sum(shown == sign for _, shown in self.shown.values())
            rests = sign == self.incident and self.ended is not None
            if sign and not rests and n >= 5 and 2 * n > len(self.shown):
                self.incident, self.ended, self.since = sign, None, self.first[sign]
                self.opened, self.shown = None, {}
                return INCIDENT
        return PLAIN


@given(events)
def test_counts_are_those_of_sets_of_pages(steps):
    watch, pages, at = HostWatch(1), known(12), 0
    oracle = Oracle(pages)
    for page_id, outcome, wait in steps:
        at += wait
        event = crawl(page_id, at, outcome)
        expected = oracle.judge(event)
        # an event that follows the incident of a page takes its outcome from the verdict
        assert judged(watch, [event], pages) == [expected]
        if expected is INCIDENT and oracle.ended is None:
            assert watch.since == oracle.since
        if watch.opened_at != NEVER:
            assert watch.n_crawled == len(oracle.shown)


@given(events, st.integers(0, 60))
def test_a_watch_goes_on_where_it_was_stored(steps, cut):
    at, crawls = 0, []
    for page_id, outcome, wait in steps:
        at += wait
        crawls.append(crawl(page_id, at, outcome))
    once, pages = HostWatch(1), known(12)
    whole = judged(once, crawls, pages)
    first, again = HostWatch(1), known(12)
    parts = judged(first, crawls[:cut], again)
    (second,) = watches_of(incidents_of([first])).values()
    parts += judged(second, crawls[cut:], again)
    assert parts == whole
    assert second == once
