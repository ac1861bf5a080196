"""The reason of a page's crawl rate, in one sentence."""

from datetime import datetime, timedelta

import numpy as np
from msgspec import structs

from recrawl_client.wire.change_hours import ChangeHoursAnswer
from recrawl_client.wire.pages import WhyAnswer
from service.api.responses.change_hours import shift_of
from service.api.responses.incidents import incident_clause
from service.api.responses.unfinished import sentence_of
from service.estimation.page_estimate import PageEstimate
from service.ingest.redirects import MOST_BARREN, MOST_HOPS, MOST_TARGETS
from service.leases.conditional import distrusted_until
from service.leases.due import next_crawl_at, retired
from service.leases.unfinished import UnfinishedPage
from service.model.domain import Certificate, Epoch, Observability, Page
from service.model.incidents import Incident
from service.model.outcomes import Outcome

UNITS = (("days", 1.0), ("hours", 1 / 24), ("minutes", 1 / 1_440))
"""Units of time, days; a duration is written in the first unit that fits twice."""

NOTABLE = 0.05
"""Minimum deviation of the observed-to-expected ratio from 1, and minimum share of a crawl, that a
sentence mentions."""
NOTABLE_SHIFT = timedelta(minutes=30)
"""Minimum shift of a crawl that a sentence mentions."""
FOUND = {
    Outcome.content: "got no answer",
    Outcome.moved: "got no content, because it redirects for good, which a second look confirms",
    Outcome.absent: "got no content, because it seems to be gone, which a second look confirms",
    Outcome.elsewhere: "got no content, because it redirects elsewhere",
    Outcome.refused: "got no content, because the site refuses it",
    Outcome.empty: "got no content, because the answer was empty",
    Outcome.failed: "got no answer",
    Outcome.unfinished: "got no answer",
    Outcome.doubtful: "is in doubt, because other pages of its host showed the same at that time",
    Outcome.offered: "got a price in place of content",
}
"""End of a sentence on the last crawls of a page, by the outcome of the last one."""
WRONG_304 = "its site has answered 304 although a page had changed"
DENIED = "got no content, because robots.txt forbids it"
REMEDY = {
    Outcome.content: "wait for the next crawl",
    Outcome.moved: "wait for the next crawl",
    Outcome.absent: "wait for the next crawl",
    Outcome.elsewhere: "register the page behind the redirect in its place, or delete it",
    Outcome.refused: "have your crawler let in, or delete the page",
    Outcome.empty: "report a digest or `changed`, or delete the page",
    Outcome.failed: "look after the site, or delete the page",
    Outcome.unfinished: "look after the crawlers, which do not report it",
    Outcome.doubtful: "wait for the next crawl",
    Outcome.offered: "wait until the price is worth a crawl, or raise the budget",
}
"""Remedy for a page without content, by the outcome of its last crawl."""
REMEDY_DENIED = "ask its site for leave, or delete the page"
MOST_CERTAIN = 0.99
"""Maximum certainty that a sentence mentions."""


def explain(
    page: Page,
    epoch: Epoch,
    estimate: PageEstimate,
    change_hours: ChangeHoursAnswer | None = None,
    now: datetime | None = None,
    incident: Incident | None = None,
    *,
    denied: bool = False,
) -> WhyAnswer:
    """Return what drives the crawl rate of a scheduled page.

    `incident` is one of its host in force. `denied` is true if robots.txt forbade the last crawl.
    """
    certificate = epoch.certificate
    change_rate = 0.0 if page.no_content or _never_had_content(page) else page.change_rate or 0.0
    share = None if certificate is None else _share_below(certificate, page.crawl_rate or 0.0)
    clauses = [_sentence(page, epoch, estimate, share, change_hours, denied=denied)]
    clauses += _plain_requests(page, now)
    if incident is not None:
        clauses.append(incident_clause(page.host, incident))
    return WhyAnswer(
        sentence="; ".join(clauses),
        multiplier=None if certificate is None else certificate.multiplier,
        crawled_more_often_than=share,
        next_change_expected_in_days=1 / change_rate if change_rate else None,
    )


