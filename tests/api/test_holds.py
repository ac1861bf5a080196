"""What holds a page now: every kind of hold, and one first reason whatever the facts are."""

import re
from dataclasses import replace
from datetime import timedelta
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.test_why import AT, PAGE
from recrawl_client.wire.pages import HoldKind
from service.api.holds.facts import (
    Cap,
    CrawlersNow,
    HostNow,
    LeaseNow,
    PageNow,
    Pause,
    Standstill,
    Turn,
)
from service.api.holds.hold import Hold
from service.api.holds.rules import hold_of_page
from service.leases.unfinished import UnfinishedPage
from service.model.arrays import LATEST
from service.model.domain import Observability
from service.model.outcomes import ROBOTS_DENIED, Outcome
from service.model.unfinished import Ending

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
NOW = AT + DAY
HOST = HostNow(name="a.example")
ASKED = CrawlersNow(NOW - MINUTE, NOW + 9 * MINUTE)
UNASKED = ASKED._replace(unasked_host="a.example", unasked_since=NOW - 25 * MINUTE)
TURN = Turn(now=NOW, host=HOST, crawlers=ASKED)
DUE = PageNow(page=PAGE, due_at=NOW - HOUR, retired=False)
LATER = replace(DUE, due_at=NOW + 2 * HOUR)
IN_2_HOURS = "in 2 hours, at 2026-05-02 02:00 UTC"
CLOSED = (
    "window closed until 2026-05-02 01:00 UTC, 60 minutes from now, by the windows of a.example"
)
EXPIRED = UnfinishedPage(3, Ending.expired, "w7", NOW - HOUR, NOW + 2 * HOUR)
ENDED = Standstill(NOW - 2 * HOUR, queue_ended=True, in_server=False)
LATE = ENDED._replace(queue_ended=False)
SHARELESS = "it has no share of the budget, and is tried ever more rarely, next"


def of(page=DUE, turn=TURN, **state) -> tuple[PageNow, Turn]:
    return replace(page, page=replace(page.page, **state)), turn


def at_host(**host) -> Turn:
    return replace(TURN, host=replace(HOST, **host))


