r"""Passes over the pages of hosts at prices of two kinds: of the budget, and of hosts' caps. Pure.

A crawl of a page has the price :math:`\lambda c + \nu_h`: its cost c at the multiplier of the
budget, and what the cap of its host adds.
"""

from collections.abc import Iterator
from math import fsum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from service.core.allocation.blocks import BLOCK, Indices, Pages, blocks
from service.core.allocation.demand import Taken, Work, demand
from service.core.allocation.multipliers import PageSums, Values
from service.core.allocation.spending import cost_of
from service.core.allocation.sweeps import Form, HostSweeps
from service.core.checks import Floats

ONE_BUCKET = 2
"""Number of edges of one bucket, whose pages keep their order."""
BY_HOST = 3
"""Number of sums by host of `HostTotals`."""
MARGIN = 1e-9
"""Relative distance of the bounds of roots from the least ones."""


class HostTotals(NamedTuple):
    r"""Sums over pages at prices :math:`\lambda c + \nu_h`.

    w is the derivative of the crawls in the price, with a minus.
    """

    crawls: Floats
    """(H,) sums by host, as `w` and `cost_w`."""
    w: Floats
    cost_w: Floats
    cost_2_w: float
    """Sum over all hosts of this part."""
    spend: float
    """Sum over all hosts of this part."""


class PricedSweeps(HostSweeps):
    """Passes over the pages of hosts, at a multiplier of the budget beside those of the hosts."""

    multiplier = 0.0
    r"""Multiplier of the budget, :math:`\lambda`."""

    def __init__(
        self, pages: Pages, host: Indices, n_hosts: int, scratch: tuple[Floats, Floats]
    ) -> None:
        super().__init__(pages, host, n_hosts, scratch)
        self._starts = None if len(self._buckets.edges) <= ONE_BUCKET else self._in_order()

    def _in_order(self) -> list[NDArray[np.intp]]:
        """Order the pages of each bucket by host; return the first page of each host, and the end.

        Sums over runs of pages take a tenth of the time of `np.bincount`.
        """
        buckets = self._buckets

        def order_part(part: slice) -> list[NDArray[np.intp]]:
            starts = []
            for bucket in range(part.start, part.stop):
                block, hosts = buckets.pages_of(bucket), self._hosts(bucket)
                if buckets.relative:
                    order = buckets.host[block].argsort(kind="stable")
                    for column in (*buckets.pages, buckets.host):
                        if column is not None:
                            column[block] = column[block][order]
                host = buckets.hosts_in(bucket, block)
                edges = np.searchsorted(host, np.arange(hosts.stop - hosts.start + 1))
                starts.append(edges + block.start)
            return starts

        return [each for part in self._over_buckets(order_part) for each in part]

    @override
    def _sum(self, form: Form, n_columns: int, s: Floats) -> Floats:
        if self._starts is None:
            return super()._sum(form, n_columns, s)
        starts, buckets = self._starts, self._buckets
        sums = np.zeros((n_columns, self._n_hosts))

        def sum_part(part: slice) -> None:
            buffers = np.empty((3, min(BLOCK, self._n)))
            for bucket in range(part.start, part.stop):
                hosts = self._hosts(bucket)
                of_hosts = np.broadcast_to(s, self._n_hosts)[hosts]
                for block in blocks(buckets.pages_of(bucket)):
                    edges = np.clip(starts[bucket], block.start, block.stop) - block.start
                    size = np.diff(edges)
                    some = np.flatnonzero(size)
                    at = np.repeat(of_hosts[some], size[some])
                    work = Work(*buffers[:, : at.size])
                    for row, column in enumerate(form(buckets.pages.cut(block), at, work)):
                        own = sums[row, hosts]
                        own[some] += np.add.reduceat(column, edges[some])

        self._over_buckets(sum_part)
        return sums

    @override
    def survey(self) -> PageSums:
        # a bound that is the root itself would hide the root from steps from above
        floor, *others = super().survey()
        return PageSums(floor, *(column * (1 + MARGIN) for column in others))

    @override
    def _point(self, s: Floats) -> Floats:
        """Return the price that the caps of hosts add to each crawl."""
        with np.errstate(divide="ignore"):
            return np.broadcast_to(
                1 / s - self.multiplier, self._n_hosts if s.size == 1 else s.size
            )

    @override
    def _values(self, s: Floats, sums: Floats) -> Values:
        with np.errstate(divide="ignore", invalid="ignore"):
            return Values(sums[0], np.where(s > 0, sums[1] / s / s, 0.0))

    @override
    def _demand(self, pages: Pages, s: Floats | float, work: Work) -> Taken:
        # `s` is the price that caps add, in memory of this block alone
        at = np.asarray(s)
        at += np.multiply(cost_of(pages), self.multiplier, out=work.root)
        np.reciprocal(at, out=at)
        taken = demand(pages, at, work)
        slope = taken.slope
        slope *= at
        slope *= at
        return taken

    def totals(self, extra: Floats) -> HostTotals:
        r"""Return the sums at the (H,) prices :math:`\nu` that the caps of hosts add."""
        spend: list[float] = []
        cost_2_w: list[float] = []

        def columns(pages: Pages, s: Floats | float, work: Work) -> Iterator[Floats]:
            cost = cost_of(pages)
            rate, slope = self._demand(pages, s, work)
            yield rate
            rate *= cost
            spend.append(float(rate.sum()))
            yield slope
            slope *= cost
            yield slope
            slope *= cost
            cost_2_w.append(float(slope.sum()))

        by_host = self._sum(columns, BY_HOST, extra)
        # exact sums do not depend on the order in which threads end
        crawls, w, cost_w = by_host
        return HostTotals(crawls, w, cost_w, fsum(cost_2_w), fsum(spend))

    def totals_at(self, s: Floats) -> HostTotals:
        """Return the sums at the (H,) s of hosts."""
        return self.totals(self._point(s))

    @property
    def has_minima(self) -> bool:
        """True if pages have minimum crawl rates."""
        return self._pages.min_crawl_rate is not None

    @property
    def minimum_spend(self) -> float:
        """Costs of the minimum crawl rates, a day."""
        least = self._pages.min_crawl_rate
        return 0.0 if least is None else float(least @ cost_of(self._pages))
