"""The sentence about a page's crawl rate, for every state of a page."""

from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta

import pytest

from recrawl_client.wire.change_hours import BusiestAnswer, ChangeHoursAnswer
from service.api.responses.why import explain
from service.estimation.page_estimate import PageEstimate
from service.model.domain import Certificate, Epoch, EpochStatus, Observability, Page
from service.model.outcomes import Outcome

AT = datetime(2026, 5, 1, tzinfo=UTC)
QUANTILES = tuple(i / 100 for i in range(101))
PAGE = replace(
    Page(**{field.name: None for field in fields(Page)}),
    page_id=1,
    created_at=AT,
    last_crawl_at=AT,
    interval_factor=1.0,
    due_rate=0.3,
    importance=2.5,
    observability=Observability.auto,
    gone=False,
    n_failures=0,
    change_rate=0.5,
    crawl_rate=0.25,
    crawl_probability=0.0,
    urgency=1.2,
    outcome=Outcome.content,
    hops=0,
    n_targets=0,
    retry_rate=0.0,
    ping_credit=0.0,
    held=False,
    last_observed_at=AT,
)
CHANGES = "it changes about every 2.0 days and its importance is 2.5"
RANK = "; 25% of all pages have lower crawl rates"
DRIVERS = f"{CHANGES}{RANK}"
GROUP = "since its last crawl its URL group"
SHARELESS = "it has no share of the budget, and is tried again ever more rarely"
AGAIN = "a ping or POST /pages with its url has it crawled once more"


def why(
    page: Page,
    *,
    url_group_rate: float | None = None,
    quantiles=QUANTILES,
    certified=True,
    change_hours: ChangeHoursAnswer | None = None,
):
    numbers = 9.0, 9.0, 0.5, 0.0, 0.0, 0.0, 0.0, 1, 1_000
    certificate = Certificate(*numbers, {}, quantiles, 1.2, (), {})
    started_at = AT + timedelta(hours=1)
    certificate = certificate if certified else None
    epoch = Epoch(1, EpochStatus.published, AT, started_at, certificate=certificate)
    return explain(page, epoch, PageEstimate(0.5, None, "gamma", url_group_rate), change_hours)


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        ({}, f"crawled every 4.0 days: {DRIVERS}"),
        (
            {"crawl_probability": 0.25},
            f"crawled every 4.0 days and on 25% of its pings: {DRIVERS}",
        ),
        (
            {"crawl_rate": 400.0},
            f"crawled every 3.6 minutes: {CHANGES}; 100% of all pages have lower crawl rates",
        ),
        (
            {"crawl_rate": 90_000.0},
            f"crawled every 0.96 seconds: {CHANGES}; 100% of all pages have lower crawl rates",
        ),
        (
            {"crawl_rate": 0.0},
            f"not crawled: other pages gain more from this bandwidth: {CHANGES}",
        ),
        (
            {"observability": Observability.complete, "crawl_rate": 0.0},
            f"crawled on 0% of its pings: {CHANGES}",
        ),
        (
            {"observability": Observability.complete, "crawl_probability": 0.5},
            f"crawled on 50% of its pings: {DRIVERS}",
        ),
        (
            {"crawl_probability": 0.5, "ping_credit": 0.4},
            (
                f"crawled every 4.0 days and on 50% of its pings: {CHANGES}; its pings have "
                f"earned 40% of a crawl, which further pings or the time without a crawl make "
                f"whole{RANK}"
            ),
        ),
        (
            {"crawl_probability": 0.5, "ping_credit": 0.4, "requested_at": AT + timedelta(hours=1)},
            f"crawled every 4.0 days and on 50% of its pings: {DRIVERS}",
        ),
        (
            {"crawl_probability": 0.0, "ping_credit": 0.4},
            f"crawled every 4.0 days: {DRIVERS}",
        ),
        (
            {
                "observability": Observability.complete,
                "crawl_probability": 0.5,
                "ping_credit": 0.5,
            },
            (
                f"crawled on 50% of its pings: {CHANGES}; its pings have earned 50% of a crawl, "
                f"which further pings make whole{RANK}"
            ),
        ),
        (
            {"change_rate": 0.0},
            f"crawled every 4.0 days: it never changes and its importance is 2.5{RANK}",
        ),
        (
            {"urgency": 2.4},
            (
                f"crawled every 4.0 days: {DRIVERS}; {GROUP} or its site has changed more than "
                "expected, so it is crawled 2.0 times as soon"
            ),
        ),
        (
            {"urgency": 0.6},
            (
                f"crawled every 4.0 days: {DRIVERS}; {GROUP} has changed less than expected, so "
                "it can wait 2.0 times as long"
            ),
        ),
        (
            {"n_failures": 1, "urgency": 2.4},
            f"crawled every 4.0 days: {DRIVERS}; its last crawl got no answer, it is tried again",
        ),
        ({"urgency": 1.0}, f"crawled every 4.0 days: {DRIVERS}"),
        (
            {"urgency": 2.4, "due_rate": 0.6, "max_crawl_rate": 0.6},
            f"crawled every 4.0 days: {DRIVERS}",
        ),
        (
            {"n_failures": 1, "crawl_rate": 0.0, "due_rate": 0.0},
            (
                f"not crawled: other pages gain more from this bandwidth: {CHANGES}; its last "
                "crawl got no answer, it is tried again"
            ),
        ),
        (
            {"n_failures": 2},
            (
                f"crawled every 4.0 days: {DRIVERS}; its last 2 crawls got no "
                "answer, it is tried again"
            ),
        ),
        (
            {"n_failures": 2, "outcome": Outcome.elsewhere},
            (
                f"crawled every 4.0 days: {DRIVERS}; its last 2 crawls got no content, because it "
                "redirects elsewhere, it is tried again"
            ),
        ),
        (
            {"n_failures": 3, "outcome": Outcome.empty},
            (
                "report a digest or `changed`, or delete the page: its last 3 crawls got no "
                f"content, because the answer was empty; {SHARELESS}"
            ),
        ),
        (
            {"n_failures": 1, "outcome": Outcome.failed, "last_observed_at": None},
            "tried again soon: its last crawl got no answer; it has had no content yet",
        ),
        (
            {"crawl_rate": 0.0, "retry_rate": 0.5},
            "crawled after 2.0 days: it has content again, and the next epoch decides on its share",
        ),
        (
            {"n_failures": 1, "outcome": Outcome.absent},
            (
                f"crawled every 4.0 days: {DRIVERS}; its last crawl got no content, because it "
                "seems to be gone, which a second look confirms, it is tried again"
            ),
        ),
        (
            {"gone": True, "n_failures": 1},
            "checked ever more rarely: it is gone, as its last crawl found",
        ),
        (
            {"gone": True, "n_failures": 2, "redirects_to": 7},
            "checked ever more rarely: it has moved, as its last 2 crawls found",
        ),
        (
            {"gone": True, "n_failures": 7},
            f"not crawled: it is gone, as its last 7 crawls found; {AGAIN}",
        ),
        (
            {"gone": True, "n_failures": 7, "redirects_to": 7},
            f"not crawled: it has moved, as its last 7 crawls found; {AGAIN}",
        ),
    ],
)
def test_a_sentence_tells_what_drives_the_rate(state, sentence):
    assert why(replace(PAGE, **state)).sentence == sentence


