"""Record what crawlers saw and what sites announced.

One way: read and lock the states of the pages, compute the new ones on arrays, write them,
append to the log. Per page, time moves forward: an entry that is not newer than the page's
last one changes nothing, so a batch may be sent any number of times, in any order.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.core import timing
from service.core.estimators import Estimator, Gamma, LogNormal
from service.core.prior import Prior
from service.domain import (
    NEVER,
    UNSAID,
    Bools,
    Codes,
    CrawlColumns,
    Floats,
    Instants,
    Ints,
    Kind,
    LogColumns,
    Observability,
    PageColumns,
    PageStates,
    PingColumns,
    PingReason,
    Timing,
    Verdict,
    days,
)
from service.estimates import Crawled, learn_crawl
from service.storage import Transaction

JITTER = 0.05
"""Periodic intervals vary by this share, so that pages crawled together drift apart."""
NOT_MODIFIED = 304
GONE = (404, 410)
SUCCESS = range(200, 400)


@dataclass(frozen=True, slots=True)
class Rules:
    """How evidence is turned into states: one estimator and one timing for all pages."""

    estimator: Estimator[Any]
    timing: Timing
    rng: np.random.Generator


def rules_in_force(tx: Transaction, rules: Rules) -> Rules:
    """Give the rules with the prior of the schedule in force, which its estimates stand on."""
    epoch = tx.epoch_in_force()
    fitted = epoch.certificate.prior if epoch and epoch.certificate else {}
    if not fitted or not isinstance(rules.estimator, Gamma | LogNormal):
        return rules
    return replace(rules, estimator=replace(rules.estimator, prior=Prior(**fitted)))


class Named(NamedTuple):
    """(N,) items that name their page by id or by URL."""

    page_id: Ints
    """0 where the page is named by its URL."""
    row: Ints
    """The URL's row in `pages`, -1 where the page is named by its id."""
    pages: PageColumns
    """The distinct URLs."""


def resolve(tx: Transaction, named: Named, now: datetime, *, register: bool) -> Ints:
    """Give the page_id of each item; URLs not seen before are registered, or left at 0."""
    if not len(named.pages):
        return named.page_id
    found = tx.page_ids(named.pages.key)
    if register and (new := found == 0).any():
        found[new] = tx.register(named.pages.take(new), now).page_id
    return np.where(named.row >= 0, found[named.row], named.page_id)


class Recorded(NamedTuple):
    """(N,) what became of each crawl result."""

    verdict: Codes


class Answered(NamedTuple):
    """(N,) what became of each ping, and whether to crawl now."""

    verdict: Codes
    crawl: Bools
    reason: NDArray[np.object_]


def record(tx: Transaction, crawls: CrawlColumns, rules: Rules) -> Recorded:
    """Record crawl results; several of one page are applied in the order of their time."""
    states, row = _lock(tx, crawls.page_id, scheduled=rules.estimator.needs_crawl_rate)
    verdict = np.full(len(crawls), Verdict.unknown, np.int16)
    log = []
    for turn in turns(crawls.page_id, crawls.observed_at, row):
        before, news = states.take(row[turn]), crawls.take(turn)
        verdict[turn] = _verdict(news.observed_at, before.last_crawl_at)
        accepted = verdict[turn] == Verdict.accepted
        if not accepted.any():
            continue
        before, news = before.take(accepted), news.take(accepted)
        after, entries = observe(before, news, rules)
        _put(states, row[turn][accepted], after)
        log.append(entries)
    _write(tx, states, log)
    return Recorded(verdict)


