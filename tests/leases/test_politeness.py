"""The rules of politeness on columns, each against the same rule for one host queue."""

from dataclasses import fields, replace
from datetime import datetime, timedelta
from math import ceil, isnan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.store_cases import T0, instants

from service.core.waits import backoff
from service.leases import host_settings, politeness
from service.leases.host_settings import Moves, in_force
from service.leases.pauses import TROUBLE_AFTER, ReportSummary, after_reports
from service.leases.politeness import Politeness
from service.model.arrays import COLUMN, INSTANT, NO_TIME, Floats, Instants, Ints, instant, moment
from service.model.domain import HostQueue
from service.storage.queue.columns import HostQueues

DAY_S = 86_400.0
DAY = timedelta(days=1)
NAN = float("nan")
FIELDS = fields(HostQueues)
NOTHING = {Ints: 0, Floats: NAN, Instants: None}

PAUSES = ("blocked_until", "paused_until")
moments = st.none() | st.integers(-3 * 86_400, 3 * 86_400).map(lambda s: T0 + timedelta(seconds=s))
delays = st.just(NAN) | st.floats(0.0, 2 * DAY_S)
polites = st.builds(Politeness, st.floats(0.0, 2 * DAY_S), st.integers(0, 5))
queues = st.fixed_dictionaries(
    {
        "min_delay_s": delays,
        "robots_delay_s": delays,
        "max_concurrency": st.integers(0, 5),
        "n_failures": st.integers(0, 40),
        **dict.fromkeys(PAUSES, moments),
        **dict.fromkeys(("paused_at", "ready_at", "next_at"), moments),
    }
)
reports = st.fixed_dictionaries(
    {
        "ended": st.booleans(),
        **dict.fromkeys(("last", "good", "ill", "asked", "queued"), moments),
        "n_ill": st.integers(1, 5),
        "slow": st.booleans(),
        "retry_after_s": st.floats(0.0, 3 * DAY_S),
        "in_incident": st.booleans(),
        "status": st.sampled_from([-1, 0, 200, 429, 500]),
    }
)


def host_queues(*rows):
    """Columns of host queues with the ids -1, 1, 2, …; a field left out has nothing."""
    queue_id = [-1, *range(1, len(rows))]
    rows = [{"queue_id": each, **row} for each, row in zip(queue_id, rows, strict=True)]
    return HostQueues(
        **{f.name: column(f.type, [r.get(f.name, NOTHING[f.type]) for r in rows]) for f in FIELDS}
    )


def column(kind, values):
    return instants(values) if kind == Instants else np.array(values, COLUMN[kind])


def row_of(columns, i):
    """One row of columns: datetimes and numbers."""
    return {name: cell(getattr(columns, name)[i]) for name in columns.__dataclass_fields__}


def cell(value):
    return moment(value) if isinstance(value, np.datetime64) else value.item()


def span(seconds):
    return timedelta(microseconds=ceil(seconds * 1e6))


def latest(*times):
    return max((at for at in times if at is not None), default=None)


def earliest(*times):
    return min((at for at in times if at is not None), default=None)


def delay_of(row, polite):
    own = polite.delay_s if isnan(row["min_delay_s"]) else row["min_delay_s"]
    robots = 0.0 if isnan(row["robots_delay_s"]) else row["robots_delay_s"]
    return min(max(own, robots), DAY_S)


def failures_of(row, report):
    """Count trouble report by report, as if a batch of one were sent each time, up to three."""
    n, ill, good = row["n_failures"], report["ill"], report["good"]
    rested = ill and row["paused_until"] and ill > row["paused_until"] + DAY
    if good or rested:
        n = 0
    if ill is None or (good and good > ill):
        return n
    n += 1
    for _ in range(0 if good or report["slow"] else report["n_ill"] - 1):
        if n < TROUBLE_AFTER:
            n += 1
    return n