CASES = {
    "ready": (
        of(),
        "ready",
        (
            "Nothing to do: it was due 60 minutes ago, at 2026-05-01 23:00 UTC, and the next "
            "request for leases gets it"
        ),
    ),
    "leased": (
        of(replace(DUE, lease=LeaseNow("w7", NOW + HOUR))),
        "leased",
        (
            "Nothing to do: the worker w7 crawls it, under a lease that ends in 60 minutes, at "
            "2026-05-02 01:00 UTC"
        ),
    ),
    "set aside": (
        of(replace(DUE, unfinished=EXPIRED)),
        "set_aside",
        (
            "See whether the worker w7 still runs, and whether it fails at this page: its last 3 "
            "leases ended without a report, the last one expired without a report; it is set "
            f"aside and tried once a day, next {IN_2_HOURS}"
        ),
    ),
    "unreported": (
        of(replace(DUE, unfinished=replace(EXPIRED, n=1, ending=Ending.refused))),
        "unreported",
        (
            "Correct the reports of the worker w7, whose answers name item, field and remedy: "
            f"its last lease got a report that was refused; it is tried {IN_2_HOURS}"
        ),
    ),
    "retired": (
        of(replace(DUE, due_at=None, retired=True), gone=True, n_failures=7),
        "retired",
        (
            "Nothing to do: it is gone, as its last 7 crawls found, so it is crawled no more; a "
            "ping or POST /pages with its url has it crawled once more"
        ),
    ),
    "unlinked": (
        of(replace(DUE, due_at=None, retired=True), hops=-1),
        "retired",
        (
            "Nothing to do: only redirects led to it, and no page redirects to it any more, so "
            "it is crawled no more; a ping or POST /pages with its url has it crawled"
        ),
    ),
    "stopped": (
        of(
            replace(DUE, due_at=None, stopped_at="a.example/tag"),
            held=True,
            url="https://a.example/tag?a=1&b=2",
        ),
        "stopped",
        (
            "Admit its URL group by `recrawl url-groups admit a.example/tag`, or this page by "
            "`recrawl pages recrawl --url 'https://a.example/tag?a=1&b=2'`, if you want it "
            "crawled: first crawls of a.example/tag have brought too little that is new"
        ),
    ),
    "stopped, and requested": (
        of(replace(DUE, stopped_at="a.example/tag"), held=True, requested_at=NOW - HOUR),
        "ready",
        (
            "Nothing to do: it was due 60 minutes ago, at 2026-05-01 23:00 UTC, and the next "
            "request for leases gets it"
        ),
    ),
    "stopped by a rule, requested, and nobody crawls": (
        of(
            replace(DUE, stopped_at="a.example/tag", stop_by_rule=True),
            replace(TURN, crawlers=CrawlersNow()),
            held=True,
        ),
        "no_crawler",
        "Start a crawler: no crawler has ever asked for leases or read the schedule",
    ),
    "stopped by a rule": (
        of(replace(DUE, due_at=None, stopped_at="a.example/tag", stop_by_rule=True), held=True),
        "stopped",
        (
            "End the rule by `recrawl url-groups learn a.example/tag` if you want it crawled: a "
            "rule of an operator stops the first crawls of a.example/tag"
        ),
    ),
    "stopped by robots.txt": (
        of(replace(DUE, due_at=None, stopped_at="a.example/tag/?", stop_forbidden=True), held=True),
        "stopped",
        (
            "Stop its URL group by `recrawl url-groups stop 'a.example/tag/?'` for good, or "
            "delete the page: robots.txt forbids most of the first crawls of a.example/tag/?"
        ),
    ),
    "waits for its group": (
        of(replace(DUE, due_at=None), held=True),
        "waits_for_group",
        (
            "Nothing to do: it waits for its first crawl; pages of its URL group are crawled "
            "first, and their crawls admit more"
        ),
    ),
    "waits for the next round": (
        of(replace(DUE, due_at=None, admits_at=NOW), held=True),
        "waits_for_group",
        (
            "Nothing to do: it waits for its first crawl; no page of its URL group is admitted "
            "now, and the service admits some in its next round, or after the next epoch if that "
            "comes first"
        ),
    ),
    "waits for a later round, and nobody crawls": (
        of(
            replace(DUE, due_at=None, admits_at=NOW + 2 * HOUR),
            replace(TURN, crawlers=CrawlersNow()),
            held=True,
        ),
        "waits_for_group",
        (
            "Start a crawler: it waits for its first crawl; no page of its URL group is admitted "
            f"now, and the service admits some {IN_2_HOURS}, or after the next epoch if that comes "
            "first; no crawler has ever asked for leases or read the schedule"
        ),
    ),
    "waits for its group, whose host is paused": (
        of(
            replace(DUE, due_at=None),
            at_host(pauses=(Pause(LATEST, "operator", "a.example"),)),
            held=True,
        ),
        "waits_for_group",
        (
            "End the pause by `recrawl hosts resume a.example` if its pages shall be crawled: it "
            "waits for its first crawl; pages of its URL group are crawled first, and their crawls "
            "admit more; an operator has paused a.example until an operator ends the pause"
        ),
    ),
    "waits for its group, and nobody crawls": (
        of(replace(DUE, due_at=None), replace(TURN, crawlers=CrawlersNow()), held=True),
        "waits_for_group",
        (
            "Start a crawler: it waits for its first crawl; pages of its URL group are crawled "
            "first, and their crawls admit more; no crawler has ever asked for leases or read the "
            "schedule"
        ),
    ),
    "only pings": (
        of(replace(DUE, due_at=None), observability=Observability.complete),
        "unscheduled",
        "Nothing to do: only a ping leads to a crawl of it",
    ),
    "no epoch": (
        of(replace(DUE, due_at=None), crawl_rate=None),
        "unscheduled",
        "Nothing to do: the next epoch schedules it",
    ),
    "crawled first since the epoch": (
        of(
            replace(DUE, due_at=None, planned_at=AT - MINUTE),
            crawl_rate=0.0,
            n_observations=0,
        ),
        "unscheduled",
        "Nothing to do: the next epoch schedules it",
    ),
    "past crawls reported since the epoch": (
        of(
            replace(DUE, due_at=None, planned_at=AT + HOUR, all_have_shares=True),
            crawl_rate=0.0,
            n_observations=2,
        ),
        "unscheduled",
        "Nothing to do: the next epoch schedules it",
    ),
    "of no importance": (
        of(
            replace(DUE, due_at=None, planned_at=AT + HOUR, all_have_shares=True),
            crawl_rate=0.0,
            n_observations=2,
            importance=0.0,
        ),
        "unscheduled",
        (
            "Raise the budget or its importance if it shall be crawled: other pages gain more "
            "from the budget, so it has no share of it"
        ),
    ),
    "crawled first before the epoch": (
        of(replace(DUE, due_at=None, planned_at=AT + HOUR), crawl_rate=0.0, n_observations=0),
        "unscheduled",
        (
            "Raise the budget or its importance if it shall be crawled: other pages gain more "
            "from the budget, so it has no share of it"
        ),
    ),
    "gone and due for a check": (
        of(gone=True, n_failures=2),
        "ready",
        (
            "Nothing to do: it is gone, as its last 2 crawls found; another check of it is due; it "
            "was due 60 minutes ago, at 2026-05-01 23:00 UTC, and the next request for leases gets "
            "it"
        ),
    ),
    "no share": (
        of(replace(DUE, due_at=None), crawl_rate=0.0),
        "unscheduled",
        (
            "Raise the budget or its importance if it shall be crawled: other pages gain more "
            "from the budget, so it has no share of it"
        ),
    ),
    "dear": (
        of(
            replace(DUE, due_at=None, unit="USD"),
            crawl_rate=0.0,
            outcome=Outcome.offered,
            cost=0.00002,
        ),
        "unscheduled",
        (
            "Raise the budget if it shall be crawled: its site asks a price of 0.00002 USD for a "
            "crawl, and other pages gain more from it"
        ),
    ),
    "asked a price": (
        of(replace(LATER, unit="USD"), outcome=Outcome.offered, cost=0.002, last_observed_at=None),
        "not_due",
        (
            "Run `recrawl pages recrawl --url URL` to pay it sooner: its site asks a price of "
            "0.002 USD for a crawl, and it has had no content yet; the next crawl may pay it, and "
            f"is due {IN_2_HOURS}"
        ),
    ),
    "asked a price and due": (
        of(replace(DUE, unit="USD"), outcome=Outcome.offered, cost=0.002, last_observed_at=AT),
        "ready",
        (
            "Nothing to do: its site asks a price of 0.002 USD for a crawl; it was due 60 minutes "
            "ago, at 2026-05-01 23:00 UTC, and the next request for leases gets it"
        ),
    ),
    "paused by its site": (
        of(turn=at_host(pauses=(Pause(NOW + 2 * MINUTE, "site", "a.example"),))),
        "host_paused",
        (
            "Nothing to do: a.example is paused until 2026-05-02 00:02 UTC, 2 minutes from now, "
            "because it asked for a pause (429, 503, Retry-After), failed or did not answer"
        ),
    ),
    "paused by an operator beyond its due time": (
        of(LATER, at_host(pauses=(Pause(NOW + 3 * HOUR, "operator", "the group g"),))),
        "host_paused",
        (
            "End the pause by `recrawl hosts resume` and one of its hosts if its pages shall be "
            "crawled: "
            "an operator has paused the group g "
            "until 2026-05-02 03:00 UTC, 3 hours from now"
        ),
    ),
    "outside of its windows": (
        of(turn=at_host(closed_until=NOW + 3 * HOUR)),
        "window_closed",
        (
            "Nothing to do: window closed until 2026-05-02 03:00 UTC, 3 hours from now, by the "
            "windows of a.example"
        ),
    ),
    "in a blackout": (
        of(turn=at_host(closed_until=NOW + 3 * HOUR, closed_by="blackouts")),
        "window_closed",
        (
            "Nothing to do: window closed until 2026-05-02 03:00 UTC, 3 hours from now, by the "
            "blackouts of a.example"
        ),
    ),
    "without any window": (
        of(turn=at_host(closed_until=NOW + 400 * 24 * HOUR, is_never_open=True)),
        "window_closed",
        (
            "Change its windows or blackouts by `recrawl hosts set`: no window of a.example opens "
            "within a year"
        ),
    ),
    "due before the closing, and spread after the opening": (
        of(LATER, at_host(closed_until=NOW + HOUR), due_rate=2.0),
        "window_closed",
        f"Nothing to do: {CLOSED}; it is due {IN_2_HOURS}",
    ),
    "requested in a closure": (
        of(LATER, at_host(closed_until=NOW + HOUR), requested_at=NOW - HOUR),
        "window_closed",
        f"Nothing to do: {CLOSED}; it is due {IN_2_HOURS}",
    ),
    "registered in a closure": (
        of(LATER, at_host(closed_until=NOW + HOUR), last_crawl_at=None),
        "window_closed",
        f"Nothing to do: {CLOSED}; it is due {IN_2_HOURS}",
    ),
    "tried again after the opening": (
        of(LATER, at_host(closed_until=NOW + HOUR), due_rate=2.0, gone=True, n_failures=2),
        "not_due",
        (
            "Nothing to do: it is gone, as its last 2 crawls found; it is checked ever more "
            f"rarely, next {IN_2_HOURS}"
        ),
    ),
    "due after the opening of its window": (
        of(LATER, at_host(closed_until=NOW + HOUR)),
        "not_due",
        f"Nothing to do: it is due {IN_2_HOURS}",
    ),
    "paused for ever": (
        of(turn=at_host(pauses=(Pause(LATEST, "operator", "a.example"),))),
        "host_paused",
        (
            "End the pause by `recrawl hosts resume a.example` if its pages shall be crawled: "
            "an operator has paused a.example until "
            "an operator ends the pause"
        ),
    ),
    "paused less long than it waits": (
        of(LATER, at_host(pauses=(Pause(NOW + HOUR, "operator", "a.example"),))),
        "not_due",
        f"Nothing to do: it is due {IN_2_HOURS}",
    ),
    "gone": (
        of(LATER, gone=True, n_failures=2, redirects_to=7),
        "not_due",
        (
            "Nothing to do: it has moved, as its last 2 crawls found; it is checked ever more "
            f"rarely, next {IN_2_HOURS}"
        ),
    ),
    "failed once": (
        of(replace(LATER, status=503), n_failures=1, outcome=Outcome.failed),
        "not_due",
        f"Nothing to do: its last crawl failed with status 503; it is tried again {IN_2_HOURS}",
    ),
    "absent once": (
        of(replace(LATER, status=404), n_failures=1, outcome=Outcome.absent),
        "not_due",
        (
            "Nothing to do: its last crawl got no content, because it seems to be gone, which a "
            f"second look confirms; it is tried again {IN_2_HOURS}; a second look within an hour, "
            "or within its interval if shorter, does not confirm it"
        ),
    ),
    "never had content": (
        of(replace(LATER, status=0), n_failures=2, outcome=Outcome.failed, last_observed_at=None),
        "not_due",
        (
            "Nothing to do: its last 2 crawls got no answer; it has had no content yet, and is "
            f"tried again {IN_2_HOURS}"
        ),
    ),
    "refused": (
        of(LATER, n_failures=3, outcome=Outcome.refused),
        "not_due",
        (
            "Have your crawler let in, or delete the page: its last 3 crawls got no content, "
            f"because the site refuses it; {SHARELESS} {IN_2_HOURS}"
        ),
    ),
    "forbidden, and due": (
        of(replace(DUE, status=ROBOTS_DENIED), n_failures=3, outcome=Outcome.refused),
        "ready",
        (
            "Ask its site for leave, or delete the page: its last 3 crawls got no content, "
            "because robots.txt forbids it; it was due 60 minutes ago, at 2026-05-01 23:00 UTC, "
            "and the next request for leases gets it"
        ),
    ),
    "asked for payment": (
        of(replace(LATER, status=402), n_failures=3, outcome=Outcome.refused),
        "not_due",
        (
            'Set a budget of money, such as by `recrawl budget set "5 USD"`, and report the price '
            "of the page, or delete it: its last 3 crawls got no content, because the site asks "
            f"for payment (402); {SHARELESS} {IN_2_HOURS}"
        ),
    ),
    "redirected": (
        of(LATER, n_failures=3, outcome=Outcome.elsewhere, hops=5),
        "not_due",
        (
            "Register the page behind the redirect in its place, or delete it: its last 3 crawls "
            "got no content, because it redirects elsewhere, 5 redirects away from a page that "
            f"was asked for, which is the maximum; {SHARELESS} {IN_2_HOURS}"
        ),
    ),
    "cap": (
        of(turn=at_host(cap=Cap("a.example", 50.0, NOW + DAY))),
        "cap",
        (
            "Raise the cap if more of its pages shall be crawled a day: a.example has had its "
            "crawls of today by its cap of 50 a day, and goes on in 24 hours, at 2026-05-03 "
            "00:00 UTC"
        ),
    ),
    "cap of first crawls": (
        of(turn=at_host(cap=Cap("the group g", 2.5, NOW + DAY, of_first=True))),
        "cap",
        (
            "Raise the cap if more of its pages shall be crawled a day: the group g has had its "
            "first crawls of today by its cap of 2.5 a day, and goes on in 24 hours, at "
            "2026-05-03 00:00 UTC"
        ),
    ),
    "budget": (
        of(turn=replace(TURN, spent_until=NOW + DAY)),
        "budget",
        (
            "Wait, or raise the budget: the budget is spent until 2026-05-03 00:00 UTC, 24 hours "
            "from now"
        ),
    ),
    "income": (
        of(turn=replace(TURN, spent_until=NOW + HOUR, each_s=7_200.0)),
        "income",
        (
            "Wait, or raise the budget: the budget has spent its income so far; it allows the "
            "next crawl in 60 minutes, at 2026-05-02 01:00 UTC, then one each 2 hours"
        ),
    ),
    "due later, before the budget has room": (
        of(LATER, replace(TURN, spent_until=NOW + DAY)),
        "budget",
        (
            f"Wait, or raise the budget: it is due {IN_2_HOURS}; the budget is spent until "
            "2026-05-03 00:00 UTC, 24 hours from now"
        ),
    ),
    "due later, before the income of a crawl": (
        of(LATER, replace(TURN, spent_until=NOW + 3 * HOUR, each_s=7_200.0)),
        "income",
        (
            f"Wait, or raise the budget: it is due {IN_2_HOURS}; the budget has spent its income "
            "so far; it allows the next crawl in 3 hours, at 2026-05-02 03:00 UTC, then one each "
            "2 hours"
        ),
    ),
    "due once the budget has room": (
        of(LATER, replace(TURN, spent_until=NOW + 2 * HOUR)),
        "not_due",
        f"Nothing to do: it is due {IN_2_HOURS}",
    ),
    "due after the end of the queue, without budget": (
        of(LATER, replace(TURN, standstill=ENDED, spent_until=NOW + DAY)),
        "not_due",
        (
            f"Start `recrawl worker`, or see its log if it runs: it is due {IN_2_HOURS}; the queue "
            "of due pages ended 2 hours ago, at 2026-05-01 22:00 UTC"
        ),
    ),
    "first crawls": (
        of(turn=replace(TURN, first_spent_until=NOW + DAY)),
        "budget",
        (
            "Wait, or raise the budget or RECRAWL_FIRST_SHARE: first crawls of new pages have had "
            "their part of the budget of today, and go on in 24 hours, at 2026-05-03 00:00 UTC"
        ),
    ),
    "too dear": (
        of(turn=replace(TURN, spent_until=LATEST)),
        "budget",
        (
            "Raise the budget if it shall be crawled: one crawl of it costs more than the budget "
            "of a day"
        ),
    ),
    "not queued": (
        of(replace(DUE, in_queue=False), replace(TURN, standstill=ENDED)),
        "no_worker",
        (
            "Start `recrawl worker`, or see its log if it runs: it is due, and the queue of due "
            "pages ended 2 hours ago, at 2026-05-01 22:00 UTC"
        ),
    ),
    "queued before the end": (
        of(turn=replace(TURN, standstill=ENDED)),
        "ready",
        (
            "Nothing to do: it was due 60 minutes ago, at 2026-05-01 23:00 UTC, and the next "
            "request for leases gets it"
        ),
    ),
    "due after the end of the queue": (
        of(LATER, replace(TURN, standstill=ENDED._replace(in_server=True))),
        "not_due",
        (
            f"See the log of `recrawl serve`, which runs epochs: it is due {IN_2_HOURS}; the queue "
            "of due pages ended 2 hours ago, at 2026-05-01 22:00 UTC"
        ),
    ),
    "due later, without epochs": (
        of(LATER, replace(TURN, standstill=LATE)),
        "not_due",
        f"Nothing to do: it is due {IN_2_HOURS}",
    ),
    "waits for an epoch that is late": (
        of(replace(DUE, due_at=None), replace(TURN, standstill=LATE), crawl_rate=None),
        "unscheduled",
        (
            "Start `recrawl worker`, or see its log if it runs: the next epoch schedules it; an "
            "epoch was due 2 hours ago, at 2026-05-01 22:00 UTC, and none has been published since"
        ),
    ),
    "no crawler yet": (
        of(turn=replace(TURN, crawlers=CrawlersNow())),
        "no_crawler",
        "Start a crawler: no crawler has ever asked for leases or read the schedule",
    ),
    "no crawler any more": (
        of(turn=replace(TURN, crawlers=CrawlersNow(NOW - 12 * MINUTE, NOW - 2 * MINUTE))),
        "no_crawler",
        "Start a crawler: no crawler has asked for leases or read the schedule for 12 minutes",
    ),
    "no crawler for the host": (
        of(turn=replace(TURN, crawlers=UNASKED)),
        "no_crawler",
        (
            "Start a crawler that asks for a.example: no crawler has asked for a.example for 25 "
            "minutes"
        ),
    ),
    "a lease of the host runs": (
        of(turn=replace(at_host(n_running=1), crawlers=UNASKED)),
        "ready",
        (
            "Nothing to do: it was due 60 minutes ago, at 2026-05-01 23:00 UTC, and the next "
            "request for leases gets it"
        ),
    ),
    "behind a lease whose worker may be gone": (
        of(
            turn=at_host(
                delay_s=30.0,
                concurrency=1,
                n_running=1,
                n_before=5,
                lease=LeaseNow("w7", NOW + 3 * MINUTE, NOW - 2 * MINUTE),
            )
        ),
        "host_busy",
        (
            "End its lease by `recrawl leases release --worker w7` if the worker w7 is gone: a "
            "crawl of a.example runs, which is the maximum at a time; the worker w7 has held it "
            "for 2 minutes, under a lease that ends in 3 minutes, at 2026-05-02 00:03 UTC; 5 pages "
            "of a.example are before it"
        ),
    ),
    "behind a lease that has just begun": (
        of(
            turn=at_host(
                delay_s=1.0,
                concurrency=1,
                n_running=1,
                n_before=5,
                lease=LeaseNow("w7", NOW + 5 * MINUTE, NOW - MINUTE / 2),
            )
        ),
        "host_busy",
        (
            "Nothing to do: 5 pages of a.example are before it, once every second, so its turn "
            "is in 5 seconds, at 2026-05-02 00:00:05 UTC, or later"
        ),
    ),
    "behind others": (
        of(turn=at_host(delay_s=1.0, n_before=283)),
        "host_busy",
        (
            "Nothing to do: 283 pages of a.example are before it, once every second, so its turn "
            "is in 4.7 minutes, at 2026-05-02 00:04:43 UTC, or later"
        ),
    ),
    "behind very many": (
        of(turn=at_host(delay_s=10.0, n_before=10_000, n_before_is_least=True)),
        "host_busy",
        (
            "Lower the delay of the host if its site allows it: at least 10,000 pages of "
            "a.example are before it, once every 10 seconds, so its turn is in 27.8 hours, at "
            "2026-05-03 03:46 UTC, or later"
        ),
    ),
    "its host has a delay": (
        of(turn=at_host(delay_s=30.0, by_robots=True, opens_at=NOW + timedelta(seconds=4))),
        "host_busy",
        (
            "Nothing to do: a.example is crawled once every 30 seconds, as its robots.txt asks, "
            "next in 4 seconds, at 2026-05-02 00:00:04 UTC"
        ),
    ),
    "its host is full": (
        of(turn=at_host(concurrency=2, n_running=2)),
        "host_busy",
        "Nothing to do: 2 crawls of a.example run, which is the maximum at a time",
    ),
}