def ping(tx: Transaction, pings: PingColumns, rules: Rules) -> Answered:
    """Record change notices and decide for each whether its page is to be crawled now."""
    states, row = _lock(tx, pings.page_id, scheduled=True)
    verdict = np.full(len(pings), Verdict.unknown, np.int16)
    crawl = np.zeros(len(pings), np.bool_)
    reason = np.full(len(pings), PingReason.unknown_page, object)
    log = []
    for turn in turns(pings.page_id, pings.changed_at, row):
        before, news = states.take(row[turn]), pings.take(turn)
        verdict[turn] = _verdict(news.changed_at, before.last_ping_at)
        accepted = verdict[turn] == Verdict.accepted
        reason[turn] = PingReason.not_newer
        if not accepted.any():
            continue
        newer = turn[accepted]
        before, news = before.take(accepted), news.take(accepted)
        after, crawl[newer], reason[newer] = notice(before, news, rules)
        _put(states, row[newer], after)
        log.append(_log(news.page_id, news.changed_at, Kind.ping, after.crawl_rate))
    _write(tx, states, log)
    return Answered(verdict, crawl, reason)


def observe(
    states: PageStates, crawls: CrawlColumns, rules: Rules
) -> tuple[PageStates, LogColumns]:
    """Give the states after one crawl of each page, and the log's entries. Pure.

    A crawl that answered closes the running interval and opens the next. It is evidence of a
    change rate when both ends of the interval could be compared. Crawls of a page whose
    changes are announced follow its changes, so they say nothing about their rate. A ping
    later than the crawl, told before it, belongs to the next interval.
    """
    gone = np.isin(crawls.status, GONE)
    told = (crawls.changed != UNSAID) | (crawls.digest != 0)
    answered = (crawls.status == UNSAID) | gone | (crawls.status == NOT_MODIFIED)
    answered |= told & np.isin(crawls.status, SUCCESS)
    changed = np.where(answered, _changed(states, crawls, gone), UNSAID).astype(np.int16)
    interval = days(crawls.observed_at - states.last_observed_at)
    evidence = (changed != UNSAID) & (interval > 0)
    evidence &= states.observability != Observability.complete
    ahead = (states.last_ping_at > crawls.observed_at).astype(np.int64)
    n_pings = np.maximum(states.recent_pings - ahead, 0)
    learnt = learn_crawl(rules.estimator, states, crawls.observed_at, Crawled(
        interval, changed == 1, n_pings, evidence))  # fmt: skip
    digest = np.where(crawls.digest != 0, crawls.digest, np.where(changed == 1, 0, states.digest))
    after = replace(
        states,
        last_crawl_at=crawls.observed_at,
        last_observed_at=np.where(answered, crawls.observed_at, states.last_observed_at),
        digest=np.where(answered, digest, states.digest),
        gone=np.where(answered, gone, states.gone),
        n_observations=states.n_observations + evidence,
        n_changes=states.n_changes + (evidence & (changed == 1)),
        wanted_at=np.where(
            answered & (states.wanted_at <= crawls.observed_at), NEVER, states.wanted_at
        ),
        gap=_gap(states, rules),
        recent_pings=np.where(answered, np.minimum(states.recent_pings, ahead),
                              states.recent_pings),
        **learnt._asdict(),
    )  # fmt: skip
    entries = _log(crawls.page_id, crawls.observed_at, Kind.crawl, states.crawl_rate)
    interval = np.where(evidence, interval, np.nan)
    return after, replace(entries, changed=changed, interval=interval, status=crawls.status)


def notice(
    states: PageStates, pings: PingColumns, rules: Rules
) -> tuple[PageStates, Bools, NDArray[np.object_]]:
    """Give the states after one ping of each page, and whether and why to crawl now. Pure."""
    complete = states.observability == Observability.complete
    auto = states.observability == Observability.auto
    trusted = complete | (auto & (states.crawl_probability > 0))
    first = np.isnat(states.last_crawl_at)
    stale = pings.changed_at <= states.last_crawl_at
    unscheduled = np.isnan(states.crawl_probability)
    probability = np.where(unscheduled, 1.0, states.crawl_probability)
    if rules.timing is Timing.poisson:
        spend = timing.poisson_ping(probability, rules.rng.random(len(states)))
        credit = states.ping_credit
    else:
        spend, credit = timing.ping_credit(states.ping_credit, probability)
    choices = (
        (first, PingReason.never_crawled),
        (~trusted, PingReason.not_trusted),
        (stale, PingReason.crawled_since),
        (unscheduled, PingReason.unscheduled),
        (spend, PingReason.credit),
    )
    which = np.select([mask for mask, _ in choices], range(len(choices)), len(choices))
    reason = np.array([*(name for _, name in choices), PingReason.saving], object)[which]
    crawl = first | (trusted & ~stale & spend)
    after = replace(
        states,
        n_pings=states.n_pings + 1,
        recent_pings=states.recent_pings + ~(pings.changed_at <= states.last_observed_at),
        last_ping_at=pings.changed_at,
        ping_credit=np.where(trusted & ~stale & ~first, credit, states.ping_credit),
        wanted_at=np.where(crawl & np.isnat(states.wanted_at), pings.changed_at, states.wanted_at),
    )
    return after, crawl, reason


