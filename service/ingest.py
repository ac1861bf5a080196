"""Record what crawlers saw and what sites announced.

One way: read and lock the states of the pages, compute the new ones on arrays, write them,
append to the log. Per page, time moves forward: an entry that is not newer than the page's
last one changes nothing, so a batch may be sent any number of times, in any order.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from service import answers
from service.arrays import (
    NEVER,
    UNSAID,
    Bools,
    Codes,
    Floats,
    Instants,
    Ints,
    SectionRates,
    days,
    distinct,
)
from service.columns import CrawlColumns, LogColumns, PageColumns, PageStates, PingColumns
from service.core import timing
from service.core.estimators import Estimator, corpus_of, with_corpus
from service.domain import (
    MOST_COUNTED,
    Certificate,
    Kind,
    Observability,
    PingReason,
    Timing,
    Verdict,
)
from service.estimates import Crawled, learn_crawls
from service.runs import Runs, turns
from service.storage import Transaction

JITTER = 0.05
"""Periodic intervals vary by this share, so that pages crawled together drift apart."""


@dataclass(frozen=True, slots=True)
class Rules:
    """How evidence is turned into states: one estimator and one timing for all pages."""

    estimator: Estimator[Any]
    timing: Timing
    rng: np.random.Generator
    ping_delay_s: float = 0.0
    """A ping of no more than this after a crawl tells what the crawl has seen."""

    def of(self, _: Transaction) -> "Rules":
        """Give these, whichever schedule is in force."""
        return self


def rules_in_force(tx: Transaction, rules: Rules) -> Rules:
    """Give the rules with the prior of the schedule in force, which its estimates stand on."""
    return InForce(rules).of(tx)


class InForce:
    """The rules with the prior of the schedule in force: each epoch is read but once."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.estimator = rules.estimator
        """Before it learns of a prior."""
        self._known = 0, rules

    def of(self, tx: Transaction) -> Rules:
        """Give the rules as of this transaction."""
        if not corpus_of(self.rules.estimator):
            return self.rules
        epoch, known = self._known
        if (number := tx.number_in_force()) != epoch:
            known = self._on(tx.epoch(number).certificate, tx.section_rate(number))
            self._known = number, known
        return known

    def _on(self, certificate: Certificate | None, section_rate: SectionRates | None) -> Rules:
        if certificate is None or not certificate.prior:
            return self.rules
        estimator = with_corpus(self.rules.estimator, certificate.prior, section_rate)
        return replace(self.rules, estimator=estimator)


class Named(NamedTuple):
    """(N,) items that name their page by id or by URL."""

    page_id: Ints
    """0 where the page is named by its URL."""
    row: Ints
    """The URL's row in `pages`, -1 where the page is named by its id."""
    pages: PageColumns
    """The distinct URLs."""
    target: Ints | None = None
    """The row in `pages` that each item redirects to, -1 where it does not; None: none does."""


class Resolved(NamedTuple):
    """(N,) the pages of items."""

    page_id: Ints
    """As in `CrawlColumns`."""
    redirects_to: Ints
    """As in `CrawlColumns`."""
    new: Ints
    """The pages that were registered because others redirect to them."""


def resolve(
    tx: Transaction, named: Named, now: datetime, *, register: bool, leased: Ints | None = None
) -> Resolved:
    """Give the pages of each item; URLs not seen before are registered, or have none.

    A page that redirects to itself does not redirect. An item under a lease must be of the
    `leased` page, 0 where there is none; another's URLs are not registered for its sake.
    """
    none = np.zeros(len(named.page_id), np.int64)
    if not len(named.pages):
        return Resolved(named.page_id, none, none[:0])
    found = tx.page_ids(named.pages.key)
    if leased is not None and leased.any():
        elsewhere = (leased > 0) & (named.row >= 0) & (found[named.row] != leased)
        named = _without(named, elsewhere)
    if register and (new := (found == 0) & _said(named)).any():
        found[new] = tx.register(named.pages.take(new), now).page_id
    page_id = np.where(named.row >= 0, found[named.row], named.page_id)
    if named.target is None:
        return Resolved(page_id, none, none[:0])
    target = np.where(found[named.target] > 0, found[named.target], UNSAID)
    away = (named.target >= 0) & (target != page_id)
    added = named.target[away & new[named.target]] if register else none[:0]
    return Resolved(page_id, np.where(away, target, 0), np.unique(found[added]))


