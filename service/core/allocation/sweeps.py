"""The passes over the pages: sums by host at a multiplier, and the rates at the optimum."""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import numpy as np

from service.core.allocation.blocks import Indices, Pages, blocks, by_host, over_parts
from service.core.allocation.demand import NEVER_ZERO, demand, pings, violation
from service.core.allocation.multipliers import PageSums, Roots, Values
from service.core.conditions import Floats

T = TypeVar("T")

Form = Callable[[Pages, Floats | float], tuple[Floats, ...]]
"""Function that returns columns of pages at an s, which is a number or (N,)."""


class FinalSums(NamedTuple):
    """Sums over the pages at their final rates.

    `used`: crawls a day. `missed`: bound on the cost of the violations. `residual`: the largest
    violation.
    """

    used: float
    missed: float
    residual: float


class Sweeps:
    """Passes over the pages of one budget.

    A pass sums over blocks, and each part of the blocks has a thread.
    """

    def __init__(self, pages: Pages) -> None:
        self._pages, self._n = pages, pages.importance.size

    def survey(self) -> PageSums:
        """Return the sums that bound the demand of each host."""
        bounded = self._pages.min_crawl_rate is not None
        importance, *others = self._sum(_bounds, 4 if bounded else 3, np.zeros(1))
        floor = others.pop() if bounded else np.broadcast_to(0.0, importance.shape)
        return PageSums(floor, importance, *others)

    def take(self, s: Floats) -> Values:
        """Return the bandwidth that the pages of each host take, and its derivative in `s`.

        `s` has one entry for each host, or one entry for all.
        """
        return Values(*self._sum(demand, len(Values._fields), s))

    def settle(self, s: Floats, crawl_rate: Floats, crawl_probability: Floats) -> FinalSums:
        """Write the rates of pages at the `s` of their hosts; return their sums and violations."""

        def settle_part(part: slice) -> FinalSums:
            used = missed = worst = 0.0
            for block in blocks(part):
                pages, at = self._pages.cut(block), self._of_pages(s, block)
                rate = demand(pages, at).rate
                _split(pages, rate, crawl_rate[block], crawl_probability[block])
                over, under = violation(pages, at, rate)
                off = np.maximum(over, under, out=over)
                np.maximum(off, 0.0, out=off)
                worst = max(worst, float(off.max()))
                used += float(rate.sum())
                off *= rate
                off /= np.maximum(at, NEVER_ZERO)
                missed += float(off.sum())
            return FinalSums(used, missed, worst)

        used, missed, worst = zip(*over_parts(settle_part, self._n), strict=True)
        return FinalSums(sum(used), sum(missed), max(worst))

    def _of_pages(self, s: Floats, block: slice) -> Floats | float:  # noqa: ARG002
        return float(s[0])

    def _sum(self, form: Form, n_columns: int, s: Floats) -> Floats:
        def sum_part(part: slice) -> Floats:
            sums = np.zeros((n_columns, 1))
            for block in blocks(part):
                columns = form(self._pages.cut(block), float(s[0]))
                sums[:, 0] += [float(column.sum()) for column in columns]
            return sums

        return np.asarray(np.sum(over_parts(sum_part, self._n), axis=0))


