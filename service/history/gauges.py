"""Gauges of the history: how fresh copies are now, from last crawls and change rates in force.

The pages are read in blocks, so that memory is bounded. A corpus of more than `MOST_MEASURED` pages
is sampled: of every k blocks of `SAMPLED_TOGETHER` consecutive page_ids the first one counts, and
k is the smallest number that leaves at most `MOST_MEASURED`. If all pages of a block were alike,
the standard error of a share would be 1.1 percentage points; with independent pages it is 0.04.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from service.budget.shown import stopped_among
from service.core.estimators.base import Estimator
from service.core.forecast import expected_harmonic
from service.core.ping_feeds import PingFeeds
from service.estimation.freshness import read_freshness
from service.estimation.rules import fitted_last
from service.estimation.shard_rates import EpochFacts, ShardRates
from service.leases.due import due_at
from service.model.amounts import CRAWLS
from service.model.arrays import NO_TIME, Floats, Ints, instant
from service.model.assumed_rates import assumed
from service.model.freshness import MeasuredPages
from service.model.history import ALL_HOSTS, Gauges
from service.model.host_loads import HostLoads, MeasuredLoads
from service.model.id_space import IdSpace
from service.model.known_shares import expected_share
from service.model.outcomes import lacks_content
from service.storage import Store, Transaction
from service.storage.clock import Clock

MOST_MEASURED = 2_000_000
"""Maximum number of page_ids that one measurement reads."""
TOGETHER = 20_000
"""Page_ids of one transaction where all are read."""
SAMPLED_TOGETHER = 1_000
"""Page_ids of one transaction, and of a block, in a sample."""

SUMS = (
    "n_pages",
    "n_never_crawled",
    "n_stopped",
    "n_no_content",
    "n_overdue",
    "asked_rate",
    "n_shared",
    "n_known",
    "n_assumed",
    "importance",
    "fresh",
    "fresh_plain",
    "stale",
    "stale_plain",
)
"""Sums over the pages of a host."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """Ranges of page_ids that a measurement reads."""

    space: IdSpace
    """Ranges of all page_ids."""
    step: int = 1
    """The first of so many blocks is read."""
    length: int = TOGETHER

    @classmethod
    def of(cls, space: IdSpace, most: int = MOST_MEASURED) -> "Blocks":
        """Return the blocks for all page_ids.

        >>> spaces = [IdSpace(np.array([[0, last]])) for last in (70_000, 20_000_000)]
        >>> [Blocks.of(space).step for space in spaces]
        [1, 10]
        """
        if space.size <= most:
            return cls(space)
        return cls(space, -(-space.size // most), SAMPLED_TOGETHER)

    @property
    def starts(self) -> range:
        """The offsets before the blocks."""
        return range(0, self.space.size, self.step * self.length)

    @property
    def share(self) -> float:
        """Share of the page_ids that are read."""
        size = self.space.size
        return sum(min(self.length, size - start) for start in self.starts) / size if size else 1.0

    def spans(self) -> Iterator[tuple[int, int]]:
        """Yield the ranges of page_ids that are read: after < page_id <= last."""
        for start in self.starts:
            yield from self.space.spans(start, start + self.length)


class Measurement(NamedTuple):
    """Gauges of some hosts, and loads of all."""

    gauges: dict[int, Gauges]
    """Gauges by host_id; `ALL_HOSTS` has those of all pages."""
    loads: MeasuredLoads

    @property
    def all_pages(self) -> Gauges:
        """The gauges of all pages."""
        return self.gauges[ALL_HOSTS]


def measure(
    store: Store,
    estimator: Estimator[Any],
    hosts: Ints,
    now: Clock,
    most: int = MOST_MEASURED,
    blocks: Blocks | None = None,
) -> Measurement:
    """Return the gauges of all pages and of (H,) hosts, ascending, and the loads of all hosts.

    `estimator` is that of the settings, without the prior of the epoch in force. `blocks` replaces
    those of at most `most` page_ids.
    """
    with store.begin(write=False) as tx:
        epoch = tx.epoch_in_force()
        fitted, facts, rates = fitted_last(tx, estimator, epoch), EpochFacts.of(epoch), ShardRates()
        feeds = tx.ping_feeds(facts.number)
        blocks = blocks or Blocks.of(tx.page_ranges(), most)
    totals = np.zeros((len(hosts) + 1, len(SUMS)))
    parts: list[HostLoads] = []
    for after, last in blocks.spans():
        with store.begin(write=False) as tx:
            pages = tx.measured_pages(after, last)
            if len(pages):
                own, pages = rates.of_pages(tx, fitted, facts, pages)
                terms = _measures(tx, pages, own, instant(now()), feeds)
                totals += _sums(pages, terms, hosts)
                of_hosts = (terms[:, SUMS.index(name)] for name in ("n_overdue", "asked_rate"))
                parts.append(HostLoads.of(pages.host_id, *of_hosts))
    at = now()
    with store.begin(write=False) as tx:
        paused = tx.paused_queues(at)
    bandwidth = None
    if epoch is not None and epoch.certificate is not None and epoch.certificate.unit == CRAWLS:
        bandwidth = epoch.certificate.bandwidth
    gauges = {}
    for host_id, sums in zip([ALL_HOSTS, *hosts.tolist()], totals, strict=True):
        whole = host_id == ALL_HOSTS
        troubled, blocked = (len(queues) if whole else int(host_id in queues) for queues in paused)
        gauges[host_id] = _gauges(
            dict(zip(SUMS, sums.tolist(), strict=True)),
            blocks.share,
            measured_at=at,
            n_paused_by_trouble=troubled,
            n_paused_by_operator=blocked,
            bandwidth=bandwidth if whole else None,
        )
    loads = HostLoads.concatenate(parts).merged().scaled(1.0 / blocks.share)
    return Measurement(gauges, MeasuredLoads(at, blocks.share, loads))


def _gauges(sums: dict[str, float], share: float, **own: Any) -> Gauges:
    """Return gauges from sums of a share of the pages."""

    def expected(above: str, below: str) -> float | None:
        return expected_share(sums[above], sums[below], sums["n_known"])

    return Gauges(
        n_pages=round(sums["n_pages"] / share),
        n_never_crawled=round(sums["n_never_crawled"] / share),
        n_stopped=round(sums["n_stopped"] / share),
        n_no_content=round(sums["n_no_content"] / share),
        n_overdue=round(sums["n_overdue"] / share),
        asked_rate=sums["asked_rate"] / share,
        fresh_share=expected("fresh", "importance"),
        fresh_share_plain=expected("fresh_plain", "n_shared"),
        harmonic_staleness=expected("stale", "importance"),
        harmonic_staleness_plain=expected("stale_plain", "n_shared"),
        sampled_share=share,
        n_assumed=round(sums["n_assumed"] / share),
        **own,
    )


def _measures(
    tx: Transaction,
    pages: MeasuredPages,
    estimator: Estimator[Any],
    now: np.datetime64,
    feeds: PingFeeds,
) -> Floats:
    """Return (N, len(SUMS)) terms of pages.

    A page without a copy is not fresh. Its creation counts as one change that was not crawled. A
    page without content has no share in the allocation, so its copy is neither fresh nor stale. The
    same holds for a page whose first crawl a rule, or the stop of its URL group, forbids.
    """
    lacking = lacks_content(pages.gone, pages.n_failures)
    no_copy = np.isnat(pages.last_observed_at)
    stopped = no_copy & (pages.held != 0)
    stopped[stopped] = stopped_among(tx, pages.page_id[stopped])
    shared = (~lacking & ~stopped).astype(np.float64)
    importance = pages.importance * shared
    since = np.where(no_copy, pages.created_at, NO_TIME)
    stale, changes = read_freshness(tx, pages, since, estimator, now, feeds=feeds)
    fresh = np.where(no_copy, 0.0, 1.0 - stale)
    mean = np.minimum(changes, FAR)
    created = np.divide(-np.expm1(-mean), mean, out=np.ones_like(mean), where=mean > 0)
    staleness = expected_harmonic(mean) + np.where(no_copy, created, 0.0)
    is_assumed = assumed(pages)
    terms = {
        "n_pages": np.ones(len(pages)),
        "n_never_crawled": np.isnat(pages.last_crawl_at),
        "n_stopped": stopped & np.isnat(pages.last_crawl_at),
        "n_no_content": lacking,
        "n_overdue": due_at(pages) < now,
        "asked_rate": np.nan_to_num(pages.due_rate),
        "n_shared": shared,
        "n_known": shared * ~is_assumed,
        "n_assumed": is_assumed & ~lacking,
        "importance": importance,
        "fresh": fresh * importance,
        "fresh_plain": fresh * shared,
        "stale": staleness * importance,
        "stale_plain": staleness * shared,
    }
    return np.column_stack([terms[name] for name in SUMS])


FAR = 1e12
"""Maximum expected number of changes of a page, far beyond any."""


def _sums(pages: MeasuredPages, terms: Floats, hosts: Ints) -> Floats:
    """Return (1 + H, len(SUMS)) sums over all pages, and over those of each host."""
    sums = np.zeros((len(hosts) + 1, terms.shape[1]))
    sums[0] = terms.sum(axis=0)
    if len(hosts):
        at = np.minimum(np.searchsorted(hosts, pages.host_id), len(hosts) - 1)
        own = np.flatnonzero(hosts[at] == pages.host_id)
        host, terms = at[own], terms[own]
        for column in range(terms.shape[1]):
            sums[1:, column] = np.bincount(host, terms[:, column], len(hosts))
    return sums