def _without(named: Named, elsewhere: Bools) -> Named:
    """Leave out what items say that are of another page than was leased."""
    page_id, row = (np.where(elsewhere, UNSAID, given) for given in (named.page_id, named.row))
    target = None if named.target is None else np.where(elsewhere, -1, named.target)
    return Named(page_id, row, named.pages, target)


def _said(named: Named) -> Bools:
    """Tell which of the URLs an item names or redirects to."""
    said = np.zeros(len(named.pages) + 1, np.bool_)  # the last one is no URL's
    said[named.row] = True
    if named.target is not None:
        said[named.target] = True
    return said[:-1]


class Recorded(NamedTuple):
    """(N,) what became of each crawl result."""

    verdict: Codes
    moved: Bools
    """Whether its page may be due sooner now than was thought: it fails or is gone, or was."""


class Answered(NamedTuple):
    """(N,) what became of each ping, and whether to crawl now."""

    verdict: Codes
    crawl: Bools
    reason: NDArray[np.object_]


def record(tx: Transaction, crawls: CrawlColumns, rules: Rules | InForce) -> Recorded:
    """Record crawl results; several of one page are applied in the order of their time.

    The pages are locked first: the rules in force are asked for with that, or known already.
    """
    states, row = _lock(tx, crawls.page_id, scheduled=rules.estimator.needs_crawl_rate)
    verdict, newer = _judge(row, crawls.observed_at, states.last_crawl_at)
    verdict[crawls.page_id == UNSAID] = Verdict.elsewhere
    moved = np.zeros(len(crawls), np.bool_)
    if len(newer):
        runs = Runs.of(row[newer])
        before = _of(runs, states, row[newer])
        after, entries = observe(before, runs, crawls.take(newer), rules.of(tx))
        moved[newer] = ((before.n_failures > 0) | (after.n_failures > 0))[runs.page]
        tx.append_log(entries)
        tx.save_states(after)
    return Recorded(verdict, moved)


def ping(tx: Transaction, pings: PingColumns, rules: Rules | InForce) -> Answered:
    """Record change notices and decide for each whether its page is to be crawled now.

    One that comes within `ping_delay_s` after its page's last crawl is dropped.
    """
    states, row = _lock(tx, pings.page_id, scheduled=True)
    rules = rules.of(tx)
    verdict, newer = _judge(row, pings.changed_at, states.last_ping_at)
    crawl = np.zeros(len(pings), np.bool_)
    reason = np.where(row < 0, PingReason.unknown_page, PingReason.not_newer).astype(object)
    if rules.ping_delay_s and len(newer):
        last, at = states.last_crawl_at[row[newer]], pings.changed_by[newer]
        delay = np.timedelta64(round(1e6 * rules.ping_delay_s), "us")
        dropped = (at > last) & (at <= last + delay)
        reason[newer[dropped]] = PingReason.crawled_since
        newer = newer[~dropped]
    if len(newer):
        runs = Runs.of(row[newer])
        news = pings.take(newer)
        after, crawl[newer], reason[newer] = notice(
            _of(runs, states, row[newer]), runs, news, rules
        )
        tx.append_log(_told(news, after.crawl_rate[runs.page]))
        tx.save_states(after)
    return Answered(verdict, crawl, reason)


