"""The checks of the campaign find what they look for, each in a history made up for it."""

import pytest
from msgspec.structs import replace

from benchmarks.faults.checker import CRAWLS, as_promised
from benchmarks.faults.feed_checks import followed, lags, received
from benchmarks.faults.history import (
    Answer,
    Book,
    Change,
    EpochList,
    Event,
    Fetch,
    Followed,
    Grant,
    History,
    Incident,
    Lease,
    LeaseRequest,
    Receipt,
    Received,
    Registration,
    Release,
    Report,
    Verdicts,
    Walk,
)
from benchmarks.faults.lease_checks import (
    crawled_again,
    leased_once,
    spaced_fetches,
    spaced_leases,
)
from benchmarks.faults.log_checks import counted_once, exactly_once, registered_once
from benchmarks.faults.schedule_checks import lasting_epochs, one_schedule, whole_epochs
from benchmarks.faults.verdicts import Final, Logged, State


def report(op: int, *items: tuple[int, int], lease: str = "", at: float = 0.0) -> Report:
    return Report(client="c", at=at, op=op, kind=CRAWLS, items=[*items], lease=lease)


def answer(op: int, accepted: int = 0, duplicate: int = 0, late: int = 0) -> Verdicts:
    return Verdicts(
        client="c", at=1.0, op=op, accepted=accepted, duplicate=duplicate, late=late, rejected=0
    )


def violations(log: list[tuple[int, int]], *events: Event) -> list[str]:
    return exactly_once(History(events), CRAWLS, log, "name").violations


def grant(client: str, asked_at: float, at: float, lease: Lease, ttl_s: float = 3.0) -> History:
    return History(
        [
            LeaseRequest(client=client, at=asked_at, op=0, ttl_s=ttl_s),
            Grant(client=client, at=at, op=0, leases=[lease]),
        ]
    )


def walk(client: str, epochs: list[int], pages: list[int], *, whole: bool = True) -> Walk:
    return Walk(client=client, at=0.0, epochs=epochs, pages=pages, whole=whole)


def test_acknowledged_reports_that_are_in_the_log_once_are_right():
    retried = [report(0, (1, 10), (2, 10)), report(1, (1, 10), (2, 10)), answer(1, duplicate=2)]
    assert violations([(1, 10), (2, 10)], *retried) == []
    assert (
        violations([(1, 10), (1, 20)], report(0, (1, 20)), report(1, (1, 10)), answer(1, 1)) == []
    )


def test_an_acknowledged_report_that_is_not_in_the_log_is_found():
    assert len(violations([], report(0, (1, 10)), answer(0, accepted=1))) == 2
    assert violations([(2, 10)], report(0, (1, 10), (2, 10)), answer(0, accepted=1, duplicate=1))
    assert violations([], report(0, (1, 10)), answer(0, duplicate=1))


def test_a_report_called_late_that_nothing_has_overtaken_is_found():
    late = [report(0, (1, 10)), answer(0, late=1)]
    newer = report(1, (1, 20))
    assert violations([(1, 20)], *late, newer) == []
    assert violations([], *late, newer)


def test_an_entry_that_is_twice_in_the_log_or_was_never_sent_is_found():
    assert violations([(1, 10), (1, 10)], report(0, (1, 10)), answer(0, accepted=1))
    assert violations([(1, 10)])


def test_a_report_that_was_accepted_twice_is_found():
    twice = [report(0, (1, 10)), answer(0, accepted=1), report(1, (1, 10)), answer(1, accepted=1)]
    assert violations([(1, 10)], *twice)


def test_an_entry_that_its_lease_has_dated_belongs_to_an_acknowledged_crawl_first():
    silent, acknowledged = report(0, (1, 5), lease="1-a"), report(1, (1, 10), lease="1-b")
    assert violations([(1, 15)], silent, acknowledged, answer(1, accepted=1)) == []


def test_a_crawl_may_be_dated_by_its_lease_but_not_before_it_was_made():
    leased = [report(0, (1, 10), lease="1-a"), answer(0, accepted=1)]
    assert violations([(1, 15)], *leased) == []
    assert violations([(1, 5)], *leased)
    assert violations([(1, 15)], report(0, (1, 10)), answer(0, accepted=1))


def test_a_leased_crawl_may_be_earlier_by_a_step_while_a_clock_is_away():
    step = Incident(client="hands", at=4.0, since=2.0, nemesis="step-clock")
    day = 86_400_000_000
    leased = report(0, (1, day + 10), lease="1-a", at=1.5)
    during, before = (replace(answer(0, accepted=1), at=at) for at in (2.5, 1.9))
    assert violations([(1, 10)], leased, during, step) == []
    assert violations([(1, 10)], leased, step) == [], "without an answer"
    assert violations([(1, 9)], leased, during, step), "earlier by more than the longest step"
    assert violations([(1, 10)], leased, before, step), "answered before the step"
    assert violations([(1, 10)], replace(leased, at=5.6), replace(during, at=5.7), step)
    assert violations([(1, 10)], replace(leased, lease=""), during, step), "without a lease"
    assert violations([(1, 10), (1, 20)], leased, during, step), "two entries for one crawl"
    assert violations([(1, 10)], leased, during), "no step of a clock"


