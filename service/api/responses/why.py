"""Why a page is crawled when it is: what holds it now, then what drives its rate."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import numpy as np

from recrawl_client.wire.change_hours import ChangeHoursAnswer
from recrawl_client.wire.pages import WhyAnswer
from service.api.holds.hold import Hold
from service.api.holds.rules import asks_price, last_result, moved_to
from service.api.responses.change_hours import shift_of
from service.api.responses.incidents import incident_clause
from service.api.responses.unfinished import what_ended
from service.estimation.page_estimate import PageEstimate
from service.leases.conditional import distrusted_until
from service.leases.unfinished import UnfinishedPage
from service.model.assumed_rates import assumed
from service.model.domain import Certificate, Epoch, Kind, LogEntry, Observability, Page
from service.model.incidents import Incident
from service.model.outcome_words import outcome_of_status, result_word
from service.model.outcomes import Outcome
from service.model.words import every, number, span

NOTABLE = 0.05
"""Minimum deviation of the observed-to-expected ratio from 1, and minimum share of a crawl, that a
sentence mentions."""
NOTABLE_SHARE = 0.005
"""Minimum share of the pages with lower crawl rates that a sentence mentions."""
NOTABLE_SHIFT = timedelta(minutes=30)
"""Minimum shift of a crawl that a sentence mentions."""
WRONG_304 = "its site has answered 304 although a page had changed"
LEAST_CRAWLS = 4
"""Minimum number of crawls in the log by which a sentence mentions those in vain."""
MOST_CERTAIN = 0.99
"""Maximum certainty that a sentence mentions."""


class Evidence(NamedTuple):
    """Facts about a page beside its hold."""

    page: Page
    estimate: PageEstimate
    now: datetime
    epoch: Epoch | None = None
    """Epoch in force that has scheduled the page; None: none has."""
    change_hours: ChangeHoursAnswer | None = None
    incident: Incident | None = None
    """Incident of the page's host in force."""
    status: int | None = None
    """Status of the last crawl in the log; None: not known."""
    unfinished: UnfinishedPage | None = None
    log: Sequence[LogEntry] = ()
    """Its last crawls and pings, newest first."""
    notices: Sequence[str] = ()
    """Notices that its rate is that of an earlier budget or epoch."""


def explain(held: Hold, facts: Evidence) -> WhyAnswer:
    """Return why a page is crawled when it is."""
    page, certificate = facts.page, None if facts.epoch is None else facts.epoch.certificate
    share = None if certificate is None else _share_below(certificate, page.crawl_rate or 0.0)
    clauses = [*_state(held, facts), *_rate(held, facts, share), *_silence(held, facts)]
    clauses += _plain_requests(page, facts.now)
    clauses += facts.notices if _has_rate(held, facts) else ()
    if facts.incident is not None:
        clauses.append(incident_clause(page.host, facts.incident))
    sentences = f"{held.sentence}."
    if clauses:
        rest = "; ".join(clauses)
        sentences += f" {rest[:1].upper()}{rest[1:]}."
    rate = facts.estimate.change_rate if _has_rate(held, facts) else 0.0
    return WhyAnswer(
        sentence=sentences,
        hold=held.kind,
        until=held.until,
        by=held.by,
        moved_to=moved_to(page),
        n_before=held.n_before,
        multiplier=None if certificate is None else certificate.multiplier,
        crawled_more_often_than=share,
        next_change_expected_in_days=1 / rate if rate else None,
    )


def _state(held: Hold, facts: Evidence) -> list[str]:
    """Return what happened to the last crawls and leases, where the hold does not state it."""
    page, clauses = facts.page, []
    tried = page.n_failures > 0 and not page.gone and not page.no_content
    result = last_result(page, facts.status)
    if tried and held.kind != "not_due" and result not in held.cause:
        clauses.append(result)
    if facts.unfinished is not None and held.kind not in {"leased", "unreported", "set_aside"}:
        clauses.append(what_ended(facts.unfinished))
    return clauses