def observe(
    states: PageStates, runs: Runs, crawls: CrawlColumns, rules: Rules
) -> tuple[PageStates, LogColumns]:
    """Give the states of (P,) pages after their (N,) crawls, and the log's entries. Pure.

    A crawl that answered closes the running interval and opens the next. It is evidence of a
    change rate when both ends of the interval could be compared. Crawls of a page whose
    changes are announced follow its changes, so they say nothing about their rate. A ping
    later than the crawl, told before it, belongs to the next interval. A page that is gone, or
    has moved for good, has changed, and so has one that comes back; another redirect and a
    failure are no evidence. When a change was made is learnt from what the site says of it, if
    it can be true.
    """
    page, at = runs.page, crawls.observed_at
    answered, gone = answers.answered(crawls)
    last_observed_at = runs.before(states.last_observed_at, answered, at)
    was_gone = runs.before(states.gone, answered, gone)
    changed = np.where(answered, answers.told(crawls, last_observed_at, was_gone, gone), UNSAID)
    known = answered & ((crawls.digest != 0) | (changed == 1))
    digest = runs.before(states.digest, known, crawls.digest)
    compared = answered & (changed == UNSAID) & (crawls.digest != 0) & (digest != 0)
    changed = np.where(compared, crawls.digest != digest, changed).astype(np.int16)
    interval = days(at - last_observed_at)
    evidence = (changed != UNSAID) & (interval > 0)
    evidence &= (states.observability != Observability.complete)[page]
    ahead = (states.last_ping_at[page] > at).astype(np.int64)
    left = np.minimum(states.recent_pings[page], ahead)
    recent_pings = runs.before(states.recent_pings, answered, left)
    crawled = Crawled(
        page=page, observed_at=at, interval=interval, changed=changed == 1,
        n_pings=np.maximum(recent_pings - ahead, 0), so_far=states.n_pings[page],
        crawl_rate=states.crawl_rate[page], age=answers.age(crawls),
    )  # fmt: skip
    learnt = learn_crawls(rules.estimator, states, crawled.where(evidence))
    closed = np.where(evidence, np.where(changed == 1, interval, -interval), 0.0)
    newest = np.fmax.reduceat(np.where(answered, at, NEVER), runs.start)
    failing = answers.failing(crawls.status, answered)
    heard = np.fmax.reduceat(np.where(failing, NEVER, at), runs.start)
    after = replace(
        states,
        last_crawl_at=at[runs.end],
        last_observed_at=np.where(np.isnat(newest), states.last_observed_at, newest),
        digest=runs.after(states.digest, known, crawls.digest),
        gone=runs.after(states.gone, answered, gone),
        n_observations=counted(states.n_observations, runs.count(evidence)),
        n_changes=counted(states.n_changes, runs.count(evidence & (changed == 1))),
        wanted_at=np.where(states.wanted_at <= heard, NEVER, states.wanted_at),
        gap=_gap(states, runs, newest, rules),
        last_interval=runs.after(states.last_interval, answered, closed),
        n_failures=answers.failures(states, runs, answered, gone, failing, was_gone),
        redirects_to=answers.redirects(states, runs, crawls, failing),
        recent_pings=runs.after(states.recent_pings, answered, left),
        **learnt._asdict(),
    )
    entries = LogColumns(
        page_id=crawls.page_id, observed_at=at, kind=np.full(len(at), Kind.crawl, np.int16),
        changed=changed, interval=np.where(evidence, interval, np.nan),
        crawl_rate=crawled.crawl_rate, status=crawls.status,
    )  # fmt: skip
    return after, entries


def counted(so_far: Ints, more: Ints) -> Ints:
    """Return (P,) counts after more was counted, at most `MOST_COUNTED`."""
    counts: Ints = np.minimum(so_far + more, MOST_COUNTED)
    return counts


def notice(
    states: PageStates, runs: Runs, pings: PingColumns, rules: Rules
) -> tuple[PageStates, Bools, NDArray[np.object_]]:
    """Give the states of (P,) pages after (N,) pings, and whether and why to crawl them. Pure.

    Changes from before the counting of pings began are not counted: there is no telling how many
    there were, and the oldest news of a new page would make it look fast. A crawl within the day
    that a ping names may have come too early to see the change: the ping is not stale.
    """
    page, at, by = runs.page, pings.changed_at, pings.changed_by
    complete = states.observability == Observability.complete
    auto = states.observability == Observability.auto
    trusted = (complete | (auto & (states.crawl_probability > 0)))[page]
    first = np.isnat(states.last_crawl_at)[page]
    stale = by <= states.last_crawl_at[page]
    back = ~stale & answers.may_be_back(states, runs, by)
    unscheduled = np.isnan(states.crawl_probability)
    probability = np.where(unscheduled, 1.0, states.crawl_probability)
    spend, credit = _spend(states, page, probability, trusted & ~stale & ~first & ~back, rules)
    choices = (
        (first, PingReason.never_crawled),
        (back, PingReason.may_be_back),
        (~trusted, PingReason.not_trusted),
        (stale, PingReason.crawled_since),
        (unscheduled[page], PingReason.unscheduled),
        (spend, PingReason.credit),
    )
    which = np.select([mask for mask, _ in choices], range(len(choices)), len(choices))
    reason = np.array([*(name for _, name in choices), PingReason.saving], object)[which]
    crawl = first | back | (trusted & ~stale & spend)
    earliest = np.fmin.reduceat(np.where(crawl, by, NEVER), runs.start)
    recent = ~(by <= states.last_observed_at[page])
    counts = at >= states.pings_since[page]
    after = replace(
        states,
        n_pings=counted(states.n_pings, runs.count(counts)),
        recent_pings=counted(states.recent_pings, runs.count(recent)),
        last_ping_at=at[runs.end],
        ping_credit=credit,
        wanted_at=np.where(np.isnat(states.wanted_at), earliest, states.wanted_at),
    )
    return after, crawl, reason


