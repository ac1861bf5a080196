"""Change rates of URL groups as readers of a store with logical shards need them.

An epoch learns a table of URL groups for each logical shard. A reader of few pages should not join
tables of a gigabyte, so it takes one number from the table of each page's shard.
"""

from dataclasses import replace
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from service.core.estimators.base import Estimator
from service.core.recalibration import Recalibration
from service.model.arrays import (
    NO_TIME,
    SHARD_BITS,
    Floats,
    Ints,
    UrlGroupRates,
    UrlGroups,
    instant,
)
from service.model.domain import Epoch
from service.storage import Transaction


class EpochFacts(NamedTuple):
    """An epoch in force, as far as it matters to predictions."""

    number: int
    """0 before the first epoch."""
    started_at: np.datetime64
    """NaT before the first epoch."""
    budget_factor: float
    prior: dict[str, float]
    """Numbers of the fit (`Estimator.corpus`)."""
    observed_ratios: Floats | None = None
    """Ratios of observed to expected changes of all pages, by age; None: 1."""
    recalibration: Recalibration = Recalibration.none()
    """Correction of forecasts by the crawls that followed them."""

    @classmethod
    def of(cls, epoch: Epoch | None) -> "EpochFacts":
        """Return the facts of an epoch."""
        if epoch is None or epoch.certificate is None or epoch.started_at is None:
            return NO_EPOCH
        certificate = epoch.certificate
        factor, ratios = certificate.budget_factor or 1.0, certificate.observed_ratios
        by_age = np.array(ratios) if ratios else None
        recalibration = Recalibration.unpacked(certificate.recalibration)
        started_at = instant(epoch.started_at)
        return cls(epoch.epoch, started_at, factor, certificate.prior, by_age, recalibration)


NO_EPOCH = EpochFacts(0, NO_TIME, 1.0, {})


class Grouped(Protocol):
    """Columns of pages with their URL groups."""

    @property
    def page_id(self) -> Ints:
        """Ids, or shard · -2⁴² for a page that is not registered."""

    @property
    def url_group(self) -> UrlGroups:
        """URL group of each page."""


PagesT = TypeVar("PagesT", bound=Grouped)


class ShardRates:
    """The tables of the newest epoch that was asked for; each is read once, when it is needed."""

    def __init__(self) -> None:
        self._newest: tuple[int, dict[int, UrlGroupRates | None]] = 0, {}

    def read(self, tx: Transaction, epoch: int, shard: int) -> UrlGroupRates | None:
        """Return the rates of a logical shard, 1/day; None if the epoch learnt none."""
        number, tables = self._newest
        if epoch < number:  # of a database to which the newest epoch is not announced yet
            return tx.url_group_rate(epoch, shard)
        if epoch > number:
            self._newest = _, tables = epoch, {}
        if shard not in tables:
            tables[shard] = tx.url_group_rate(epoch, shard)
        return tables[shard]

    def of_shard(
        self, tx: Transaction, estimator: Estimator[Any], epoch: EpochFacts, shard: int
    ) -> Estimator[Any]:
        """Return an estimator in force with the URL groups of a logical shard."""
        if not tx.has_shards or not estimator.corpus():
            return estimator
        return estimator.with_corpus(epoch.prior, self.read(tx, epoch.number, shard))

    def of_pages(
        self, tx: Transaction, estimator: Estimator[Any], epoch: EpochFacts, pages: PagesT
    ) -> tuple[Estimator[Any], PagesT]:
        """Return an estimator in force and pages whose `url_group` is that of its table.

        Pages of several logical shards get a URL group each, with the rate of their own.
        """
        if not tx.has_shards or not estimator.corpus() or not len(pages.page_id):
            return estimator, pages
        shard = np.abs(pages.page_id >> SHARD_BITS)
        if (shard == shard[0]).all():
            return self.of_shard(tx, estimator, epoch, int(shard[0])), pages
        rate = self._rates(tx, epoch, shard, pages.url_group)
        if rate is None:
            return estimator, pages
        each: Any = replace(pages, url_group=np.arange(len(rate), dtype=np.int32))  # type: ignore[type-var]
        return estimator.with_corpus(epoch.prior, rate), each

    def _rates(
        self, tx: Transaction, epoch: EpochFacts, shard: Ints, url_group: UrlGroups
    ) -> UrlGroupRates | None:
        """Return the (N,) rates of pages, the corpus' mean without a table; None: no tables."""
        if "within_shape" not in epoch.prior:
            return None
        mean = epoch.prior["a"] / epoch.prior["b"]
        rate: UrlGroupRates = np.full(len(shard), mean, np.float32)
        order = np.argsort(shard, kind="stable")
        ends = np.flatnonzero(np.diff(shard[order])) + 1
        for row in np.split(order, ends):
            table = self.read(tx, epoch.number, int(shard[row[0]]))
            if table is not None:
                rate[row] = table[url_group[row] % table.size]
        return rate