def _has_rate(held: Hold, facts: Evidence) -> bool:
    """Return whether a page has a share in the allocation, or may have one."""
    page = facts.page
    without_content = page.last_observed_at is None and (page.n_failures > 0 or asks_price(page))
    without = page.gone or page.no_content or page.held or without_content
    return facts.epoch is not None and held.kind != "retired" and not without


def _rate(held: Hold, facts: Evidence, share: float | None) -> list[str]:
    """Return what drives the crawl rate of a page that has one."""
    page, epoch = facts.page, facts.epoch
    if epoch is None or not _has_rate(held, facts):
        return []
    if page.retry_rate and not page.crawl_rate and not page.n_failures:
        return ["it has content again, and the next epoch decides on its share"]
    manner, drivers = _manner(page), _drivers(page, facts.estimate)
    clauses = [f"{manner}: {drivers}" if manner else drivers, *_bound(page), *_earned(page)]
    clauses += _in_vain(facts.log)
    if share is not None and share >= NOTABLE_SHARE and page.crawl_rate:
        clauses.append(f"{share:.0%} of all pages have lower crawl rates")
    if page.n_failures:
        return clauses
    if page.shift is not None:  # the shift is part of the urgency
        clauses += _shift(page, epoch, facts.change_hours)
    elif group := _url_group(page, epoch.certificate):
        clauses.append(group)
    return clauses


def _plain_requests(page: Page, now: datetime) -> list[str]:
    """Return why the page is requested without validators, where it is."""
    until = distrusted_until(page.false_304_at, now)
    if until is None or (page.etag is None and page.last_modified is None):
        return []
    return [f"it is requested without ETag and date until {until:%Y-%m-%d}: {WRONG_304}"]


def _silence(held: Hold, facts: Evidence) -> list[str]:
    """Return that the pings of a page do not count, because those of its host have stopped."""
    last_ping_at = facts.page.last_ping_at
    if not facts.estimate.feed_is_silent or last_ping_at is None or not _has_rate(held, facts):
        return []
    silence = span((facts.now - last_ping_at).total_seconds())
    host = facts.page.host
    return [f"its pings do not count now: none for {silence}, and those of {host} have stopped"]


def _manner(page: Page) -> str:
    """Return how a page is crawled: at intervals, on pings, both; "" if it has no share."""
    on_pings = f"on {page.crawl_probability or 0.0:.0%} of its pings"
    if page.observability is Observability.complete:
        return f"crawled {on_pings}"
    if not page.crawl_rate:
        return ""
    then = "then " if page.last_crawl_at is None else ""
    at_intervals = f"{then}crawled {every(page.crawl_rate)}"
    return f"{at_intervals} and {on_pings}" if page.crawl_probability else at_intervals


def _bound(page: Page) -> list[str]:
    """Return that a bound of the page decides its crawl rate, where it does."""
    if not page.crawl_rate or page.observability is Observability.complete:
        return []
    low, high = page.min_crawl_rate, page.max_crawl_rate
    if low and _are_equal(page.crawl_rate, low):
        return [f"its min_crawl_rate ({number(low)} a day) decides: it is not worth more crawls"]
    if high and _are_equal(page.crawl_rate, high):
        return [f"its max_crawl_rate ({number(high)} a day) decides: it is worth as many or more"]
    return []


def _in_vain(log: Sequence[LogEntry]) -> list[str]:
    """Return how many of a page's last crawls were in vain, where most were."""
    crawls = [entry for entry in log if entry.kind is Kind.crawl]
    vain = [each.status for each in crawls if outcome_of_status(each.status) != Outcome.content]
    if len(crawls) < LEAST_CRAWLS or 2 * len(vain) <= len(crawls):
        return []
    results = Counter(map(result_word, vain)).most_common()
    each = ", ".join(f"{n} {word}" for word, n in results)
    return [
        f"{len(vain)} of its last {len(crawls)} crawls were in vain ({each}), which cost budget"
    ]