def pause_of(row, report, n, now, uniform):
    """The end of the pause that reports cause; None: they cause none."""
    ill, good = report["ill"], report["good"]
    n_pauses = max(n, 1) if report["slow"] else n - 2
    failing = ill is not None and not (good and good > ill)
    until = None
    if report["slow"] or (failing and n_pauses >= 1):
        longest_s = 3_600.0 if report["in_incident"] else DAY_S
        pause_s = float(backoff(np.array(n_pauses), 60.0, longest_s, np.array(uniform)))
        until = (ill or now) + span(pause_s)
    if report["retry_after_s"]:
        asked = (report["asked"] or now) + span(min(report["retry_after_s"], DAY_S))
        until = latest(until, asked)
    longer = until and (row["paused_until"] is None or until > row["paused_until"])
    return until if longer else None


def after_report(row, report, polite, now, uniform):
    row = row | {"n_failures": failures_of(row, report)}
    until = pause_of(row, report, row["n_failures"], now, uniform)
    if until is not None:
        row |= {"paused_until": until, "paused_at": now, "paused_status": report["status"]}
    delay = span(delay_of(row, polite))
    if report["ended"] and delay and report["last"]:
        row["ready_at"] = latest(row["ready_at"], report["last"] + delay)
    limited = (row["max_concurrency"] or polite.concurrency) > 0
    first = earliest(row["next_at"], report["queued"])
    if report["ended"] and limited:
        first = earliest(first, now)
    opens = latest(row["ready_at"], row["blocked_until"], row["paused_until"])
    return row | {"next_at": None if first is None else latest(first, opens)}


@pytest.mark.dear
@given(
    rows=st.lists(
        st.tuples(queues, reports, st.floats(0.0, 1.0, exclude_max=True)), min_size=1, max_size=4
    ),
    polite=polites,
)
def test_reports_do_to_many_host_queues_what_they_do_to_one(rows, polite):
    before = host_queues(*(row for row, _, _ in rows))
    columns = {name: [report[name] for _, report, _ in rows] for name in ReportSummary._fields}
    dated = {name: instants(columns[name]) for name in ("last", "good", "ill", "asked", "queued")}
    plain = {name: np.array(columns[name]) for name in set(columns) - set(dated)}
    plain["n_ill"] = np.where(np.isnat(dated["ill"]), 0, plain["n_ill"])
    uniform = np.array([u for *_, u in rows])
    after = after_reports(before, ReportSummary(**dated, **plain), polite, instant(T0), uniform)
    for i, (_, report, u) in enumerate(rows):
        expected = after_report(row_of(before, i), report, polite, T0, u)
        np.testing.assert_equal(row_of(after, i), expected)


@given(st.lists(queues, min_size=1, max_size=4), polites)
def test_the_limits_shown_are_those_that_leases_keep(rows, polite):
    columns = host_queues(*rows)
    delay, concurrency = politeness.limits(columns, polite)
    shown = in_force([queue_of(row) for row in rows], polite)
    for i, (row, one) in enumerate(zip(rows, shown, strict=True)):
        assert one.delay_s == delay_of(row, polite) <= DAY_S
        assert delay[i] == np.timedelta64(span(one.delay_s), "us")
        assert one.concurrency == concurrency[i] == (row["max_concurrency"] or polite.concurrency)


def queue_of(row):
    own, robots = (None if isnan(row[n]) else row[n] for n in ("min_delay_s", "robots_delay_s"))
    return HostQueue(own, robots, row["max_concurrency"] or None, 0, *[None] * 4)


@given(
    rows=st.lists(queues, min_size=4, max_size=4),
    moves=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=4),
)
def test_a_host_queue_that_hosts_join_is_shut_as_long_as_those_that_they_leave(rows, moves):
    before = host_queues(*rows)
    left, joined = (
        before.queue_id[np.array([move[i] for move in moves], np.int64)] for i in (0, 1)
    )
    after = host_settings.inherit(
        before, Moves(host_id=np.arange(len(moves)), left=left, joined=joined)
    )
    for i in range(4):
        sources = [row_of(before, source) for source, target in moves if target == i]
        expected = row_of(before, i)
        for name in host_settings.SHUT_BY:
            expected[name] = latest(expected[name], *(source[name] for source in sources))
        np.testing.assert_equal(row_of(after, i), expected)


