"""The passes over the pages: sums by host at a multiplier, and the rates at the optimum."""

from collections.abc import Callable, Iterable
from typing import TypeVar

import numpy as np
from typing_extensions import override

from service.core.allocation.blocks import BLOCK, Indices, Pages, blocks, by_host, over_parts
from service.core.allocation.demand import Taken, Work, demand, pings, with_pings
from service.core.allocation.multipliers import PageSums, Roots, Values
from service.core.checks import Floats

T = TypeVar("T")

Form = Callable[[Pages, Floats | float, Work], Iterable[Floats]]
"""Function that returns columns of pages at an s, which is a number or (N,). A generator may reuse
the memory of a column for the next one."""


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
        return self._values(s, self._sum(self._demand, len(Values._fields), self._point(s)))

    def settle(self, s: Floats, crawl_rate: Floats, crawl_probability: Floats) -> None:
        """Write the rates of pages at the `s` of their hosts.

        `crawl_probability` has zeros before the call.
        """
        point = self._point(s)

        def settle_part(part: slice) -> None:
            buffers = np.empty((2, min(BLOCK, self._n)))
            for block in blocks(part):
                pages, at = self._pages.cut(block), self._of_pages(point, block)
                rate, (slope, root) = crawl_rate[block], buffers[:, : block.stop - block.start]
                work = Work(rate, slope, root)
                # in place, or a copy for noisy pings and costs
                rate[:] = self._demand(pages, at, work).rate
                split(pages, rate, crawl_probability[block])

        over_parts(settle_part, self._n)

    def _demand(self, pages: Pages, s: Floats | float, work: Work) -> Taken:
        return demand(pages, s, work)

    def _point(self, s: Floats) -> Floats:
        """Return what `_demand` receives of hosts at an s."""
        return s

    def _values(self, s: Floats, sums: Floats) -> Values:  # noqa: ARG002
        """Return the values of hosts at an s, whose pages have these sums of `_demand`."""
        return Values(*sums)

    def _of_pages(self, s: Floats, block: slice) -> Floats | float:  # noqa: ARG002
        return float(s[0])

    def _sum(self, form: Form, n_columns: int, s: Floats) -> Floats:
        def sum_part(part: slice) -> Floats:
            sums, buffers = np.zeros((n_columns, 1)), np.empty((3, min(BLOCK, self._n)))
            for block in blocks(part):
                columns = form(self._pages.cut(block), float(s[0]), _work(buffers, block))
                sums[:, 0] += [float(column.sum()) for column in columns]
            return sums

        return np.asarray(np.sum(over_parts(sum_part, self._n), axis=0))


class HostSweeps(Sweeps):
    """Passes over the pages of many hosts, in buckets; each host is in one bucket.

    `scratch` has room for two numbers a page; `settle` may receive it for its results.
    """

    def __init__(
        self, pages: Pages, host: Indices, n_hosts: int, scratch: tuple[Floats, Floats]
    ) -> None:
        super().__init__(pages)
        self._host, self._n_hosts = host, n_hosts
        self._buckets = by_host(pages, host, n_hosts, scratch)

    def limit(self, s: Floats, values: Values, bandwidth: Floats, lower: Floats) -> int:
        """Lower the s of each host above its bandwidth to its root; return the number of passes.

        An s of 0 stays. `values` belong to `s` before the call.
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
        buffers = np.empty((4, min(BLOCK, host.size)))

        def take(at: Floats) -> Values:
            sums, point = np.zeros((len(Values._fields), over.size)), self._point(at)
            for block in blocks(slice(0, host.size)):
                _add(self._demand, pages.cut(block), host[block], point, sums, buffers)
            return self._values(at, sums)

        passes = roots.climb(lambda which, _: take(roots.s).of(which))
        s[over] = roots.s
        return passes

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

    @override
    def settle(self, s: Floats, crawl_rate: Floats, crawl_probability: Floats) -> None:
        crawl_probability.fill(0.0)
        super().settle(s, crawl_rate, crawl_probability)

    def _of_pages(self, s: Floats, block: slice) -> Floats:
        return s.take(self._host[block])

    def _sum(self, form: Form, n_columns: int, s: Floats) -> Floats:
        sums = np.zeros((n_columns, self._n_hosts))

        def sum_part(part: slice) -> None:
            buffers = np.empty((4, min(BLOCK, self._n)))
            for bucket in range(part.start, part.stop):
                hosts = self._hosts(bucket)
                at = s if s.size == 1 else s[hosts]
                for block in blocks(self._buckets.pages_of(bucket)):
                    host = self._buckets.hosts_in(bucket, block)
                    _add(form, self._buckets.pages.cut(block), host, at, sums[:, hosts], buffers)

        self._over_buckets(sum_part)
        return sums

    def _over_buckets(self, function: Callable[[slice], T]) -> list[T]:
        return over_parts(function, self._n, self._buckets.edges)

    def _hosts(self, bucket: int) -> slice:
        width = self._buckets.width
        return slice(bucket * width, min((bucket + 1) * width, self._n_hosts))


def _work(buffers: Floats, block: slice) -> Work:
    return Work(*buffers[:, : block.stop - block.start])


def _add(form: Form, pages: Pages, host: Indices, s: Floats, sums: Floats, buffers: Floats) -> None:
    """Add the columns of pages to the sums of their hosts; `buffers` has rows for s and `Work`."""
    own, *work = buffers[:, : host.size]
    at = float(s[0]) if s.size == 1 else s.take(host, out=own, mode="clip")
    for row, column in enumerate(form(pages, at, Work(*work))):
        sums[row] += np.bincount(host, column, sums.shape[1])


def _bounds(pages: Pages, s: Floats | float, work: Work) -> tuple[Floats, ...]:  # noqa: ARG001
    """Return importance, ping rate, spread and, if pages have minima, the floor (`PageSums`)."""
    unannounced, ping_rate = pings(pages)
    spread = np.multiply(pages.importance, unannounced, out=work.root)
    np.sqrt(spread, out=spread)
    bounds = pages.importance, ping_rate, spread
    return bounds if pages.min_crawl_rate is None else (*bounds, pages.min_crawl_rate)


def split(pages: Pages, rate: Floats, probability: Floats) -> None:
    """Divide total rates into rates on the clock, in place, and probabilities of crawls."""
    pinged, ping_rate = with_pings(pages)
    taken = rate[pinged]
    share = np.divide(taken, ping_rate, out=np.zeros_like(taken), where=ping_rate > 0)
    probability[pinged] = np.minimum(share, 1.0, out=share)
    rate[pinged] = np.maximum(taken - ping_rate, 0.0)