def _spend(
    states: PageStates, page: Ints, probability: Floats, counts: Bools, rules: Rules
) -> tuple[Bools, Floats]:
    """Tell which pings are worth a crawl, and give the (P,) credit that those which count leave."""
    if rules.timing is Timing.poisson:
        uniform = rules.rng.random(len(page))
        return timing.poisson_ping(probability[page], uniform), states.ping_credit
    spend, credit = np.zeros(len(page), np.bool_), states.ping_credit.copy()
    counted = np.flatnonzero(counts)
    for turn in turns(page[counted]):
        row = page[counted[turn]]
        spend[counted[turn]], credit[row] = timing.ping_credit(credit[row], probability[row])
    return spend, credit


def _lock(tx: Transaction, page_id: Ints, *, scheduled: bool) -> tuple[PageStates, Ints]:
    """Lock the pages of a batch; gives the row of each item's page, -1 where there is none."""
    states = tx.lock_states(distinct(page_id[page_id > 0]), scheduled=scheduled)
    if not len(states):
        return states, np.full(len(page_id), -1)
    row = np.minimum(states.page_id.searchsorted(page_id), len(states) - 1)
    return states, np.where(states.page_id[row] == page_id, row, -1)


def _judge(row: Ints, at: Instants, last: Instants) -> tuple[Codes, Ints]:
    """Give the verdict of every item, and the accepted ones ordered by page and time."""
    verdict = np.full(len(row), Verdict.unknown, np.int16)
    order = np.lexsort((at, row))[np.count_nonzero(row < 0) :]
    row, at = row[order], at[order]
    newest = last[row]
    again = 1 + np.flatnonzero(row[1:] == row[:-1])
    newest[again] = np.fmax(newest[again], at[again - 1])
    verdict[order] = judged = _verdict(at, newest)
    return verdict, order[judged == Verdict.accepted]


def _of(runs: Runs, states: PageStates, row: Ints) -> PageStates:
    """Give the states of the pages that have a run."""
    return states if len(runs.start) == len(states) else states.take(row[runs.start])


def _verdict(at: Instants, last: Instants) -> Codes:
    judged = np.full(len(at), Verdict.accepted, np.int16)
    judged[at == last] = Verdict.duplicate
    judged[at < last] = Verdict.late
    return judged


def _gap(states: PageStates, runs: Runs, newest: Instants, rules: Rules) -> Floats:
    """Draw how many mean intervals lie between the last crawl and the next one.

    The first crawl that answers is followed by a random part of one interval, so that pages
    which came together are not due together.
    """
    uniform = rules.rng.random(len(states))
    if rules.timing is Timing.poisson:
        return timing.poisson_gap(1.0, uniform)
    gap = timing.next_due_in(1.0, JITTER, uniform)
    first = np.isnat(states.last_observed_at) & ~np.isnat(newest) & (runs.start == runs.end)
    return np.where(first, timing.first_due_in(1.0, uniform), gap) if first.any() else gap


def _told(pings: PingColumns, crawl_rate: Floats) -> LogColumns:
    """Give the log's entries of pings, which are no evidence by themselves."""
    unsaid = np.full(len(pings), UNSAID, np.int16)
    return LogColumns(
        page_id=pings.page_id, observed_at=pings.changed_at,
        kind=np.full(len(pings), Kind.ping, np.int16), changed=unsaid,
        interval=np.full(len(pings), np.nan), crawl_rate=crawl_rate, status=unsaid,
    )  # fmt: skip
