"""Admission of new pages to their first crawl, by the worth of their URL groups (`core.worth`).

A new page waits in the last level of its ladder (`PageStates.held`) until it is admitted. Pages are
admitted when others are registered, when first crawls of their levels are reported, and in each
round of the runner of epochs. The round also admits samples of stopped levels.
"""

import math
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.core import worth
from service.model.arrays import Bools, Columns, Ints, distinct, is_among
from service.model.ladder import Ladder, ladder, last_levels
from service.storage import Store, Transaction
from service.storage.budget.worth import WRITTEN, NewLevels, UrlLevels

BLOCK = 5_000
"""Maximum pages of one level, and of one level's children, that a transaction admits."""
LEVELS = 500
"""Maximum last levels of one transaction of a round."""
SAMPLED = 0.01
"""Share of the budget for samples of stopped levels."""
SAMPLE_EVERY = timedelta(days=10)
"""Minimum time between two samples of a level. Less than one sample in ten brings news."""
MOST_SAMPLES = 200
"""Maximum samples of one round."""
CANDIDATES = 1_000
"""Maximum levels that one round looks through for pages."""
NO_PAGES = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstCrawls(Columns):
    """(N,) pages whose first crawls have an answer."""

    page_id: Ints
    held: Ints
    """As in `PageStates`, before the crawl."""
    digest: Ints
    """Digest of the content; 0: none."""
    brings: Bools
    """True if the crawl brings something new, unless its digest is known."""
    forbidden: Bools
    """True if robots.txt forbids the page."""
    heir: Ints
    """New page to which the page redirects, and which takes over its place in flight; 0: none."""
    n_before: Ints
    """Number of pages of the chain of redirects that ends here, without this one."""
    ends: Bools
    """True if a chain ends here without news: its heir waits, like any new page of its group."""
    judged: Bools
    """True if the crawl has a verdict."""
    offered: Bools
    """True if the site asks a price: the page has no answer yet, and its place is free."""


NO_CRAWLS = FirstCrawls.empty()


class Forest(NamedTuple):
    """Levels as the store has them, and as the core judges them in the same order."""

    stored: UrlLevels
    levels: worth.Levels

    @classmethod
    def locked(cls, tx: Transaction, level: Ints) -> "Forest":
        """Return some levels and all above them, with their hosts locked."""
        stored = tx.lock_levels(distinct(level))
        place = stored.level.searchsorted(stored.parent)
        return cls(
            stored,
            worth.Levels(
                parent=np.where(is_among(stored.parent, stored.level), place, -1),
                n=np.where(stored.last, stored.n_first - stored.n_led, stored.n_opened),
                new=np.where(stored.last, stored.n_new, stored.n_opened_new),
                in_flight=stored.n_in_flight,
                rule=stored.rule.astype(np.int64),
                n_first=stored.n_first - stored.n_led,
                n_new=stored.n_new,
            ),
        )

    def counts(self, level: Ints, weight: Ints | Bools | None = None) -> Ints:
        """Return how often, or with which weight, each level is among some that the forest has."""
        place = self.stored.level.searchsorted(level)
        return np.bincount(place, weight, len(self.stored.level)).astype(np.int64)

    def save(
        self,
        tx: Transaction,
        after: worth.Levels,
        now: datetime,
        forbidden: Ints | int = 0,
        led: Ints | int = 0,
    ) -> None:
        """Write the levels after an event, with their verdicts, as far as they differ.

        `forbidden` are the (N,) first crawls of last levels that robots.txt forbade, `led` those
        more that lead on to a page without an answer.
        """
        stored, none = self.stored, np.zeros(len(self.stored), np.int64)
        more = worth.summed(after.parent, none + forbidden)
        n_led = stored.n_led + worth.summed(after.parent, none + led)
        changed = replace(
            stored,
            n_first=after.n_first + n_led,
            n_led=n_led,
            n_new=after.n_new,
            n_opened=np.where(stored.last, 0, after.n),
            n_opened_new=np.where(stored.last, 0, after.new),
            n_in_flight=after.in_flight,
            n_forbidden=stored.n_forbidden + more,
            stopped=worth.stopped(after),
        )
        differs = np.zeros(len(stored), np.bool_)
        for name in WRITTEN:
            differs |= getattr(changed, name) != getattr(stored, name)
        tx.save_levels(changed.take(differs), now)


def enlist(tx: Transaction, urls: NDArray[np.object_], now: datetime) -> Ints:
    """Insert the levels of URLs of one database; return their last levels, distinct."""
    if not len(urls):
        return NO_PAGES
    level, first = np.unique(last_levels(urls), return_index=True)
    names: dict[int, tuple[int, str]] = {}
    for ladder_of in map(ladder, urls[first]):
        parents = (0, *ladder_of.levels)
        names |= zip(ladder_of.levels, zip(parents, ladder_of.names, strict=False), strict=True)
    ids = np.array(sorted(names), np.int64)
    pairs = [names[each] for each in ids.tolist()]
    tx.add_levels(
        NewLevels(
            level=ids,
            parent=np.array([parent for parent, _ in pairs], np.int64),
            name=np.array([name for _, name in pairs], object),
        ),
        now,
    )
    return level


