"""Effects of crawls on their pages: evidence, next state, log. Pure.

Arrays are (N,) for crawls, ordered by page and time, and (P,) for their pages.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from service.core import waits
from service.core.pings import recent_pings
from service.core.weights import thinned, whole
from service.core.wide_revisions import WideRevisions
from service.estimation.estimates import EvidenceState, OrderedCrawls, learn_crawls
from service.estimation.rules import Rules
from service.ingest.absences import Absences, absences, failures
from service.ingest.costs import costs_after
from service.ingest.overdrawn import overdrawn
from service.ingest.redirects import MOST_BARREN
from service.ingest.requests import left
from service.ingest.retries import retry_rates
from service.leases.due import requested
from service.model.arrays import (
    NO_TIME,
    UNSPECIFIED,
    Bools,
    Codes,
    Floats,
    Groups,
    Instants,
    Ints,
    Labels,
    Numbers,
    days,
)
from service.model.columns import CrawlColumns, LogColumns, PageStates
from service.model.domain import (
    MOST_COUNTED,
    MOST_FAILURES,
    Kind,
    Observability,
    Timing,
)
from service.model.outcomes import (
    ANSWERS,
    IS_ABSENT,
    IS_FAILURE,
    NOT_MODIFIED,
    OFFERED,
    PAYMENT,
    SHOWS,
    Leads,
    Outcome,
    all_content,
    outcome_of,
    shows_content,
)

GENERATED_WITHIN = np.timedelta64(1, "m")
"""Age up to which a Last-Modified is ignored."""
DAY_US = 86_400e6
"""A day, microseconds."""
COMPLETE, CRAWL = int(Observability.complete), int(Kind.crawl)
"""Codes in columns; Python 3.11 looks members up slowly."""


def needs_rates(crawls: CrawlColumns) -> bool:
    """Return whether any crawl had no content, so that the rates of its page matter.

    They bound the time to the second look at an absent page, and to the retries of any other.
    """
    return not all_content(outcomes(crawls))


def outcomes(crawls: CrawlColumns) -> Codes:
    """Return the outcome of each crawl."""
    columns = crawls.status, crawls.changed, crawls.digest, crawls.redirects_to
    if shows_content(*columns).all():  # most batches
        return np.zeros(len(crawls), np.int16)
    return outcome_of(*columns, crawls.leads)


def moved_permanently(comparison: "CrawlComparison") -> Bools:
    """Return which crawls were redirected for good to another page."""
    moved: Bools = comparison.outcome == Outcome.moved
    return moved


def redirects(
    states: PageStates, groups: Groups, crawls: CrawlColumns, comparison: "CrawlComparison"
) -> Ints:
    """Return the page to which each page's last answer redirected; 0: none."""
    if not (states.redirects_to.any() or crawls.redirects_to.any()):
        return states.redirects_to
    # a target that is not registered, UNSPECIFIED, is stored as none
    target = np.maximum(crawls.redirects_to, 0)
    return groups.after(states.redirects_to, redirected(comparison), target)


def new_targets(states: PageStates, groups: Groups, crawls: CrawlColumns) -> Codes:
    """Return (P,) numbers of new pages that each page's redirects have registered.

    A page that was asked for, and registers no further one, has at least `MOST_BARREN`.
    """
    if not crawls.leads.any():
        return states.n_targets
    to_new = crawls.leads == Leads.to_new
    refused = (crawls.leads == Leads.nowhere) & (crawls.redirects_to == UNSPECIFIED)
    least = np.where((states.hops == 0) & (groups.count(refused) > 0), MOST_BARREN, 0)
    n = np.maximum(states.n_targets + groups.count(to_new), least)
    most: Codes = np.minimum(n, MOST_FAILURES).astype(np.int16)
    return most


def redirect_before(
    states: PageStates, groups: Groups, crawls: CrawlColumns, redirected: Bools
) -> Ints:
    """Return (N,) the page to which the answer before each crawl redirected; 0: none."""
    return groups.before(states.redirects_to, redirected, np.maximum(crawls.redirects_to, 0))


def last_answer(
    states: PageStates, groups: Groups, crawls: CrawlColumns, answer: Bools
) -> Instants:
    """Return (N,) the time of the last answer before each crawl; NaT: none."""
    return groups.before(states.last_observed_at, answer, crawls.observed_at)