def while_held(stopped_at: str | None) -> WhyAnswer:
    """Return the reason of a page that waits for its first crawl.

    `stopped_at` is the URL group that is stopped; None: none is.
    """
    if stopped_at is None:
        cause = "pages of its URL group are crawled first; their crawls admit more"
    else:
        cause = (
            f"first crawls of {stopped_at} have brought too little that is new, or a rule stops "
            "them; POST /pages/recrawl has this page crawled, PUT /url-groups admits all"
        )
    return WhyAnswer(
        sentence=f"not crawled yet: {cause}",
        multiplier=None,
        crawled_more_often_than=None,
        next_change_expected_in_days=None,
    )


def after_leases(unfinished: UnfinishedPage, why: WhyAnswer | None) -> WhyAnswer:
    """Return the reason with what to do about leases without a report at its beginning."""
    return _after(sentence_of(unfinished), why)


def after_budget(until: datetime, why: WhyAnswer | None) -> WhyAnswer:
    """Return the reason of a page that waits for the budget, with what to do at its beginning."""
    spent = f"the budget is spent until {until:%Y-%m-%d %H:%M:%S} UTC"
    return _after(f"wait, or raise the budget: it is due, and {spent}", why)


def _after(sentence: str, why: WhyAnswer | None) -> WhyAnswer:
    if why is not None:
        return structs.replace(why, sentence=f"{sentence}; {why.sentence}")
    return WhyAnswer(
        sentence=sentence,
        multiplier=None,
        crawled_more_often_than=None,
        next_change_expected_in_days=None,
    )


def _sentence(
    page: Page,
    epoch: Epoch,
    estimate: PageEstimate,
    share: float | None,
    change_hours: ChangeHoursAnswer | None,
    *,
    denied: bool,
) -> str:
    if page.gone:
        return _gone(page)
    if page.hops and retired(page):
        return _given_up(page)
    if page.no_content:
        return _no_content(page, denied=denied)
    if _never_had_content(page):
        return f"tried again soon: {_last_result(page, denied=denied)}; it has had no content yet"
    if page.retry_rate and not page.crawl_rate and not page.n_failures:
        return _back(page)
    clauses = [f"{_manner(page, epoch)}: {_drivers(page, estimate)}", *_earned(page)]
    if share is not None and page.crawl_rate:
        clauses.append(f"{share:.0%} of all pages have lower crawl rates")
    if page.n_failures:
        again = "" if next_crawl_at(page) is None else ", it is tried again"
        clauses.append(f"{_last_result(page, denied=denied)}{again}")
    elif page.shift is not None:  # the shift is part of the urgency
        clauses += _shift(page, epoch, change_hours)
    elif group := _url_group(page, epoch.certificate):
        clauses.append(group)
    return "; ".join(clauses)


def _gone(page: Page) -> str:
    state = "has moved" if page.redirects_to else "is gone"
    evidence = f"it {state}, as {_last_crawls(page.n_failures)} found"
    if not retired(page):
        return f"checked ever more rarely: {evidence}"
    return f"not crawled: {evidence}; a ping or POST /pages with its url has it crawled once more"


def _given_up(page: Page) -> str:
    state = "no page redirects to it any more" if page.hops < 0 else "it has had no content"
    return (
        f"not crawled: only redirects led to it, and {state}; a ping or POST /pages with its url "
        "has it crawled"
    )


def _not_followed(page: Page) -> str:
    """Return why the last redirect of a page was not followed, where it was not."""
    if page.outcome is not Outcome.elsewhere or page.redirects_to is not None:
        return ""
    if page.hops >= MOST_HOPS:
        return f", {MOST_HOPS} redirects away from a page that was asked for, which is the maximum"
    if page.n_targets >= MOST_TARGETS:
        return f", after {page.n_targets} other targets, which is the maximum"
    if page.n_targets >= MOST_BARREN:
        return f", after {page.n_targets} other targets, the last of which had no content"
    return ""


