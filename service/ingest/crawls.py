"""From crawls to the states of their pages: evidence, next state, log. Pure.

Arrays are (N,) for crawls, ordered by page and time, and (P,) for their pages.
"""

from dataclasses import dataclass, replace

import numpy as np

from service.core import timing
from service.estimation.estimates import CrawlEvidence, EvidenceState, learn_crawls
from service.ingest import outcomes
from service.ingest.rules import Rules
from service.model.arrays import NO_TIME, UNSPECIFIED, Bools, Codes, Floats, Instants, Ints, days
from service.model.columns import CrawlColumns, LogColumns, PageStates
from service.model.domain import Kind, Observability, Timing
from service.model.grouping import Groups

JITTER = 0.05
"""Relative variation of periodic intervals, so that pages crawled together drift apart."""


@dataclass(frozen=True, slots=True)
class CrawlComparison:
    """(N,) crawls compared with the crawl before."""

    answer: Bools
    """Whether the crawl shows what the page is like."""
    gone: Bools
    was_gone: Bools
    failing: Bools
    sets_digest: Bools
    changed: Codes
    interval: Floats
    """Days since the last answer."""
    is_evidence: Bools
    """Whether the interval is evidence of the page's change rate."""
    n_pings: Ints
    """Pings within the interval."""
    n_pings_after: Ints
    """Pings of the next interval that arrived before the crawl."""


def observe(
    states: PageStates, groups: Groups, crawls: CrawlColumns, rules: Rules
) -> tuple[PageStates, LogColumns]:
    """Return the states of (P,) pages after (N,) crawls, and the log's entries."""
    comparison = compare(states, groups, crawls)
    evidence = CrawlEvidence(
        page=groups.page,
        observed_at=crawls.observed_at,
        interval=comparison.interval,
        changed=comparison.changed == 1,
        n_pings=comparison.n_pings,
        total_pings=states.n_pings[groups.page],
        crawl_rate=states.crawl_rate[groups.page],
        age=outcomes.age(crawls),
    )
    learnt = learn_crawls(rules.estimator, states, evidence.where(comparison.is_evidence))
    after = _next_states(states, groups, crawls, comparison, learnt, rules)
    return after, _log(crawls, comparison, evidence.crawl_rate)


def compare(states: PageStates, groups: Groups, crawls: CrawlColumns) -> CrawlComparison:
    """Compare each crawl with the crawl before.

    A crawl that answered closes the running interval and opens the next. The interval is evidence
    of a change rate when both ends could be compared. Crawls of a page whose changes are announced
    follow its changes, so they are no evidence of its rate. A page that is gone, or has moved for
    good, has changed, and so has one that comes back. Another redirect and a failure are no
    evidence.
    """
    page, at = groups.page, crawls.observed_at
    answer, gone = outcomes.answers(crawls)
    last_observed_at = groups.before(states.last_observed_at, answer, at)
    was_gone = groups.before(states.gone, answer, gone)
    reported = outcomes.reported_change(crawls, last_observed_at, was_gone, gone)
    reported = np.where(answer, reported, UNSPECIFIED)
    sets_digest = answer & ((crawls.digest != 0) | (reported == 1))
    digest = groups.before(states.digest, sets_digest, crawls.digest)
    comparable = answer & (reported == UNSPECIFIED) & (crawls.digest != 0) & (digest != 0)
    changed = np.where(comparable, crawls.digest != digest, reported).astype(np.int16)
    interval = days(at - last_observed_at)
    is_evidence = (changed != UNSPECIFIED) & (interval > 0)
    is_evidence &= (states.observability != Observability.complete)[page]
    n_pings, n_pings_after = _count_pings(states, groups, answer, at)
    return CrawlComparison(
        answer=answer,
        gone=gone,
        was_gone=was_gone,
        failing=outcomes.failing(crawls.status, answer),
        sets_digest=sets_digest,
        changed=changed,
        interval=interval,
        is_evidence=is_evidence,
        n_pings=n_pings,
        n_pings_after=n_pings_after,
    )


def _count_pings(
    states: PageStates, groups: Groups, answer: Bools, at: Instants
) -> tuple[Ints, Ints]:
    """Return the number of pings in each crawl's interval, and in the next interval so far.

    A ping that is dated after the crawl but arrived before belongs to the next interval.
    """
    ahead = (states.last_ping_at[groups.page] > at).astype(np.int64)
    after = np.minimum(states.pings_since_crawl[groups.page], ahead)
    before = groups.before(states.pings_since_crawl, answer, after)
    return np.maximum(before - ahead, 0), after


def _next_states(
    states: PageStates,
    groups: Groups,
    crawls: CrawlColumns,
    comparison: CrawlComparison,
    learnt: EvidenceState,
    rules: Rules,
) -> PageStates:
    at, answer, gone = crawls.observed_at, comparison.answer, comparison.gone
    failing, is_evidence = comparison.failing, comparison.is_evidence
    changed = comparison.changed == 1
    signed = np.where(changed, comparison.interval, -comparison.interval)
    newest = np.fmax.reduceat(np.where(answer, at, NO_TIME), groups.start)
    reached = np.fmax.reduceat(np.where(failing, NO_TIME, at), groups.start)
    n_failures = outcomes.failures(states, groups, answer, gone, failing, comparison.was_gone)
    return replace(
        states,
        last_crawl_at=at[groups.end],
        last_observed_at=np.where(np.isnat(newest), states.last_observed_at, newest),
        digest=groups.after(states.digest, comparison.sets_digest, crawls.digest),
        gone=groups.after(states.gone, answer, gone),
        n_observations=outcomes.add_counts(states.n_observations, groups.count(is_evidence)),
        n_changes=outcomes.add_counts(states.n_changes, groups.count(is_evidence & changed)),
        requested_at=np.where(states.requested_at <= reached, NO_TIME, states.requested_at),
        interval_factor=_interval_factor(states, groups, newest, rules),
        last_interval=groups.after(
            states.last_interval, answer, np.where(is_evidence, signed, 0.0)
        ),
        n_failures=n_failures,
        redirects_to=outcomes.redirects(states, groups, crawls, failing),
        pings_since_crawl=groups.after(states.pings_since_crawl, answer, comparison.n_pings_after),
        **learnt._asdict(),
    )


def _interval_factor(states: PageStates, groups: Groups, newest: Instants, rules: Rules) -> Floats:
    """Draw the time to the next crawl, in mean intervals of the page.

    The first crawl that answers is followed by a random part of one interval, so that pages
    that came together are not due together.
    """
    uniform = rules.rng.random(len(states))
    if rules.timing is Timing.poisson:
        return timing.poisson_gap(1.0, uniform)
    factor = timing.next_due_in(1.0, JITTER, uniform)
    first = np.isnat(states.last_observed_at) & ~np.isnat(newest) & (groups.start == groups.end)
    return np.where(first, timing.first_due_in(1.0, uniform), factor) if first.any() else factor


def _log(crawls: CrawlColumns, comparison: CrawlComparison, crawl_rate: Floats) -> LogColumns:
    return LogColumns(
        page_id=crawls.page_id,
        observed_at=crawls.observed_at,
        kind=np.full(len(crawls), Kind.crawl, np.int16),
        changed=comparison.changed,
        interval=np.where(comparison.is_evidence, comparison.interval, np.nan),
        crawl_rate=crawl_rate,
        status=crawls.status,
    )