def admit_new(
    tx: Transaction,
    urls: NDArray[np.object_],
    page_id: Ints,
    now: datetime,
    first: FirstCrawls = NO_CRAWLS,
) -> Ints:
    """Admit pages after some were registered, and after first crawls; return them, ascending.

    Hosts are locked once, after the levels of new pages were inserted, so that two transactions do
    not wait for each other.
    """
    admitted = [NO_PAGES]
    if not tx.holds_new:
        urls, page_id = urls[:0], NO_PAGES
    every = np.concatenate([page_id, first.page_id])
    for one, rows in tx.by_database(every) if len(every) else ():
        row = np.arange(len(every))[rows]
        new, crawled = row[row < len(page_id)], row[row >= len(page_id)] - len(page_id)
        level = enlist(one, urls[new], now)
        one.lock_levels(distinct(np.append(level, np.abs(first.held[crawled]))))
        if len(crawled):
            answered = first.take(crawled)
            handed = is_among(answered.heir, distinct(page_id[new]))
            admitted.append(_handed_on(one, answered.where(handed), now))
            admitted.append(_judged(one, answered.where(~handed | answered.ends), now))
        if len(new):
            admitted.append(admit(one, level, now))
    return distinct(np.concatenate(admitted))


def admit(tx: Transaction, level: Ints, now: datetime) -> Ints:
    """Admit pages that wait in last levels, as far as these have places; return them, ascending."""
    forest = Forest.locked(tx, level)
    levels = forest.levels
    asked = is_among(forest.stored.level, distinct(level)) & forest.stored.last
    places = np.where(asked, np.minimum(worth.places(levels), BLOCK), 0)
    some = places > 0
    waiting = tx.waiting_pages(forest.stored.level[some], places[some])
    granted = worth.grants(levels, forest.counts(waiting.level))
    chosen = np.zeros(len(waiting.page_id), np.bool_)
    order = np.lexsort((waiting.page_id, waiting.level))
    rank = np.arange(len(order)) - waiting.level[order].searchsorted(waiting.level[order])
    chosen[order] = rank < granted[forest.stored.level.searchsorted(waiting.level[order])]
    page_id = np.sort(waiting.page_id[chosen])
    if len(page_id):
        tx.admit_pages(page_id)
        forest.save(tx, worth.admitted(levels, forest.counts(waiting.level, chosen)), now)
    return page_id


def _handed_on(tx: Transaction, first: FirstCrawls, now: datetime) -> Ints:
    """Pass the places of pages in flight to the pages to which they redirect; return these.

    Only the end of a chain shows its news, which count in the group of the page that began it. The
    heir of a chain that ends is of the same group, and waits.
    """
    if not len(first):
        return NO_PAGES
    tx.hand_on(np.sort(first.page_id))
    tx.hold_pages(np.sort(first.heir[first.ends]))
    on = first.where(~first.ends)
    tx.end_holds(np.sort(on.page_id))
    level = np.abs(on.held)
    forest = Forest.locked(tx, level)
    level = level[is_among(level, forest.stored.level)]
    forest.save(tx, forest.levels, now, led=forest.counts(level))
    return on.heir


def _judged(tx: Transaction, first: FirstCrawls, now: datetime) -> Ints:
    """Count first crawls, then admit pages that wait for the places; return these.

    Each page of a chain of redirects was counted as a first crawl at its answer. At its end all of
    them have a verdict, and the end may bring something new.
    """
    if not len(first):
        return NO_PAGES
    level = np.abs(first.held)
    tx.end_holds(np.sort(first.page_id[~first.offered]))
    tx.admit_pages(np.sort(first.page_id[first.offered]))
    new = first.brings & _is_new(tx, first.digest)
    forest = Forest.locked(tx, level)
    listed = is_among(level, forest.stored.level)
    level, new, flew = level[listed], new[listed], first.held[listed] < 0
    some = first.where(listed)
    # a chain may begin with pages whose first crawls had a verdict before
    led = np.minimum(forest.counts(level, some.n_before), forest.stored.n_led)
    crawls, n_new = forest.counts(level, some.judged) + led, forest.counts(level, new)
    after = worth.answered(forest.levels, crawls, n_new, forest.counts(level, flew))
    forbidden = np.minimum(crawls, forest.counts(level, some.forbidden * (1 + some.n_before)))
    forest.save(tx, after, now, forbidden, -led)
    stops = (crawls > 0) & forest.stored.stopped & worth.stopped(after)
    # a sample may be crawled days after its admission, and counts on the day of its crawl
    tx.date_samples(forest.stored.level[stops], now)
    places = worth.places(after)
    above = ~forest.stored.last & (places > 0)
    most = int(min(places[above].sum(), BLOCK))
    below = tx.unopened(forest.stored.level[above], most) if most else NO_PAGES
    return admit(tx, np.append(forest.stored.level[forest.stored.last], below), now)


