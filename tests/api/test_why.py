"""The sentence on a page's crawl rate, after that on what holds it, for every state of a page."""

from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta

import pytest
from support.live_server import Live

from recrawl_client.wire.change_hours import BusiestAnswer, ChangeHoursAnswer
from service.api.holds.hold import Hold
from service.api.responses.why import Evidence, explain
from service.estimation.page_estimate import PageEstimate
from service.model.domain import (
    Certificate,
    Epoch,
    EpochStatus,
    Kind,
    LogEntry,
    Observability,
    Page,
)
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
    n_observations=9,
    n_pings=0,
    host="a.example",
)
NOTHING = Hold(kind="not_due", cause="it is due soon")
HELD = "Nothing to do: it is due soon."
CHANGES = "it changes about every 2 days and its importance is 2.5"
RANK = "; 25% of all pages have lower crawl rates"
DRIVERS = f"{CHANGES}{RANK}"
GROUP = "since its last crawl its URL group"


def why(
    page: Page,
    *,
    held: Hold = NOTHING,
    change_rate=0.5,
    url_group_rate: float | None = None,
    quantiles=QUANTILES,
    certified=True,
    change_hours: ChangeHoursAnswer | None = None,
    feed_is_silent=False,
    log=(),
):
    numbers = 9.0, 9.0, 0.5, 0.0, 0.0, 0.0, 0.0, 1, 1_000
    certificate = Certificate(*numbers, {}, quantiles, 1.2, (), {})
    started_at = AT + timedelta(hours=1)
    certificate = certificate if certified else None
    epoch = Epoch(1, EpochStatus.published, AT, started_at, certificate=certificate)
    estimate = PageEstimate(change_rate, None, "gamma", url_group_rate, feed_is_silent)
    return explain(held, Evidence(page, estimate, AT, epoch, change_hours, log=log))


EVERY = f"Crawled every 4 days: {DRIVERS}"
ASSUMED = (
    "Crawled every 4 days: it is assumed to change every 2 days, because it has no evidence yet, "
    f"and its importance is 2.5{RANK}"
)


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        ({}, EVERY),
        ({"crawl_probability": 0.25}, f"Crawled every 4 days and on 25% of its pings: {DRIVERS}"),
        (
            {"crawl_rate": 400.0},
            f"Crawled every 3.6 minutes: {CHANGES}; 100% of all pages have lower crawl rates",
        ),
        (
            {"crawl_rate": 90_000.0},
            f"Crawled every 0.96 seconds: {CHANGES}; 100% of all pages have lower crawl rates",
        ),
        ({"crawl_rate": 0.0}, CHANGES.replace("it", "It", 1)),
        (
            {"observability": Observability.complete, "crawl_rate": 0.0},
            f"Crawled on 0% of its pings: {CHANGES}",
        ),
        (
            {"observability": Observability.complete, "crawl_probability": 0.5},
            f"Crawled on 50% of its pings: {DRIVERS}",
        ),
        (
            {"crawl_probability": 0.5, "ping_credit": 0.4},
            (
                f"Crawled every 4 days and on 50% of its pings: {CHANGES}; its pings have "
                f"earned 40% of a crawl, which further pings or the time without a crawl make "
                f"whole{RANK}"
            ),
        ),
        (
            {"crawl_probability": 0.5, "ping_credit": 0.4, "requested_at": AT + timedelta(hours=1)},
            f"Crawled every 4 days and on 50% of its pings: {DRIVERS}",
        ),
        ({"crawl_probability": 0.0, "ping_credit": 0.4}, EVERY),
        (
            {
                "observability": Observability.complete,
                "crawl_probability": 0.5,
                "ping_credit": 0.5,
            },
            (
                f"Crawled on 50% of its pings: {CHANGES}; its pings have earned 50% of a crawl, "
                f"which further pings make whole{RANK}"
            ),
        ),
        (
            {"urgency": 2.4},
            (
                f"{EVERY}; {GROUP} or its site has changed more than expected, so it is crawled "
                "2.0 times as soon"
            ),
        ),
        (
            {"urgency": 0.6},
            f"{EVERY}; {GROUP} has changed less than expected, so it can wait 2.0 times as long",
        ),
        ({"n_failures": 1, "urgency": 2.4}, EVERY),
        ({"urgency": 1.0}, EVERY),
        ({"urgency": 2.4, "due_rate": 0.6, "max_crawl_rate": 0.6}, EVERY),
        ({"n_failures": 3, "outcome": Outcome.empty}, ""),
        ({"n_failures": 1, "outcome": Outcome.failed, "last_observed_at": None}, ""),
        (
            {"crawl_rate": 0.0, "retry_rate": 0.5},
            "It has content again, and the next epoch decides on its share",
        ),
        ({"gone": True, "n_failures": 2}, ""),
        ({"held": True}, ""),
        ({"n_observations": 0}, ASSUMED),
        ({"n_observations": 0, "n_pings": 2}, ASSUMED),
        ({"importance": 1e9}, EVERY.replace("importance is 2.5", "importance is 1,000,000,000")),
    ],
)
def test_a_sentence_tells_what_drives_the_rate(state, sentence):
    assert why(replace(PAGE, **state)).sentence == f"{HELD} {sentence}.".replace(" .", "")


def test_a_page_that_never_changes_is_said_to():
    never = EVERY.replace("it changes about every 2 days", "it never changes")
    assert why(PAGE, change_rate=0.0).sentence == f"{HELD} {never}."