def reported_change(
    crawls: CrawlColumns, last_observed_at: Instants, was_gone: Bools, gone: Bools
) -> Codes:
    """Return whether each page has changed since its last answer; UNSPECIFIED: compare digests."""
    changed = np.where(crawls.status == NOT_MODIFIED, 0, crawls.changed)
    changed = np.where(gone, ~was_gone, changed)
    # of a page that is back, only its digest shows whether it is the old one
    compared = np.where(crawls.digest != 0, UNSPECIFIED, 1)
    compared[crawls.status == NOT_MODIFIED] = 0
    changed = np.where(was_gone & ~gone, compared, changed)
    return np.where(np.isnat(last_observed_at), UNSPECIFIED, changed).astype(np.int16)


def age(crawls: CrawlColumns) -> Floats:
    """Return the days since each page was last modified, as its site reports; NaN: no report."""
    since = crawls.observed_at - crawls.last_modified
    # the request itself generated a younger date
    return np.where(since > GENERATED_WITHIN, days(since), np.nan)


def add_counts(so_far: Ints, more: Ints) -> Ints:
    """Return (P,) counts with more added, at most `MOST_COUNTED`."""
    counts: Ints = np.minimum(so_far + more, MOST_COUNTED)
    return counts


@dataclass(frozen=True, slots=True)
class CrawlComparison:
    """(N,) crawls compared with the previous crawl."""

    outcome: Codes
    answer: Bools
    """True if the crawl shows the state of the page: content, or a confirmed absence."""
    gone: Bools
    was_gone: Bools
    absent: Absences
    failing: Bools
    """True if the crawl failed, as the history counts."""
    taught_nothing: Bools
    """True if the crawl is no answer, or a page that was gone is still absent."""
    reached: Bools
    """True if the crawl states the page's redirect, or that it has none."""
    sets_digest: Bools
    changed: Codes
    weight: Numbers
    """Weight of the change, below 1; NaN: 1, or no change; None: no change has a weight."""
    counted: Bools
    """True if the page has changed, of changes with a weight a sample (`core.weights.thinned`)."""
    interval: Floats
    """Days since the last answer."""
    is_evidence: Bools
    """True if the interval is evidence of the page's change rate."""
    n_pings: Ints
    """Pings within the interval."""
    n_pings_after: Ints
    """Pings of the next interval that arrived before the crawl."""


class Began(NamedTuple):
    """(N,) starts of crawls, which divide requests and pings."""

    at: Instants
    """Instant up to which the crawl answers requests."""
    n_pings_ahead: Ints
    """Number of pings that arrived before the report and are dated after this instant."""


def observe(
    states: PageStates,
    groups: Groups,
    crawls: CrawlColumns,
    rules: Rules,
    began: Began,
    outcome: Codes | None = None,
    waits: Bools | None = None,
) -> tuple[PageStates, LogColumns, CrawlComparison]:
    """Return the states of (P,) pages after (N,) crawls, the log's entries, and the comparison.

    `outcome` has the outcomes of the crawls (`ingest.doubts`); None: by the crawls alone. Crawls in
    `waits` confirm no absence.
    """
    comparison = compare(states, groups, crawls, began.n_pings_ahead, outcome, waits)
    evidence = OrderedCrawls(
        page=groups.page,
        observed_at=crawls.observed_at,
        interval=comparison.interval,
        changed=labels(comparison),
        n_pings=comparison.n_pings,
        total_pings=states.n_pings[groups.page],
        recent_pings=_recent_pings(states, groups.page, crawls.observed_at),
        crawl_rate=states.crawl_rate[groups.page],
        age=age(crawls),
    )
    shown = evidence.where(comparison.is_evidence)
    if rules.revisions is not None:
        shown = replace(shown, revised=_revised(rules.revisions, states, shown))
    learnt = learn_crawls(rules.estimator, states, shown)
    ages = evidence.age
    after = _next_states(states, groups, crawls, comparison, began.at, ages, learnt, rules)
    return after, _log_crawls(crawls, comparison, evidence.crawl_rate), comparison


def labels(comparison: CrawlComparison) -> Labels:
    """Return the parts of a change that crawls are evidence of."""
    changed: Bools = comparison.changed == 1
    return changed if comparison.weight is None else changed * whole(comparison.weight)