@given(st.lists(queues, min_size=3, max_size=3), delays, delays, polites)
def test_a_new_delay_counts_from_the_crawl_of_the_old_one(rows, own, robots, polite):
    before = host_queues(*rows)
    settings = {"min_delay_s": own, "robots_delay_s": robots}
    chosen = np.array([True, False, True])
    changed = host_settings.configure(before, chosen, settings)
    after = host_settings.keep_last_crawl(before, changed, chosen, polite)
    for i in range(3):
        old, new = row_of(before, i), row_of(after, i)
        if not chosen[i]:
            np.testing.assert_equal(new, old)
        elif old["ready_at"] is not None:
            crawled_at = old["ready_at"] - span(delay_of(old, polite))
            assert new["ready_at"] - span(delay_of(new, polite)) == crawled_at


def test_none_clears_a_setting_and_a_setting_left_out_stays():
    before = host_queues({"min_delay_s": 1.0, "robots_delay_s": 2.0, "max_concurrency": 3}, {})
    first = before.queue_id == -1
    cleared = host_settings.configure(before, first, {"min_delay_s": None, "max_concurrency": None})
    expected = row_of(before, 0) | {"min_delay_s": 0, "max_concurrency": 0}
    np.testing.assert_equal(row_of(cleared, 0) | {"min_delay_s": 0}, expected)
    assert np.isnan(cleared.min_delay_s).all()
    np.testing.assert_equal(row_of(cleared, 1), row_of(before, 1))


def test_a_group_follows_the_longest_delay_that_robots_txt_asks():
    before = host_queues({"robots_delay_s": 5.0}, {"robots_delay_s": 9.0})
    group = before.queue_id[:1]
    after = host_settings.follow_robots(before, group.repeat(2), np.array([7.0, 3.0]))
    assert after.robots_delay_s.tolist() == [7.0, 9.0]
    without = host_settings.follow_robots(before, group[:0], np.zeros(0))
    assert np.isnan(without.robots_delay_s[0])


def test_each_of_two_pauses_ends_alone():
    paused = host_queues({"paused_until": T0 + DAY, "paused_at": T0, "n_failures": 3}, {})
    row, at = paused.queue_id == -1, instant(T0)
    both = host_settings.pause(paused, row, "blocked_until", instant(T0 + 2 * DAY), at)
    assert both.paused_at[0] == at
    assert politeness.ends_of_pauses(both)[0] == instant(T0 + 2 * DAY)
    by_site = host_settings.pause(both, row, "blocked_until", NO_TIME, at)
    np.testing.assert_equal(row_of(by_site, 0), row_of(paused, 0))
    free = host_settings.pause(by_site, row, "paused_until", NO_TIME, at)
    assert (row_of(free, 0)["paused_at"], free.n_failures[0]) == (None, 3)
    np.testing.assert_equal(row_of(free, 1), row_of(paused, 1))


@pytest.mark.parametrize(
    ("next_at", "again", "filled"),
    [(None, None, T0), (T0 - DAY, T0 - DAY, T0), (T0 + DAY, T0, T0)],
)
def test_a_host_queue_is_looked_at_no_later_than_now(next_at: datetime, again, filled):
    before = host_queues({"next_at": next_at}, {"next_at": T0 + 2 * DAY})
    row, at = before.queue_id == -1, instant(T0)
    for rule, expected in ((host_settings.look_again, again), (host_settings.fill, filled)):
        after = rule(before, row, at)
        assert [moment(at) for at in after.next_at] == [expected, T0 + 2 * DAY]


def test_only_what_differs_is_saved():
    before = host_queues({"min_delay_s": 1.0}, {}, {"next_at": T0})
    after = replace(
        before,
        min_delay_s=np.array([NAN, NAN, NAN]),
        next_at=np.array([NO_TIME, instant(T0), instant(T0)], INSTANT),
    )
    assert politeness.differs(before, before).tolist() == [False] * 3
    assert politeness.differs(before, after).tolist() == [False, True, False]
    assert politeness.differs(before, after, politeness.SETTINGS).tolist() == [True, False, False]
