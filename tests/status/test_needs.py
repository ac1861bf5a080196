"""Each kind of needs by its condition: it arises, names its true begin, and ends."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.need_cases import DAY, HOUR, MINUTE, STEP, T0, WELL
from support.store_cases import instants

from service.budget.allotments import Terms
from service.model.incidents import Incident, Sign
from service.model.subscriptions import SubscriptionState, TroubledSubscription
from service.model.webhooks import TroubledWebhook
from service.status import needs as needs_module
from service.status.facts import StoppedGroup, WorkerFacts
from service.status.kinds import Found, NeedKind
from service.status.needs import KINDS, MOST_LISTED, Need, needs_of
from service.storage.epochs.contract import EpochFailures
from service.storage.history.measured import MeasuredStep
from service.storage.queue.signs import Asked, PausedQueue, ReturnedPages

MIDNIGHT = T0 - 12 * HOUR
HOOK = TroubledWebhook("h1", "https://hooks.example/secret", None, T0, has_confirmed=True)


def needs(facts, **values):
    return needs_of(replace(facts, **values))


def found(facts, **values):
    """Return the kinds, and the begin of each."""
    return [(each.kind, each.since) for each in needs(facts, **values)]


def epochs(**values):
    return WELL.epochs._replace(**values)


def crawlers(**values):
    return WELL.crawlers._replace(**values)


def test_nothing_needs_anybody_where_all_is_well():
    assert needs_of(WELL) == []


def test_an_epoch_is_late_after_three_intervals_since_the_next_was_due():
    begun = epochs(began_at=T0 - 30 * MINUTE)
    assert found(WELL, epochs=begun) == []
    (need,) = needs(WELL, epochs=begun._replace(began_at=T0 - 31 * MINUTE))
    assert (need.kind, need.since) == ("epoch_late", T0 - 21 * MINUTE)
    assert need.remedy == "recrawl worker"
    assert need.sentence == (
        "Start a worker: no epoch has begun for 31 minutes, and one is due every 10 minutes."
    )
    short = epochs(interval=MINUTE, began_at=T0 - 3 * MINUTE)
    assert found(WELL, epochs=short) == []
    late = short._replace(began_at=T0 - 4 * MINUTE)
    assert found(WELL, epochs=late) == [("epoch_late", T0 - 3 * MINUTE)]
    short = epochs(interval=MINUTE / 12, began_at=T0 - 2 * MINUTE)
    assert found(WELL, epochs=short) == [], "never before two minutes"
    (need,) = needs(WELL, epochs=epochs(began_at=T0 - DAY, runs=True, in_server=True))
    assert "an epoch has run for 24 hours" in need.sentence
    assert need.remedy == "recrawl epochs --limit 5"


def test_the_first_epoch_is_missed_ten_minutes_after_the_first_page():
    none = epochs(began_at=None)
    assert found(WELL, epochs=none) == [], "without pages, no epoch is due"
    assert found(WELL, epochs=none._replace(first_page_at=T0 - 9 * MINUTE)) == []
    since = T0 - 10 * MINUTE
    assert found(WELL, epochs=none._replace(first_page_at=since)) == [("epoch_late", since)]


def test_epochs_that_fail_are_shown_since_the_first_and_one_that_runs_again_is_not():
    since = T0 - HOUR
    one = epochs(failures=EpochFailures(1, since, "BandwidthInfeasible: minima take 9."))
    (need,) = needs(WELL, epochs=one)
    assert (need.kind, need.since) == ("epoch_failing", since)
    assert "the last epoch failed: BandwidthInfeasible: minima take 9. The old" in need.sentence
    assert found(WELL, epochs=one._replace(runs=True)) == []
    many = one._replace(failures=EpochFailures(3, since, "x"), runs=True)
    assert "the last 3 epochs failed: x." in needs(WELL, epochs=many)[0].sentence


def test_a_crawler_is_missed_ten_minutes_after_it_should_have_come():
    ready = T0 - HOUR
    asked = Asked(T0 - 20 * MINUTE, T0 - 20 * MINUTE)
    lost = crawlers(ready_since=ready, leases=asked)
    (need,) = needs(WELL, crawlers=lost)
    assert (need.kind, need.since) == ("no_crawler", asked.at)
    assert "due for 60 minutes, and no crawler has asked for leases for 20 minutes" in need.sentence
    told = asked._replace(until=T0 - 5 * MINUTE)
    assert found(WELL, crawlers=lost._replace(leases=told)) == [], "it waits as it was told"
    busy = lost._replace(leases_end=T0 + MINUTE)
    assert found(WELL, crawlers=busy) == [], "it holds leases"
    ended = lost._replace(leases_end=T0 - 11 * MINUTE)
    assert found(WELL, crawlers=ended) == [("no_crawler", T0 - 11 * MINUTE)]
    late_page = lost._replace(ready_since=T0 - 9 * MINUTE)
    assert found(WELL, crawlers=late_page) == [], "the page is due for nine minutes"
    assert found(WELL, crawlers=lost._replace(ready_since=None)) == [], "no work, or no budget"


def test_where_nobody_takes_leases_readers_and_reporters_have_a_day():
    ready = T0 - 3 * DAY
    never = crawlers(ready_since=ready)
    assert found(WELL, crawlers=never) == [("no_crawler", ready)]
    for hours, is_missed in ((23, False), (24, True)):
        at = T0 - hours * HOUR
        reads = never._replace(schedule=Asked(at, at))
        assert found(WELL, crawlers=reads) == ([("no_crawler", at)] if is_missed else [])
        assert bool(found(WELL, crawlers=never._replace(reported_by=at))) == is_missed
    leases = Asked(T0 - HOUR, T0 - HOUR)
    reads_too = never._replace(leases=leases, schedule=Asked(T0, T0))
    assert found(WELL, crawlers=reads_too) == []
    dead = reads_too._replace(schedule=None, reported_by=T0)
    assert found(WELL, crawlers=dead) == [("no_crawler", leases.at)], "reports do not replace it"


def test_a_host_is_shown_for_a_long_pause_or_many_failures_since_its_pause_began():
    pause = PausedQueue("a.example", False, T0 - MINUTE, T0 + MINUTE, 4)
    assert found(WELL, pauses=[pause]) == []
    for worse in (pause._replace(n_failures=5), pause._replace(until=T0 + HOUR)):
        (need,) = needs(WELL, pauses=[worse])
        assert (need.kind, need.subject, need.since) == ("host_paused", "a.example", pause.since)
    # the site asked for an hour from the crawl on, and the report came later
    asked = pause._replace(n_failures=1, until=pause.since + HOUR - timedelta(milliseconds=40))
    assert found(WELL, pauses=[asked]) == [("host_paused", pause.since)]
    (group,) = needs(WELL, pauses=[PausedQueue("g", True, T0, T0 + HOUR, 1)])
    assert group.remedy == "GET /groups/g"


def test_an_incident_is_shown_by_what_its_pages_show_and_not_as_failures():
    pause = PausedQueue("a.example", False, T0 - MINUTE, T0 + HOUR, 9)
    incident = ("a.example", Incident(Sign.alike, T0 - 3 * HOUR, 20))
    (need,) = needs(WELL, pauses=[pause], incidents=[incident])
    assert (need.kind, need.subject, need.since) == (
        "host_in_incident",
        "a.example",
        T0 - 3 * HOUR,
    )
    assert "20 pages have the same new content since 2026-05-08 09:00 UTC" in need.sentence
    assert "2026-05-09 09:00 UTC" in need.sentence


def test_a_subscription_is_shown_by_its_hosts_with_what_ends_it():
    one = TroubledSubscription(
        "https://user:pw@a.example/feed?token=1",
        "https://hub.example/x",
        SubscriptionState.active,
        T0 - 9 * DAY,
        T0 + 30 * HOUR,
        T0 - HOUR,
    )
    cases = {
        "its lease ends in 30 hours, and no renewal has succeeded": one,
        "its lease ended 2 hours ago": one._replace(
            state=SubscriptionState.ended, expires_at=T0 - 2 * HOUR
        ),
        "the hub denied it 60 minutes ago": one._replace(
            state=SubscriptionState.denied, expires_at=None
        ),
        "the hub has not verified it for 9 days": one._replace(
            state=SubscriptionState.pending, expires_at=None
        ),
    }
    for words, each in cases.items():
        (need,) = needs(WELL, subscriptions=[each])
        assert (need.kind, need.subject, need.since) == (
            "subscription_ending",
            "a.example",
            T0 - HOUR,
        )
        assert need.sentence == (
            f"Renew the subscription to a.example at the hub hub.example: {words}."
        )
        assert need.remedy == "recrawl websub list"


def test_more_than_three_of_a_kind_are_one_with_the_worst_and_the_first_begin():
    pauses = [
        PausedQueue(f"{n}.example", False, T0 - n * MINUTE, T0 + DAY, 9 - n) for n in range(5)
    ]
    assert [each.n for each in needs(WELL, pauses=pauses[:MOST_LISTED])] == [1] * MOST_LISTED
    (need,) = needs(WELL, pauses=pauses)
    assert (need.n, need.subject, need.since) == (5, "0.example", T0 - 4 * MINUTE)
    assert need.sentence.startswith("5 of this kind, the worst first. See what 0.example answers")
    assert need.remedy == "recrawl hosts list --paused"


def test_a_webhook_is_shown_after_ten_minutes_without_its_secret_address():
    assert found(WELL, webhooks=[HOOK._replace(since=T0 - 9 * MINUTE)]) == []
    failing = HOOK._replace(since=T0 - HOUR, has_confirmed=False)
    (need,) = needs(WELL, webhooks=[failing])
    assert (need.kind, need.since) == ("webhook_failing", T0 - HOUR)
    assert need.sentence == (
        "Mend the webhook at hooks.example: it has taken no change for 60 minutes, and it has "
        "never taken any."
    )
    (need,) = needs(WELL, webhooks=[HOOK._replace(reason="410 of https://hooks.example/secret")])
    assert (need.kind, need.since) == ("webhook_disabled", T0)
    assert need.remedy == 'PATCH /webhooks/h1 {"paused": false}'
    assert "secret" not in str(need)


# -- crawlers without a network


def test_crawls_that_no_host_answers_are_shown_from_the_first_of_them_on():
    answered = steps(MIDNIGHT, MIDNIGHT + HOUR, 5, n_failed=4)
    lost = steps(MIDNIGHT + HOUR, MIDNIGHT + 2 * HOUR, 5, n_failed=5)
    at = MIDNIGHT + 2 * HOUR
    (need,) = needs(WELL, steps=answered + lost, at=at)
    assert (need.kind, need.since) == ("crawls_failing", MIDNIGHT + HOUR)
    assert need.sentence == (
        "See whether your crawlers reach the web: all of their last 30 crawls, since "
        "2026-05-08 01:00 UTC, failed."
    )
    assert found(WELL, steps=answered + lost[:3], at=at) == [], "15 crawls are few"
    back = steps(at, at + STEP, 5, n_failed=4)
    assert found(WELL, steps=answered + lost + back, at=at) == []
    idle = steps(at, at + HOUR, 0)
    assert found(WELL, steps=lost + idle, at=at + HOUR) == [("crawls_failing", MIDNIGHT + HOUR)]
    kinds = [kind for kind, _ in found(WELL, steps=lost, at=at + DAY)]
    assert "crawls_failing" not in kinds, "nobody has reported for a day"


# -- the budget


def steps(first, last, each, budget=144.0, **values):
    """Return the steps of a time, each with so many leases and reports."""
    row = MeasuredStep(first, each, each, 0, 0, first, 100, 10, 0, budget, None)
    n = int((last - first) / STEP)
    return [
        row._replace(**{"at": first + i * STEP, "measured_at": first + (i + 1) * STEP, **values})
        for i in range(n)
    ]


def growing(first, last, a_step, n_pages=15_000, n_waiting=10_000):
    """Return steps whose pages without a first crawl grow, up to a number."""
    whole = steps(first, last, 0)
    return [
        step._replace(n_pages=n_pages, n_never_crawled=int(n_waiting - a_step * (len(whole) - n)))
        for n, step in enumerate(whole, 1)
    ]


def test_new_pages_that_grow_all_day_are_shown():
    trap = growing(T0 - 3 * DAY, T0, 10)
    (need,) = needs(WELL, steps=trap)
    assert (need.kind, need.since) == ("new_pages_grow", T0 - DAY)
    assert need.remedy == "recrawl url-groups list --limit 10"
    assert need.sentence == (
        "Stop the URL group with most waiting pages if it is a trap, or raise the budget: 10,000 "
        "of 15,000 pages were never crawled, 1,440 more than a day ago."
    )


@pytest.mark.parametrize(
    "sizes",
    [
        growing(T0 - DAY, T0, 10),
        growing(T0 - 3 * DAY, T0, -10),
        growing(T0 - 3 * DAY, T0, 0),
        growing(T0 - 3 * DAY, T0, 10, n_pages=25_000),
        growing(T0 - 3 * DAY, T0, 1, n_pages=1_000, n_waiting=999),
        growing(T0 - 3 * DAY, T0 - 12 * HOUR, 0, n_waiting=100) + growing(T0 - 12 * HOUR, T0, 100),
    ],
    ids=["first days", "shrinks", "stays", "few of all", "few", "an import of hours"],
)
def test_new_pages_of_an_import_are_not_shown(sizes):
    assert found(WELL, steps=sizes) == []


def test_an_unused_budget_is_shown_since_the_first_of_such_days():
    budget = Terms(144.0)
    good = steps(MIDNIGHT - 4 * DAY, MIDNIGHT - 2 * DAY, 1)
    idle = steps(MIDNIGHT - 2 * DAY, MIDNIGHT, 0)
    kinds = found(WELL, budget=budget, steps=good + idle)
    assert kinds == [("budget_unused", MIDNIGHT - 2 * DAY)]
    assert found(WELL, steps=good + idle) == [], "without a budget"
    (need,) = needs(WELL, budget=budget, steps=good + idle)
    assert "2026-05-07 used 0 of 144 crawls, while pages waited" in need.sentence
    nothing_due = [step._replace(n_overdue=1) for step in idle]
    assert found(WELL, budget=budget, steps=good + nothing_due) == [], "no pages waited"
    new = steps(MIDNIGHT - 20 * HOUR, MIDNIGHT, 0)
    assert found(WELL, budget=budget, steps=new) == [], "the first day is no whole day"
    smaller = Terms(100.0)
    busy = steps(MIDNIGHT - DAY, MIDNIGHT, 1, budget=100.0)
    assert found(WELL, budget=smaller, steps=good + busy)[0][0] == "budget_exceeded"


@pytest.mark.parametrize(("each", "kinds"), [(0.85, ["budget_unused"]), (0.95, []), (1.01, [])])
def test_a_day_of_money_is_judged_by_what_its_crawls_cost(each, kinds):
    money = steps(MIDNIGHT - 2 * DAY, MIDNIGHT, 7, budget=144.0, spent=round(each * 1e6))
    money = [step._replace(unit="USD") for step in money]
    terms = Terms(144.0, unit="USD")
    assert [kind for kind, _ in found(WELL, budget=terms, steps=money)] == kinds


def test_steps_before_a_change_of_unit_are_neither_beyond_the_budget_nor_unused():
    # the step of the change has amounts in both units, and the epoch of the new one
    since = MIDNIGHT + HOUR + timedelta(minutes=1)
    bytes_of = steps(MIDNIGHT - 2 * DAY, MIDNIGHT + HOUR, 1, budget=1e9, spent=8_190_000)
    mixed = steps(MIDNIGHT + HOUR, MIDNIGHT + HOUR + STEP, 1, budget=0.05, spent=8_190_000)
    money = steps(MIDNIGHT + HOUR + STEP, T0, 1, budget=0.05, spent=100)
    days = [each._replace(unit="bytes") for each in bytes_of]
    days += [each._replace(unit="USD") for each in mixed + money]
    budget = Terms(0.05, unit="USD")
    assert found(WELL, budget=budget, steps=days)[0][0] == "budget_exceeded"
    assert found(WELL, budget=budget, steps=days, unit_since=since) == []
    kinds = [
        kind for kind, _ in found(WELL, budget=budget, steps=days, unit_since=since, at=T0 + DAY)
    ]
    assert "budget_unused" not in kinds
    more = [each._replace(spent=100_000) for each in days]
    (kind, begin), *_ = found(WELL, budget=budget, steps=more, unit_since=since)
    assert (kind, begin) == ("budget_exceeded", MIDNIGHT + HOUR + STEP)


def test_an_exceeded_budget_is_shown_since_the_step_that_went_beyond():
    before = steps(MIDNIGHT - 3 * DAY, MIDNIGHT, 1)
    twice = steps(MIDNIGHT, T0, 4)
    # 147.9 crawls are within the tolerance: 37 steps of 4 are beyond
    since = MIDNIGHT + 36 * STEP
    (need,) = needs(WELL, budget=Terms(144.0), steps=before + twice)
    assert (need.kind, need.since) == ("budget_exceeded", since)
    assert "2026-05-08 took 288, but 144 crawls were allowed" in need.sentence
    next_day, after = T0 + 20 * HOUR, T0 + 40 * HOUR
    assert needs(WELL, budget=Terms(144.0), steps=before + twice, at=next_day)[-1].since == since
    kinds = [kind for kind, _ in found(WELL, budget=Terms(144.0), steps=twice, at=after)]
    assert "budget_exceeded" not in kinds, "it is over after the day that follows"


def test_a_loan_allows_days_of_more_and_several_days_of_no_more_than_it():
    days = steps(MIDNIGHT - 5 * DAY, MIDNIGHT, 2)
    assert found(WELL, budget=Terms(144.0, loan_days=5.0), steps=days) == []
    (need,) = needs(WELL, budget=Terms(144.0, loan_days=3.0), steps=days)
    assert need.kind == "budget_exceeded"
    assert "2026-05-03 to 2026-05-07 took 1,440, but 1,152 crawls" in need.sentence
    raised = [step._replace(budget=288.0) for step in days]
    assert found(WELL, budget=Terms(144.0), steps=raised) == [], "the budget of then counts too"


@given(st.lists(st.integers(0, 400), min_size=8, max_size=8), st.sampled_from([0.0, 1.0, 3.0]))
def test_days_are_beyond_where_any_sum_of_days_up_to_yesterday_or_today_is(used, loan):
    days = [replace_step(at=MIDNIGHT + (n - 7) * DAY, n_leased=each) for n, each in enumerate(used)]
    most = [100.0 * (d + loan) * 1.02 + 1.0 for d in range(1, 8)]
    beyond = [
        sum(used[end - d : end]) > most[d - 1] for end in (7, 8) for d in range(1, 8) if d <= end
    ]
    kinds = [kind for kind, _ in found(WELL, budget=Terms(100.0, loan), steps=days)]
    assert ("budget_exceeded" in kinds) == any(beyond)


def replace_step(**values):
    return steps(MIDNIGHT, MIDNIGHT + STEP, 0, budget=100.0)[0]._replace(**values)


# -- pages, groups, workers


def test_pages_without_content_are_shown_by_their_share_or_its_growth():
    def shares(*parts):
        first, rows = MIDNIGHT - 3 * DAY, []
        for hours, n in parts:
            rows += steps(first, first + hours * HOUR, 1, n_no_content=n)
            first += hours * HOUR
        return rows

    high = shares((24, 3), (12, 20))
    (need,) = needs(WELL, steps=high)
    assert (need.kind, need.since) == ("no_content", MIDNIGHT - 2 * DAY + STEP)
    assert need.sentence == "See why 20 pages, 20% of all, got no content."
    assert found(WELL, steps=[*high, high[0]._replace(at=T0)]) == []
    grown = shares((24, 3), (12, 9))
    assert found(WELL, steps=grown) == [("no_content", MIDNIGHT - 2 * DAY + STEP)]
    assert found(WELL, steps=shares((24, 3), (26, 9))) == [], "it has stood there for a day"
    few = [step._replace(n_pages=12, n_no_content=4) for step in grown]
    assert found(WELL, steps=few) == [], "four pages are too few"


def test_a_stopped_group_is_shown_with_what_its_crawls_brought():
    (need,) = needs(WELL, stopped=[StoppedGroup("a.example/q", T0 - DAY, 19, 1)])
    assert (need.kind, need.subject, need.since) == ("url_groups_stopped", "a.example/q", T0 - DAY)
    assert "1 of its 19 first crawls brought something new" in need.sentence


def test_a_group_that_robots_txt_forbids_is_to_be_stopped_and_not_admitted():
    (need,) = needs(WELL, stopped=[StoppedGroup("a.example/private/#?", T0 - DAY, 5, 0, 5)])
    assert need.sentence == (
        "Stop a.example/private/#? for good: robots.txt forbids 5 of its 5 first crawls, so its "
        "new pages wait."
    )
    assert need.remedy == "recrawl url-groups stop 'a.example/private/#?'"


def test_a_worker_that_loses_most_of_its_leases_is_shown_since_the_first_of_the_run():
    lost_at = [T0 - n * 5 * MINUTE for n in range(20)]
    worker = WorkerFacts("w", 3, instants([*lost_at, T0 - DAY]))
    (need,) = needs(WELL, workers=[worker], n_workers=1, n_leased=20)
    assert (need.kind, need.subject, need.since) == ("worker_losing", "w", lost_at[-1])
    assert "it lost 13 leases in the last hour" in need.sentence
    assert found(WELL, workers=[worker], n_workers=1, n_leased=100) == [], "most were reported"
    assert found(WELL, workers=[worker], n_workers=4, n_leased=100) != [], "of 25 it lost 13"
    assert found(WELL, workers=[worker._replace(n_running=30)], n_workers=1, n_leased=20) == []
    old = WorkerFacts("w", 0, instants([T0 - n * HOUR for n in range(2, 30)]))
    assert found(WELL, workers=[old], n_workers=1) == [], "pages that are tried daily"


def test_a_worker_that_returns_pages_again_and_again_is_shown_and_told_to_read_its_log():
    returned = [ReturnedPages("news", 2, T0 - HOUR), ReturnedPages("shop", 1, T0)]
    first, second = needs(WELL, returned=returned)
    assert (first.kind, first.subject, first.since) == ("leases_returned", "news", T0 - HOUR)
    assert first.sentence.startswith("Read the log of news: it has returned the leases of 2 pages")
    assert "the leases of 1 page again" in second.sentence


def test_a_kind_is_added_by_a_function_and_a_row(monkeypatch):
    def closed(facts):
        yield Found("a.example", facts.at, {"host": "a.example"})

    row = NeedKind("window_closed", closed, "Open {host}.", "recrawl hosts list")
    monkeypatch.setattr(needs_module, "KINDS", (*KINDS, row))
    assert needs_of(WELL) == [
        Need("window_closed", "a.example", T0, "Open a.example.", "recrawl hosts list")
    ]


def test_kinds_have_a_sentence_with_what_to_do_and_a_remedy():
    assert len({kind.name for kind in KINDS}) == len(KINDS)
    assert all(kind.sentence.endswith(".") and kind.remedy for kind in KINDS)