def _revised(revisions: WideRevisions, states: PageStates, crawls: OrderedCrawls) -> Floats | None:
    """Return the probability that a wide revision fell on each page since its last crawl."""
    began = crawls.observed_at - (crawls.interval * DAY_US).round().astype("m8[us]")
    host_id = states.host_id[crawls.page]
    probability = revisions.probability(host_id, began, crawls.observed_at)
    return probability if probability.any() else None


def compare(
    states: PageStates,
    groups: Groups,
    crawls: CrawlColumns,
    n_pings_ahead: Ints,
    outcome: Codes | None = None,
    waits: Bools | None = None,
) -> CrawlComparison:
    """Return the comparison of each crawl with the previous crawl.

    A crawl with an answer ends the running interval and starts the next. The interval is evidence
    of the change rate if both ends can be compared. The intervals of `complete` pages are no
    evidence, because their crawls follow changes. A page has changed if it is gone or has moved,
    and if it is back with other content.
    """
    page, at = groups.page, crawls.observed_at
    outcome = outcomes(crawls) if outcome is None else outcome
    absent = absences(states, groups, crawls, outcome, waits)
    gone, was_gone = absent.confirmed, absent.was_gone
    looked = IS_ABSENT[outcome] & ~gone
    answer = SHOWS[outcome] & ~looked
    last_observed_at = last_answer(states, groups, crawls, answer)
    reported = reported_change(crawls, last_observed_at, was_gone, gone)
    reported = np.where(answer, reported, UNSPECIFIED)
    # a reported change without a digest clears the old one, which no longer fits the page
    sets_digest = answer & ~gone & ((crawls.digest != 0) | (reported == 1))
    digest = groups.before(states.digest, sets_digest, crawls.digest)
    comparable = answer & (reported == UNSPECIFIED) & (crawls.digest != 0) & (digest != 0)
    changed = np.where(comparable, crawls.digest != digest, reported).astype(np.int16)
    # a page that is back without a digest to compare has changed
    changed[answer & was_gone & ~gone & (reported == UNSPECIFIED) & ~comparable] = 1
    weight, counted = None, changed == 1
    if crawls.weight is not None:
        # of a page that is gone, or back, the change is no other content
        full = gone | was_gone | _after_doubt(states, groups, crawls, outcome)
        weight = np.where(counted & ~full, crawls.weight, np.nan)
        counted = counted & thinned(weight, crawls.page_id, at.astype("M8[us]").view(np.int64))
    interval = days(at - last_observed_at)
    is_evidence = (changed != UNSPECIFIED) & (interval > 0)
    is_evidence &= (states.observability != COMPLETE)[page]
    n_pings, n_pings_after = _count_pings(states, groups, answer, n_pings_ahead)
    return CrawlComparison(
        outcome=outcome,
        answer=answer,
        gone=gone,
        was_gone=was_gone,
        absent=absent,
        failing=IS_FAILURE[outcome],
        taught_nothing=~answer | gone & was_gone,
        reached=ANSWERS[outcome] & ~looked,
        sets_digest=sets_digest,
        changed=changed,
        weight=weight,
        counted=counted,
        interval=interval,
        is_evidence=is_evidence,
        n_pings=n_pings,
        n_pings_after=n_pings_after,
    )


def _after_doubt(states: PageStates, groups: Groups, crawls: CrawlColumns, outcome: Codes) -> Bools:
    """Return which crawls follow a doubtful one, and come without a note.

    Their crawlers keep the version to compare with elsewhere. They may have replaced it by the
    doubtful one, which readers do not know. A note keeps the version before (`validators`).
    """
    before = groups.before(states.outcome, np.ones(len(outcome), np.bool_), outcome)
    after: Bools = before == Outcome.doubtful
    return after if crawls.note is None else after & (crawls.note == "")


def _count_pings(
    states: PageStates, groups: Groups, answer: Bools, ahead: Ints
) -> tuple[Ints, Ints]:
    """Return the number of pings in each crawl's interval, and in the next interval so far.

    A ping that is dated after the start of the crawl belongs to the next interval.
    """
    after = np.minimum(states.pings_since_crawl[groups.page], ahead)
    before = groups.before(states.pings_since_crawl, answer, after)
    return np.maximum(before - after, 0), after