def test_entries_are_given_to_crawls_so_that_most_crawls_have_one():
    step = Incident(client="hands", at=4.0, since=2.0, nemesis="step-clock")
    # the first one before the step, dated by its lease; the second one half a minute back
    first = [report(0, (1, 100_000_000), lease="1-a"), replace(answer(0, accepted=1), at=1.0)]
    second = [
        report(1, (1, 200_000_000), lease="1-b", at=2.5),
        replace(answer(1, accepted=1), at=2.6),
    ]
    assert violations([(1, 170_000_000), (1, 400_000_000)], *first, *second, step) == []
    assert violations([(1, 90_000_000), (1, 170_000_000)], *first, *second, step) == []
    assert violations([(1, 90_000_000), (1, 95_000_000)], *first, *second, step)


def wrong_states(state: State, *events: Event) -> list[str]:
    log = [
        Logged(1, 10, evidence=False, changed=False),
        Logged(1, 20, evidence=True, changed=True),
    ]
    return counted_once(History(events), Final(crawls=log, states={1: state})).violations


def test_a_state_that_is_not_what_its_log_adds_up_to_is_found():
    assert wrong_states(State(1, 1, 20)) == []
    for state in (State(2, 1, 20), State(1, 0, 20), State(1, 1, 10), State(1, 1, None)):
        assert wrong_states(state)


def test_a_state_may_be_older_than_its_log_only_after_a_step_of_a_clock():
    step = Incident(client="hands", at=1.0, since=0.0, nemesis="step-clock")
    assert wrong_states(State(1, 1, 15), step) == []
    assert wrong_states(State(1, 1, 25), step)
    assert wrong_states(State(2, 1, 15), step)


PAGE = Lease("1-a", 1, "h")
AGAIN = Lease("1-b", 1, "h")
NEIGHBOUR = Lease("2-c", 2, "h")


def test_a_page_under_two_leases_at_a_time_is_found():
    first = grant("a", 0.0, 0.1, PAGE)
    assert leased_once(History(first + grant("b", 2.0, 2.1, AGAIN))).violations
    assert leased_once(History(first + grant("b", 0.0, 0.2, AGAIN))).violations


@pytest.mark.parametrize(
    "end",
    [
        report(1, (1, 10), lease="1-a", at=1.0),
        Release(client="a", at=1.0, lease="1-a"),
    ],
)
def test_a_lease_that_may_have_ended_is_no_second_one(end):
    first, second = grant("a", 0.0, 0.1, PAGE), grant("b", 2.0, 2.1, AGAIN)
    assert leased_once(History([*first, end, *second])).violations == []
    much_later = grant("b", 2.0, 3.1, AGAIN)
    assert leased_once(History(first + much_later)).violations == []


def test_crawls_of_a_host_handed_out_within_its_delay_are_found():
    first = grant("a", 0.0, 0.1, PAGE)
    soon, perhaps = grant("b", 0.2, 0.25, NEIGHBOUR), grant("b", 0.2, 0.35, NEIGHBOUR)
    assert spaced_leases(History(first + soon), 0.3).violations
    assert spaced_leases(History(first + perhaps), 0.3).violations == []


def test_fetches_of_a_host_within_its_delay_are_found():
    fetches = [
        Fetch(client="a", at=at, page_id=1, host=host, lease="")
        for at, host in ((0.0, "h"), (0.1, "i"), (0.3, "h"), (0.5, "h"))
    ]
    assert spaced_fetches(History(fetches[:3]), 0.3).violations == []
    assert spaced_fetches(History(fetches), 0.3).violations


def test_epochs_that_are_not_whole_are_found():
    final = Final(epochs={7: 3})
    whole = walk("a", [7, 7], [1, 2, 3])
    assert whole_epochs(History([whole]), final).violations == []
    for pages in ([1, 2], [1, 2, 3, 3], [1, 2, 4], [1, 2, 3, 4]):
        assert whole_epochs(History([whole, walk("b", [7], pages)]), final).violations
    assert whole_epochs(History([walk("b", [7], [1], whole=False)]), final).checked == 0


def test_readers_between_two_schedules_are_found():
    assert one_schedule(History([walk("a", [7, 7], []), walk("a", [8], [])])).violations == []
    assert one_schedule(History([walk("a", [7, 8], [])])).violations
    assert one_schedule(History([walk("a", [8], []), walk("a", [7], [])])).violations


