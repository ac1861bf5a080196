"""The rules by which crawls are learnt, and the prior of the schedule in force that they use."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from service.core.estimators.base import Estimator
from service.core.ping_feeds import PingFeeds
from service.core.wide_revisions import WideRevisions
from service.estimation.shard_rates import NO_EPOCH, EpochFacts, PagesT, ShardRates
from service.model.amounts import NO_BUDGET, HasUnit
from service.model.domain import Epoch, Timing
from service.storage import Transaction


@dataclass(frozen=True, slots=True)
class Rules:
    """One estimator and one timing for all pages."""

    estimator: Estimator[Any]
    timing: Timing
    rng: np.random.Generator
    ping_delay_s: float = 0.0
    """Time after a page's last crawl in which pings are dropped, seconds."""
    budget: HasUnit = NO_BUDGET
    """The budget in force, in whose unit crawls state their costs."""
    epoch: EpochFacts = NO_EPOCH
    """The epoch whose prior and urgencies are in force."""
    revisions: WideRevisions | None = None
    """Wide revisions that this epoch knew; None: none."""
    feeds: PingFeeds = field(default_factory=PingFeeds.none, compare=False, repr=False)
    """Pings of hosts as of this epoch, by which all judge whether a feed is silent."""
    shard_rates: ShardRates = field(default_factory=ShardRates, compare=False, repr=False)
    """Tables of URL groups of a store with logical shards, which its rules in force share."""

    @property
    def unit(self) -> str:
        """Unit of the budget."""
        return self.budget.unit

    def of(self, _: Transaction) -> "Rules":
        """Return these rules for any schedule in force."""
        return self

    def of_shard(self, tx: Transaction, shard: int) -> Estimator[Any]:
        """Return the estimator in force for the pages of a logical shard."""
        return self.shard_rates.of_shard(tx, self.estimator, self.epoch, shard)

    def of_pages(self, tx: Transaction, pages: PagesT) -> tuple[Estimator[Any], PagesT]:
        """Return the estimator in force for some pages, and the pages (`ShardRates`)."""
        return self.shard_rates.of_pages(tx, self.estimator, self.epoch, pages)


def rules_in_force(tx: Transaction, rules: Rules) -> Rules:
    """Return the rules with the prior of the schedule in force."""
    return InForce(rules).of(tx)


class InForce:
    """The rules with the prior of the schedule in force; reads each epoch once."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.estimator = rules.estimator
        """Estimator without a prior."""
        self._latest = 0, rules

    def of(self, tx: Transaction) -> Rules:
        """Return the rules as of this transaction."""
        epoch, rules = self._latest
        # an epoch in force never changes, so its prior is read once
        if (number := tx.number_in_force()) != epoch:
            last = tx.epoch(number)
            estimator = fitted_last(tx, self.rules.estimator, last)
            rules = replace(
                self.rules,
                estimator=estimator,
                epoch=EpochFacts.of(last),
                revisions=tx.wide_revisions(number),
                feeds=tx.ping_feeds(number),
            )
            self._latest = number, rules
        return rules


def fitted_last(
    tx: Transaction, estimator: Estimator[Any], last: Epoch | None, shard: int | None = None
) -> Estimator[Any]:
    """Return the estimator with the prior in force, for the URL groups of a logical shard.

    None is the one shard of a store without logical shards; in other stores no URL groups.
    """
    if last is None or last.certificate is None or not estimator.corpus():
        return estimator
    rate = None
    if shard is not None or not tx.has_shards:
        rate = tx.url_group_rate(last.epoch, shard or 0)
    return estimator.with_corpus(last.certificate.prior, rate)