def _lock(tx: Transaction, page_id: Ints, *, scheduled: bool) -> tuple[PageStates, Ints]:
    """Lock the pages of a batch; gives the row of each item's page, -1 where there is none."""
    states = tx.lock_states(np.unique(page_id[page_id > 0]), scheduled=scheduled)
    row = np.searchsorted(states.page_id, page_id)
    known = np.isin(page_id, states.page_id)
    return states, np.where(known, row, -1)


def turns(page_id: Ints, at: Instants, row: Ints) -> Iterator[Ints]:
    """Give the items of known pages in turns: the k-th turn has the k-th item of each page."""
    order = np.lexsort((at, page_id))
    order = order[row[order] >= 0]
    new_page = np.diff(page_id[order], prepend=-1) != 0
    position = np.arange(len(order))
    rank = position - np.maximum.accumulate(np.where(new_page, position, 0))
    ends = np.cumsum(np.bincount(rank))[:-1]
    yield from np.split(order[np.argsort(rank, kind="stable")], ends)


def _verdict(at: Instants, last: Instants) -> Codes:
    same, older = at == last, at < last
    return np.where(
        same, Verdict.duplicate, np.where(older, Verdict.late, Verdict.accepted)
    ).astype(np.int16)


def _changed(states: PageStates, crawls: CrawlColumns, gone: Bools) -> Codes:
    """Did the page change since it was last observed? UNSAID where that cannot be known."""
    comparable = (crawls.digest != 0) & (states.digest != 0)
    compared = np.where(comparable, crawls.digest != states.digest, UNSAID)
    changed = np.where(crawls.changed != UNSAID, crawls.changed, compared)
    changed = np.where(crawls.status == NOT_MODIFIED, 0, changed)
    changed = np.where(gone | states.gone, gone != states.gone, changed)
    return np.where(np.isnat(states.last_observed_at), UNSAID, changed).astype(np.int16)


def _gap(states: PageStates, rules: Rules) -> Floats:
    """Draw how many mean intervals lie before the next crawl.

    The first crawl is followed by a random part of one interval, so that pages which came
    together are not due together.
    """
    uniform = rules.rng.random(len(states))
    if rules.timing is Timing.poisson:
        return timing.poisson_gap(1.0, uniform)
    first = np.isnat(states.last_crawl_at)
    return np.where(
        first, timing.first_due_in(1.0, uniform), timing.next_due_in(1.0, JITTER, uniform)
    )


def _log(page_id: Ints, at: Instants, kind: Kind, crawl_rate: Floats) -> LogColumns:
    unsaid = np.full(len(page_id), UNSAID, np.int16)
    return LogColumns(
        page_id=page_id, observed_at=at, kind=np.full(len(page_id), kind, np.int16),
        changed=unsaid, interval=np.full(len(page_id), np.nan), crawl_rate=crawl_rate,
        status=unsaid,
    )  # fmt: skip


def _put(states: PageStates, row: Ints, news: PageStates) -> None:
    for field in fields(states):
        getattr(states, field.name)[row] = getattr(news, field.name)


def _write(tx: Transaction, states: PageStates, log: list[LogColumns]) -> None:
    entries = LogColumns.concatenate(log)
    if len(entries):  # else nothing was new
        tx.save_states(states)
        tx.append_log(entries)