@pytest.mark.parametrize(("facts", "kind", "sentence"), CASES.values(), ids=CASES)
def test_each_hold_has_its_kind_and_begins_with_what_to_do(facts, kind, sentence):
    held = hold_of_page(*facts)
    assert (held.kind, held.sentence) == (kind, sentence)


def test_the_cases_show_every_kind():
    assert {kind for _, kind, _ in CASES.values()} == set(get_args(HoldKind))


def maybe(values):
    return st.none() | values


SPANS = st.floats(-1e10, 1e10).map(lambda seconds: NOW + timedelta(seconds=seconds))
COUNTS = st.integers(0, 10**7)
RATES = st.floats(1e-12, 1e12)
HOSTS = st.builds(
    HostNow,
    name=st.sampled_from(["a.example", "the group g"]),
    delay_s=st.just(0.0) | st.floats(1e-9, 86_400.0),
    by_robots=st.booleans(),
    opens_at=maybe(SPANS),
    concurrency=COUNTS,
    n_running=COUNTS,
    pauses=st.lists(
        st.builds(Pause, SPANS, st.sampled_from(["site", "operator"]), st.just("a.example")),
        max_size=2,
    ).map(tuple),
    cap=maybe(st.builds(Cap, st.just("a.example"), RATES, SPANS, st.booleans())),
    n_before=COUNTS,
    n_before_is_least=st.booleans(),
)
PAGES = st.builds(
    PageNow,
    page=st.builds(
        lambda **state: replace(PAGE, **state),
        outcome=st.sampled_from(Outcome),
        n_failures=st.integers(0, 9),
        gone=st.booleans(),
        held=st.booleans(),
        url=st.just("https://a.example/tag/1"),
        hops=st.integers(-1, 6),
        n_targets=st.integers(0, 12),
        crawl_rate=maybe(st.just(0.0) | RATES),
        cost=maybe(RATES),
        redirects_to=maybe(st.just(7)),
        observability=st.sampled_from(Observability),
    ),
    due_at=maybe(SPANS),
    in_queue=st.booleans(),
    retired=st.booleans(),
    status=maybe(st.sampled_from([0, 200, 301, 302, 402, 403, 404, 503, 999, ROBOTS_DENIED])),
    lease=maybe(st.builds(LeaseNow, st.just("w7"), SPANS)),
    unfinished=maybe(
        st.builds(
            UnfinishedPage,
            st.integers(1, 9),
            st.sampled_from(Ending),
            maybe(st.just("w7")),
            maybe(SPANS),
            maybe(SPANS),
        )
    ),
    stopped_at=maybe(st.just("a.example/tag")),
    unit=st.sampled_from(["crawls", "USD"]),
)
TURNS = st.builds(
    Turn,
    now=st.just(NOW),
    host=HOSTS,
    crawlers=maybe(SPANS).map(lambda at: CrawlersNow(at, at and at + 10 * MINUTE)),
    spent_until=maybe(SPANS),
    each_s=maybe(st.just(60.0)),
    first_spent_until=maybe(SPANS),
    standstill=maybe(
        st.builds(
            Standstill, st.just(NOW - HOUR), queue_ended=st.booleans(), in_server=st.booleans()
        )
    ),
)


@given(page=PAGES, turn=TURNS)
def test_whatever_the_facts_one_reason_is_the_first_and_people_can_read_it(page, turn):
    held = hold_of_page(page, turn)
    assert isinstance(held, Hold)
    assert held.kind in get_args(HoldKind)
    to_do, _, cause = held.sentence.partition(": ")
    assert to_do
    assert to_do[0].isupper()
    assert cause
    assert not re.search(r"\de[+-]?\d|nan|inf\b|None|\.0 ", held.sentence), held.sentence
    assert held.until is None or held.until > NOW
    assert hold_of_page(page, turn) == held