def _next_states(
    states: PageStates,
    groups: Groups,
    crawls: CrawlColumns,
    comparison: CrawlComparison,
    began: Instants,
    age: Floats,
    learnt: EvidenceState,
    rules: Rules,
) -> PageStates:
    at, answer, gone = crawls.observed_at, comparison.answer, comparison.gone
    outcome, is_evidence = comparison.outcome, comparison.is_evidence
    changed = comparison.changed == 1
    # the sign of `last_interval` is the result of its crawl
    signed = np.where(comparison.counted, comparison.interval, -comparison.interval)
    newest = np.fmax.reduceat(np.where(answer, at, NO_TIME), groups.start)
    # a crawl that does not show the page answers no request
    answered = np.fmax.reduceat(np.where(answer, began, NO_TIME), groups.start)
    requests = left(states, at[groups.end], began[groups.end], answered)
    n_failures = failures(states, groups, outcome, comparison.absent)
    return replace(
        states,
        last_crawl_at=at[groups.end],
        last_observed_at=np.where(np.isnat(newest), states.last_observed_at, newest),
        digest=groups.after(states.digest, comparison.sets_digest, crawls.digest),
        gone=groups.after(states.gone, answer, gone),
        n_observations=add_counts(states.n_observations, groups.count(is_evidence)),
        n_changes=add_counts(states.n_changes, groups.count(is_evidence & changed)),
        **requests._asdict(),
        interval_factor=_interval_factor(states, groups, newest, rules),
        last_interval=groups.after(
            states.last_interval, answer, np.where(is_evidence, signed, 0.0)
        ),
        last_age=groups.after(states.last_age, answer, age),
        n_failures=n_failures,
        retry_rate=retry_rates(states, n_failures),
        cost=costs_after(states, groups, crawls, outcome),
        outcome=outcome[groups.end],
        absent_since=comparison.absent.since,
        redirects_to=redirects(states, groups, crawls, comparison),
        n_targets=new_targets(states, groups, crawls),
        pings_since_crawl=groups.after(states.pings_since_crawl, answer, comparison.n_pings_after),
        ping_credit=_credit_left(states, answered),
        **learnt._asdict(),
    )


def _recent_pings(states: PageStates, page: Ints, at: Instants) -> Floats:
    """Return (N,) pings of each crawl's page as they weigh in its ping rate at the crawl."""
    if not states.recent_pings.any():  # most batches
        return np.zeros(len(page))
    since = np.nan_to_num(days(at - states.last_ping_at[page]))
    return recent_pings(states.recent_pings[page], since)


def _credit_left(states: PageStates, answered: Instants) -> Floats:
    """Return the (P,) credit after crawls; `answered` is NaT without an answer.

    A crawl that a ping requests has been paid for. Any other crawl uses up the credit, except that
    of a `complete` page, which pings alone earn.
    """
    if not states.ping_credit.any():  # most batches
        return states.ping_credit
    used = ~np.isnat(answered) & ~requested(states)
    used &= states.observability != Observability.complete
    return np.where(used, 0.0, states.ping_credit)


def redirected(comparison: CrawlComparison) -> Bools:
    """Return which crawls state the redirect of their page, or that it has none."""
    states: Bools = comparison.reached | (comparison.outcome == Outcome.moved)
    return states


def _interval_factor(states: PageStates, groups: Groups, newest: Instants, rules: Rules) -> Floats:
    """Return random times to the next crawl, in mean intervals of the page.

    After the first answer the time is a random part of an interval, so that pages that were
    registered together drift apart. After crawls in vain the time is longer (`overdrawn`).
    """
    uniform, more = rules.rng.random(len(states)), overdrawn(states, newest)
    if rules.timing is Timing.poisson:
        return waits.exponential(uniform) + more
    factor = waits.jittered(waits.JITTER, uniform) + more
    # of several crawls in a batch the newest one is not the first
    first = np.isnat(states.last_observed_at) & ~np.isnat(newest) & (groups.start == groups.end)
    return np.where(first, uniform, factor) if first.any() else factor


def _log_crawls(
    crawls: CrawlColumns, comparison: CrawlComparison, crawl_rate: Floats
) -> LogColumns:
    return LogColumns(
        page_id=crawls.page_id,
        observed_at=crawls.observed_at,
        kind=np.full(len(crawls), CRAWL, np.int16),
        changed=comparison.changed,
        interval=np.where(comparison.is_evidence, comparison.interval, np.nan),
        crawl_rate=crawl_rate,
        status=np.where(crawls.status == OFFERED, PAYMENT, crawls.status).astype(np.int16),
        weight=comparison.weight,
    )