def _earned(page: Page) -> list[str]:
    """Return what pings have earned of the next crawl, where that is less than a crawl."""
    waits = page.requested_at is not None and (
        page.last_crawl_at is None or page.requested_at > page.last_crawl_at
    )
    if waits or not page.crawl_probability or page.ping_credit < NOTABLE:
        return []
    earned = f"its pings have earned {page.ping_credit:.0%} of a crawl"
    if page.observability is Observability.complete:
        return [f"{earned}, which further pings make whole"]
    return [f"{earned}, which further pings or the time without a crawl make whole"]


def _drivers(page: Page, estimate: PageEstimate) -> str:
    """Return the change rate by the present evidence, and the importance."""
    drivers = "it never changes"
    if estimate.change_rate:
        pace = every(estimate.change_rate)
        drivers = f"it changes about {pace}"
        if assumed(page):
            drivers = f"it is assumed to change {pace}, because it has no evidence yet,"
    if estimate.url_group_change_rate:
        group = f"pages of its URL group {every(estimate.url_group_change_rate)}"
        drivers = f"{drivers.removesuffix(',')}, {group},"
    return f"{drivers} and its importance is {number(page.importance)}"


def _url_group(page: Page, certificate: Certificate | None) -> str:
    """Return the changes of other pages since the page's last crawl, where they are notable.

    An urgency of 1 does not show them, nor an urgency that a bound of the crawl rate limits.
    """
    if page.urgency in (None, 1.0) or _is_at_bound(page):
        return ""
    ratio = page.urgency / (certificate.budget_factor if certificate else 1.0)
    if abs(ratio - 1.0) < NOTABLE:
        return ""
    if ratio > 1.0:
        # by its siblings, or by a wide revision of its host
        changed = "its URL group or its site has changed more than expected"
        effect = f"it is crawled {ratio:.1f} times as soon"
    else:
        changed = "its URL group has changed less than expected"
        effect = f"it can wait {1 / ratio:.1f} times as long"
    return f"since its last crawl {changed}, so {effect}"


def _is_at_bound(page: Page) -> bool:
    bounds, rate = (page.min_crawl_rate, page.max_crawl_rate), page.due_rate or 0.0
    return any(bound and _are_equal(rate, bound) for bound in bounds)


def _are_equal(rate: float, bound: float) -> bool:
    return bool(np.isclose(rate, bound, rtol=1e-4))


def _shift(page: Page, epoch: Epoch, change_hours: ChangeHoursAnswer | None) -> list[str]:
    """Return the shift of the next crawl to a better hour, where it is notable, and its reason."""
    shift = shift_of(page, epoch)
    if shift is None or abs(shift) < NOTABLE_SHIFT:
        return []
    direction = "later" if shift > timedelta(0) else "earlier"
    clause = f"its next crawl was shifted {span(abs(shift).total_seconds())} {direction}"
    if change_hours is None:  # they were lost since
        return [f"{clause} by the hours at which {page.host} changed"]
    where = change_hours.url_group or page.host
    stretch, certainty = change_hours.busiest, min(change_hours.weight, MOST_CERTAIN)
    hours = f"between {_time(stretch.start)} and {_time(stretch.end)} UTC"
    changes = f"{stretch.share:.0%} of the changes of {where} come {hours}"
    return [f"{clause}, because {changes} (certainty {certainty:.0%})"]


def _time(hour: float) -> str:
    return f"{int(hour):02}:{round(hour % 1 * 60):02}"


def _share_below(certificate: Certificate, crawl_rate: float) -> float | None:
    """Return the share of pages with lower crawl rates; to 1 % where pages are many."""
    quantiles, n_pages = certificate.crawl_rate_quantiles, certificate.n_pages
    if not quantiles:
        return None
    last = len(quantiles) - 1
    at = min(int(np.searchsorted(quantiles, crawl_rate)), last)
    return at * (n_pages - 1) // last / n_pages