CHANGE_HOURS = ChangeHoursAnswer(
    weight=0.9996,
    busiest=BusiestAnswer(start=23.5, end=1.0, share=0.512),
    intensity=[1.0] * 24,
    learnt_at=AT,
)
LATER = {"shift": 120, "host": "a.example", "urgency": 9.0}


@pytest.mark.parametrize(
    ("state", "change_hours", "clause"),
    [
        (
            {},
            CHANGE_HOURS,
            (
                "; its next crawl was shifted 2.0 hours later, because 51% of the changes of "
                "a.example come between 23:30 and 01:00 UTC (certainty 99%)"
            ),
        ),
        (
            {"shift": -720},
            None,
            (
                "; its next crawl was shifted 12.0 hours earlier by the hours at which a.example "
                "changed"
            ),
        ),
        ({"shift": 29}, CHANGE_HOURS, ""),
        ({"shift": 0}, CHANGE_HOURS, ""),
        ({"last_crawl_at": AT + timedelta(hours=2)}, CHANGE_HOURS, ""),
        ({"n_failures": 1}, CHANGE_HOURS, "; its last crawl got no answer, it is tried again"),
    ],
)
def test_the_urgency_of_a_shifted_page_is_that_of_the_shift(state, change_hours, clause):
    page = replace(PAGE, **{**LATER, **state})
    assert (
        why(page, change_hours=change_hours).sentence
        == f"crawled every 4.0 days: {DRIVERS}{clause}"
    )


def test_the_rate_of_the_url_group_is_named_where_it_has_a_part():
    sentence = why(PAGE, url_group_rate=24.0).sentence
    assert ", pages of its URL group every 60.0 minutes, and its importance" in sentence


def test_an_epoch_without_quantiles_or_certificate_ranks_nobody():
    assert why(PAGE, quantiles=()).crawled_more_often_than is None
    bare = why(replace(PAGE, urgency=1.0), certified=False)
    assert bare.sentence == f"crawled every 4.0 days: {CHANGES}"
    assert (bare.multiplier, bare.crawled_more_often_than) == (None, None)


def test_numbers_stand_beside_the_sentence():
    answer = why(PAGE)
    assert (answer.multiplier, answer.crawled_more_often_than) == (0.5, 0.249)
    assert answer.next_change_expected_in_days == 2.0
    assert why(replace(PAGE, change_rate=0.0)).next_change_expected_in_days is None