def _is_new(tx: Transaction, digest: Ints) -> Bools:
    """Return which digests no page had; of equal ones only the first is new."""
    new: Bools = digest == 0
    distinct_digest, first = np.unique(digest, return_index=True)
    some = distinct_digest != 0
    if some.any():
        offered = distinct_digest[some]
        new[first[some]] = is_among(offered, tx.add_digests(offered))
    return new


def forget(tx: Transaction, page_id: Ints, now: datetime) -> None:
    """Return the places of pages that are about to be deleted; lock the states of the pages."""
    tx.lock_states(page_id)
    for one, rows in tx.by_database(page_id):
        held = one.held_pages(page_id[rows])
        one.drop_digests(page_id[rows])
        release(one, held.level[held.level < 0], now)


def release(tx: Transaction, held: Ints, now: datetime) -> None:
    """Return the places of pages in flight; `held` is that of `PageStates`."""
    if not len(held):
        return
    forest = Forest.locked(tx, -held)
    ended = forest.counts(-held[is_among(-held, forest.stored.level)])
    none = np.zeros_like(ended)
    forest.save(tx, worth.answered(forest.levels, none, none, ended), now)


def admit_waiting(store: Store, now: datetime) -> None:
    """Admit what waits in one database, a block of levels a transaction.

    Pages wait here without a level after an import, and beside free places after a deletion. In a
    store that holds no new pages, all are admitted.
    """
    after = 0
    while True:
        with store.begin() as tx:
            level = tx.waiting_levels(after, LEVELS)
            if not len(level):
                return
            if store.holds_new:
                enlist(tx, tx.urls_of_levels(level), now)
                admit(tx, level, now)
                after = int(level[-1])
            else:
                every = np.full(len(level), BLOCK)
                tx.end_holds(np.sort(tx.waiting_pages(level, every).page_id))


def sample(store: Store, budget: float, now: datetime) -> Ints:
    """Admit one page of each stopped level; return the pages, ascending.

    A level has a sample each `SAMPLE_EVERY`. On a UTC day all levels together have at most
    `SAMPLED` of the budget, crawls a day, of one database; if that is below one, one sample in so
    many days. A sample that waits for its crawl keeps its place. So samples of several days are not
    crawled on one day.
    """
    if not store.holds_new or budget <= 0:
        return NO_PAGES
    a_day = SAMPLED * budget
    days = math.ceil(max(min(1 / a_day, 36_500.0), 1.0))
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    since = midnight - timedelta(days=days - 1)
    pages = [NO_PAGES]
    with store.begin() as tx:
        n_sampled = tx.n_sampled(since, min(since, now - SAMPLE_EVERY))
        left = min(max(int(a_day), 1) - n_sampled, MOST_SAMPLES)
        due = tx.due_samples(now - SAMPLE_EVERY, CANDIDATES) if left > 0 else NO_PAGES
        for level in due.tolist():
            if len(pages) <= left:
                pages += [some] if len(some := _sampled(tx, np.array([level]), now)) else []
    return distinct(np.concatenate(pages))


def _sampled(tx: Transaction, level: Ints, now: datetime) -> Ints:
    """Admit one page that waits in or below a stopped level.

    Below, the verdict of the group with the most waiting pages decides on most of them.
    """
    forest = Forest.locked(tx, level)
    if not forest.stored.last[forest.stored.level == level].all():
        last = tx.fullest(int(level[0]))
        forest = Forest.locked(tx, np.append(last, level))
    else:
        last = level
    page_id = tx.waiting_pages(last, np.ones(len(last), np.int64)).page_id
    if len(page_id):
        tx.admit_pages(page_id)
        forest.save(tx, worth.admitted(forest.levels, forest.counts(last)), now)
        tx.mark_sampled(np.append(level, last), now)
    return page_id


def overrule(tx: Transaction, names: Ladder, rule: int, now: datetime) -> Ints:
    """Write an operator's rule for the last level of a ladder; return pages that it admits.

    A rule that stops a level holds the pages that were admitted and not crawled. Pages beyond
    `BLOCK` of a level are admitted in the next rounds.
    """
    ids, target = np.array(names.levels, np.int64), names.levels[-1]
    order = np.argsort(ids)
    parent, name = np.array([0, *names.levels[:-1]]), np.array(names.names, object)
    tx.add_levels(NewLevels(level=ids[order], parent=parent[order], name=name[order]), now)
    forest = Forest.locked(tx, ids[-1:])
    is_target = (forest.stored.level == target).astype(np.int64)
    after = worth.ruled(forest.levels, is_target * rule, is_target == 1)
    tx.set_rule(target, rule, now)
    forest.save(tx, after, now)
    if rule == worth.HOLD:
        held = tx.hold_again(target)
        release(tx, -held.level, now)
        return NO_PAGES
    return admit(tx, tx.waiting_below(target, LEVELS), now)