def _plain_requests(page: Page, now: datetime | None) -> list[str]:
    """Return why the page is requested without validators, where it is."""
    until = None if now is None else distrusted_until(page.false_304_at, now)
    if until is None or (page.etag is None and page.last_modified is None):
        return []
    return [f"it is requested without ETag and date until {until:%Y-%m-%d}: {WRONG_304}"]


def _no_content(page: Page, *, denied: bool) -> str:
    remedy = REMEDY_DENIED if denied else REMEDY[page.outcome]
    last = _last_result(page, denied=denied)
    return f"{remedy}: {last}; it has no share of the budget, and is tried again ever more rarely"


def _back(page: Page) -> str:
    span = _span(1 / page.retry_rate)
    return f"crawled after {span}: it has content again, and the next epoch decides on its share"


def _never_had_content(page: Page) -> bool:
    """Return whether the last crawls of a page had no content, and none before them."""
    return page.n_failures > 0 and page.last_observed_at is None


def _last_result(page: Page, *, denied: bool) -> str:
    """Return what the last crawls of a page without content found."""
    result = f"{_found(page, denied=denied)}{_not_followed(page)}"
    return f"{_last_crawls(page.n_failures)} {result}"


def _found(page: Page, *, denied: bool) -> str:
    return DENIED if denied else FOUND[page.outcome]


def _manner(page: Page, epoch: Epoch) -> str:
    """Return how a page is crawled: at intervals, on pings, both or not at all."""
    on_pings = f"on {page.crawl_probability or 0.0:.0%} of its pings"
    if page.observability is Observability.complete:
        return f"crawled {on_pings}"
    if not page.crawl_rate and page.outcome is Outcome.offered and page.cost:
        unit = "" if epoch.certificate is None else f" {epoch.certificate.unit}"
        return (
            f"not crawled, raise the budget if it shall be: its site asks a price of "
            f"{page.cost:g}{unit} for a crawl, and other pages gain more from it"
        )
    if not page.crawl_rate:
        return "not crawled: other pages gain more from this bandwidth"
    at_intervals = f"crawled every {_span(1 / page.crawl_rate)}"
    return f"{at_intervals} and {on_pings}" if page.crawl_probability else at_intervals


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
    drivers = "it never changes"
    if page.change_rate:
        drivers = f"it changes about every {_span(1 / page.change_rate)}"
    if estimate.url_group_change_rate:
        drivers += f", pages of its URL group every {_span(1 / estimate.url_group_change_rate)},"
    return f"{drivers} and its importance is {page.importance:g}"


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
    return any(bound and np.isclose(rate, bound, rtol=1e-4) for bound in bounds)


def _shift(page: Page, epoch: Epoch, change_hours: ChangeHoursAnswer | None) -> list[str]:
    """Return the shift of the next crawl to a better hour, where it is notable, and its reason."""
    shift = shift_of(page, epoch)
    if shift is None or abs(shift) < NOTABLE_SHIFT:
        return []
    direction = "later" if shift > timedelta(0) else "earlier"
    clause = f"its next crawl was shifted {_span(abs(shift) / timedelta(days=1))} {direction}"
    if change_hours is None:  # the host has lost its change hours since
        return [f"{clause} by the hours at which {page.host} changed"]
    stretch, certainty = change_hours.busiest, min(change_hours.weight, MOST_CERTAIN)
    hours = f"between {_time(stretch.start)} and {_time(stretch.end)} UTC"
    changes = f"{stretch.share:.0%} of the changes of {page.host} come {hours}"
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


def _last_crawls(n: int) -> str:
    return "its last crawl" if n <= 1 else f"its last {n} crawls"


def _span(days: float) -> str:
    for unit, length in UNITS:
        if days >= 2 * length:
            return f"{days / length:,.1f} {unit}"
    return f"{days * 86_400:.2g} seconds"