def test_published_epochs_that_change_or_vanish_are_found():
    def listing(*epochs: tuple[int, int, str]) -> EpochList:
        return EpochList(client="a", at=0.0, epochs=[*epochs])

    assert (
        lasting_epochs(
            History([listing((1, 5, "t")), listing((2, 6, "u"), (1, 5, "t"))])
        ).violations
        == []
    )
    assert lasting_epochs(History([listing((1, 5, "t")), listing((1, 6, "t"))])).violations
    assert lasting_epochs(History([listing((2, 5, "t")), listing((1, 5, "t"))])).violations
    assert lasting_epochs(History([listing((1, 5, "t"), (2, 5, "t"))])).violations


def test_acknowledged_pages_that_are_not_there_are_found():
    history = History(
        [
            Registration(client="a", at=0.0, op=0, urls=["https://a.example/"]),
            Receipt(client="a", at=0.1, op=0, page_ids=[4]),
        ]
    )
    assert registered_once(history, Final(pages={"https://a.example/": 4})).violations == []
    assert registered_once(history, Final(pages={"https://a.example/": 5})).violations
    assert registered_once(history, Final()).violations


def test_pages_that_are_never_handed_out_again_are_found():
    history = grant("a", 1.0, 1.1, PAGE)
    assert crawled_again(history, [1], healed_at=0.5).violations == []
    assert crawled_again(history, [1], healed_at=2.0).violations
    assert crawled_again(history, [1, 2], healed_at=0.5).violations == ["page 2"]


def test_answers_that_were_not_as_promised_are_found():
    fine = Answer(client="a", at=0.0, request="GET /", status=503)
    fault = Answer(client="a", at=0.0, request="GET /", status=500, complaint="500: b''")
    assert as_promised(History([fine])).violations == []
    assert as_promised(History([fine, fault])).violations


def test_a_history_is_read_in_the_order_of_time_from_the_files_of_all_clients(tmp_path):
    Book(tmp_path, "b").write(Release(client="b", at=1.0, lease="1-a"))
    Book(tmp_path, "a").write(walk("a", [1], [1, 2]))
    book = Book(tmp_path, "b")
    book.write(report(3, (1, 10), at=2.0))
    events = History.read(tmp_path)
    assert [type(event) for event in events] == [Walk, Release, Report]
    assert events.of(Report)[0].items == [(1, 10)]


LOG = [(1, 10, False, False), (1, 20, True, True), (1, 30, True, False), (2, 15, False, False)]
FED = Final(crawls=[Logged(*crawl) for crawl in LOG])
"""A database with three changes: both pages are new, and one of them changed."""


def part(*items: tuple[int, int], at: float = 0.0, wall: float = 1.0) -> Followed:
    changes = [Change(page, observed, observed + 1) for page, observed in items]
    return Followed(client="c", at=at, items=changes, wall=wall)


@pytest.mark.parametrize(
    ("items", "word"),
    [
        ([(1, 10), (2, 15)], "missing"),
        ([(1, 20), (1, 10), (2, 15)], "arrived after"),
        ([(1, 10), (1, 20), (2, 15), (1, 30)], "is no change"),
    ],
)
def test_a_change_that_a_reader_misses_reorders_or_invents_is_found(items, word):
    (wrong,) = followed(History([part(*items)]), FED).violations
    assert word in wrong


def test_a_reader_may_see_changes_again_and_pages_in_any_order():
    again = [part((2, 15), (1, 10)), part((1, 10), (1, 20)), part((1, 10))]
    verdict = followed(History(again), FED)
    assert (verdict.violations, verdict.checked) == ([], 3)


def test_a_webhook_without_a_signature_is_found():
    items = [Change(page, at, at) for page, at in [(1, 10), (1, 20), (2, 15)]]
    line = {"client": "c", "at": 0.0, "items": items, "wall": 1.0, "delivery": "msg_1"}
    assert received(History([Received(**line, signed=True)]), FED).violations == []
    (wrong,) = received(History([Received(**line, signed=False)]), FED).violations
    assert "msg_1 is not signed" in wrong


def test_after_a_step_of_a_clock_the_order_of_the_commits_counts():
    changes = [Change(1, 20, 21), Change(1, 10, 22), Change(2, 15, 23)]
    seen = Followed(client="c", at=0.0, items=changes, wall=1.0)
    assert followed(History([seen]), FED).violations
    step = Incident(client="hands", at=0.0, nemesis="step-clock", since=0.0)
    assert followed(History([seen, step]), FED).violations == []


def test_the_lag_is_that_of_the_first_arrival():
    parts = [part((1, 999_999), wall=1.5), part((1, 999_999), wall=9.0)]
    assert lags(History(parts))["follower p50"] == pytest.approx(0.5)