@pytest.mark.parametrize(
    ("state", "clause"),
    [
        ({"n_failures": 1, "outcome": Outcome.failed}, "Its last crawl failed"),
        (
            {"n_failures": 2, "outcome": Outcome.elsewhere},
            "Its last 2 crawls got no content, because it redirects elsewhere",
        ),
        (
            {"n_failures": 1, "outcome": Outcome.absent},
            (
                "Its last crawl got no content, because it seems to be gone, which a second look "
                "confirms"
            ),
        ),
    ],
)
def test_what_the_last_crawls_found_is_said_where_the_hold_does_not(state, clause):
    paused = Hold(kind="host_paused", cause="a.example is paused")
    sentence = why(replace(PAGE, **state), held=paused).sentence
    assert sentence == f"Nothing to do: a.example is paused. {clause}; c{EVERY[1:]}."


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
                "; its next crawl was shifted 2 hours later, because 51% of the changes of "
                "a.example come between 23:30 and 01:00 UTC (certainty 99%)"
            ),
        ),
        (
            {"shift": -720},
            None,
            (
                "; its next crawl was shifted 12 hours earlier by the hours at which a.example "
                "changed"
            ),
        ),
        ({"shift": 29}, CHANGE_HOURS, ""),
        ({"shift": 0}, CHANGE_HOURS, ""),
        ({"last_crawl_at": AT + timedelta(hours=2)}, CHANGE_HOURS, ""),
        ({"n_failures": 1}, CHANGE_HOURS, ""),
    ],
)
def test_the_urgency_of_a_shifted_page_is_that_of_the_shift(state, change_hours, clause):
    page = replace(PAGE, **{**LATER, **state})
    assert why(page, change_hours=change_hours).sentence == f"{HELD} {EVERY}{clause}."


def test_the_rate_of_the_url_group_is_named_where_it_has_a_part():
    sentence = why(PAGE, url_group_rate=24.0).sentence
    assert ", pages of its URL group every 60 minutes, and its importance" in sentence


def test_pings_that_do_not_count_because_the_feed_is_silent_are_named():
    pinged = replace(PAGE, n_pings=2, last_ping_at=AT - timedelta(days=9))
    clause = "its pings do not count now: none for 9 days, and those of a.example have"
    assert f"; {clause} stopped." in why(pinged, feed_is_silent=True).sentence
    assert "ping" not in why(pinged).sentence
    assert "ping" not in why(replace(pinged, gone=True), feed_is_silent=True).sentence


def test_an_epoch_without_quantiles_or_certificate_ranks_nobody():
    assert why(PAGE, quantiles=()).crawled_more_often_than is None
    bare = why(replace(PAGE, urgency=1.0), certified=False)
    assert bare.sentence == f"{HELD} Crawled every 4 days: {CHANGES}."
    assert (bare.multiplier, bare.crawled_more_often_than) == (None, None)


def test_numbers_stand_beside_the_sentence():
    answer = why(PAGE)
    assert (answer.multiplier, answer.crawled_more_often_than) == (0.5, 0.249)
    assert answer.next_change_expected_in_days == 2.0
    assert why(PAGE, change_rate=0.0).next_change_expected_in_days is None


def test_a_bound_that_decides_the_rate_is_named():
    low = why(replace(PAGE, min_crawl_rate=0.25)).sentence
    assert "its min_crawl_rate (0.25 a day) decides: it is not worth more crawls" in low
    high = why(replace(PAGE, min_crawl_rate=0.1, max_crawl_rate=0.25)).sentence
    assert "its max_crawl_rate (0.25 a day) decides: it is worth as many or more" in high
    for free in ({"min_crawl_rate": 0.2}, {"max_crawl_rate": 0.3}):
        assert "decides" not in why(replace(PAGE, **free)).sentence
    announced = {"observability": Observability.complete, "crawl_probability": 0.5}
    assert "decides" not in why(replace(PAGE, min_crawl_rate=0.25, **announced)).sentence


def entries(*statuses):
    ping = LogEntry(AT, Kind.ping, None, None, None)
    return [ping, *(LogEntry(AT, Kind.crawl, None, None, status) for status in statuses)]


def test_crawls_in_vain_are_named_where_they_are_most():
    def sentence(*statuses):
        return why(PAGE, log=entries(*statuses)).sentence

    vain = "3 of its last 5 crawls were in vain (2 failed, 1 refused), which cost budget"
    assert vain in sentence(200, 503, 403, 503, None)
    for few in ((200, 503), (503, 503, 503), (200, 503, 403, None), ()):
        assert "in vain" not in sentence(*few)
    assert "in vain" not in why(replace(PAGE, gone=True), log=entries(*[404] * 9)).sentence


@pytest.mark.dear
def test_a_service_names_the_minimum_and_crawls_in_vain(api: Live):
    api.register("https://a.example/0")
    api.register("https://a.example/1", min_crawl_rate=3, importance=0.01)
    found = [{"digest": "x"}, {"status": 503}, {"status": 503}, {"status": 503}, {"digest": "x"}]
    for n, own in enumerate(found):
        at = (api.clock() - timedelta(hours=50 - 10 * n)).isoformat()
        api.post("/observations", [{"page_id": 1, "observed_at": at, **own}])
        api.post("/observations", [{"page_id": 2, "observed_at": at, "digest": "x"}])
    assert api.client.put("/budget", json={"budget": "10 crawls"}).is_success
    api.epoch()
    first, second = (api.get(f"/pages/{n}").json()["why"]["sentence"] for n in (1, 2))
    assert "3 of its last 5 crawls were in vain (3 failed)" in first
    assert "its min_crawl_rate (3 a day) decides" in second