class HostSweeps(Sweeps):
    """Passes over the pages of many hosts, in buckets; each host is in one bucket.

    `scratch` has room for two numbers a page; `settle` overwrites it.
    """

    def __init__(
        self, pages: Pages, host: Indices, n_hosts: int, scratch: tuple[Floats, Floats]
    ) -> None:
        super().__init__(pages)
        self._host, self._n_hosts = host, n_hosts
        self._buckets = by_host(pages, host, n_hosts, scratch)

    def limit(self, s: Floats, values: Values, bandwidth: Floats, lower: Floats) -> int:
        """Lower the s of each host above its bandwidth to its root; return the number of passes.

        An s of 0 stays. `values` belong to `s`, before and after the call.
        """
        columns = (s, *values, bandwidth, lower)

        def limit_part(part: slice) -> list[int]:
            return [
                self._limit(bucket, *(column[self._hosts(bucket)] for column in columns))
                for bucket in range(part.start, part.stop)
            ]

        return max(max(passes, default=0) for passes in self._over_buckets(limit_part))

    def _limit(
        self, bucket: int, s: Floats, value: Floats, slope: Floats, bandwidth: Floats, lower: Floats
    ) -> int:
        over = np.flatnonzero((value > bandwidth) | (s == 0))
        if not over.size:
            return 0
        pages, host = self._pages_of(bucket, over, s.size)
        roots = Roots(bandwidth[over], lower[over], s[over], evaluated=False)
        roots.final[:] = s[over] == 0
        roots.s[roots.final] = 0.0
        first = np.flatnonzero(~roots.final)
        roots.learn(first, s[over[first]], Values(value, slope).of(over[first]))

        def take(at: Floats) -> Values:
            sums = np.zeros((len(Values._fields), over.size))
            for block in blocks(slice(0, host.size)):
                _add(demand, pages.cut(block), host[block], at, sums)
            return Values(*sums)

        passes = roots.climb(lambda which, _: take(roots.s).of(which))
        s[over], value[over] = roots.s, take(roots.s).value
        return passes + 1

    def _pages_of(self, bucket: int, hosts: Indices, n_hosts: int) -> tuple[Pages, Indices]:
        """Return the pages of some hosts of a bucket, and the index of each page's host."""
        everything = self._buckets.pages_of(bucket)
        if hosts.size == n_hosts:
            return self._buckets.pages.cut(everything), self._buckets.hosts_in(bucket, everything)
        position = np.full(n_hosts, -1)
        position[hosts] = np.arange(hosts.size)
        which, host = [], []
        for block in blocks(everything):
            of_page = position.take(self._buckets.hosts_in(bucket, block))
            chosen = np.flatnonzero(of_page >= 0)
            which.append(chosen + block.start)
            host.append(of_page[chosen])
        return self._buckets.pages.cut(np.concatenate(which)), np.concatenate(host)

    def _of_pages(self, s: Floats, block: slice) -> Floats:
        return s.take(self._host[block])

    def _sum(self, form: Form, n_columns: int, s: Floats) -> Floats:
        sums = np.zeros((n_columns, self._n_hosts))

        def sum_part(part: slice) -> None:
            for bucket in range(part.start, part.stop):
                hosts = self._hosts(bucket)
                at = s if s.size == 1 else s[hosts]
                for block in blocks(self._buckets.pages_of(bucket)):
                    host = self._buckets.hosts_in(bucket, block)
                    _add(form, self._buckets.pages.cut(block), host, at, sums[:, hosts])

        self._over_buckets(sum_part)
        return sums

    def _over_buckets(self, function: Callable[[slice], T]) -> list[T]:
        return over_parts(function, self._n, self._buckets.edges)

    def _hosts(self, bucket: int) -> slice:
        width = self._buckets.width
        return slice(bucket * width, min((bucket + 1) * width, self._n_hosts))


def _add(form: Form, pages: Pages, host: Indices, s: Floats, sums: Floats) -> None:
    at = float(s[0]) if s.size == 1 else s.take(host)
    for row, column in enumerate(form(pages, at)):
        sums[row] += np.bincount(host, column, sums.shape[1])


def _bounds(pages: Pages, s: Floats | float) -> tuple[Floats, ...]:  # noqa: ARG001
    """Return importance, ping rate, spread and, if pages have minima, the floor (`PageSums`)."""
    unannounced, ping_rate = pings(pages)
    bounds = pages.importance, ping_rate, np.sqrt(pages.importance * unannounced)
    return bounds if pages.min_crawl_rate is None else (*bounds, pages.min_crawl_rate)


def _split(pages: Pages, rate: Floats, clock: Floats, probability: Floats) -> None:
    """Write the rates as probabilities of crawls on pings, up to 1, and as rates for the rest."""
    if pages.ping_recall is None:
        clock[:] = rate
        pinged = np.flatnonzero(pages.complete & (pages.change_rate > 0))
        change, taken = pages.change_rate[pinged], rate[pinged]
        probability[:] = 0.0
        clock[pinged] = np.maximum(taken - change, 0.0)
        probability[pinged] = np.minimum(taken / change, 1.0)
        return
    ping_rate = pings(pages)[1]
    np.maximum(rate - ping_rate, 0.0, out=clock)
    probability[:] = 0.0
    np.divide(np.minimum(rate, ping_rate), ping_rate, out=probability, where=ping_rate > 0)
