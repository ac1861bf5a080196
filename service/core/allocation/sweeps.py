"""The passes over the pages: sums by host at a multiplier, and the rates at the optimum."""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import numpy as np
from typing_extensions import override

from service.core.allocation.blocks import BLOCK, Indices, Pages, blocks, by_host, over_parts
from service.core.allocation.demand import NEVER_ZERO, Work, demand, pings, violation
from service.core.allocation.multipliers import PageSums, Roots, Values
from service.core.conditions import Floats

T = TypeVar("T")

Form = Callable[[Pages, Floats | float, Work], tuple[Floats, ...]]
"""Function that returns columns of pages at an s, which is a number or (N,)."""


class FinalSums(NamedTuple):
    """Sums over the pages at their final rates, recomputed from the rates as written."""

    used: Floats
    """(H,) crawls a day of each host; (1,) without hosts."""
    missed: float
    """Bound on the cost of the violations."""
    residual: float
    """The largest violation."""


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
        """Write the rates of pages at the `s` of their hosts; return their sums and violations.

        `crawl_probability` has zeros before the call.
        """

        def settle_part(part: slice) -> tuple[float, float, Indices, Floats]:
            missed = worst = 0.0
            buffers = np.empty((2, min(BLOCK, self._n)))
            on_pings = [(np.zeros(0, np.intp), np.zeros(0))]
            for block in blocks(part):
                pages, at = self._pages.cut(block), self._of_pages(s, block)
                rate, (slope, root) = crawl_rate[block], buffers[:, : block.stop - block.start]
                work = Work(rate, slope, root)
                rate[:] = demand(pages, at, work).rate  # in place, or a copy for noisy pings
                off = violation(pages, at, rate, work)
                worst = max(worst, float(off.max()))
                off *= rate
                off /= np.maximum(at, NEVER_ZERO)
                missed += float(off.sum())
                own, crawls = _split(pages, rate, crawl_probability[block])
                on_pings.append((own + block.start, crawls))
            pinged, crawls = map(np.concatenate, zip(*on_pings, strict=True))
            return missed, worst, pinged, crawls

        missed, worst, *on_pings = zip(*over_parts(settle_part, self._n), strict=True)
        used = self._used(crawl_rate, *map(np.concatenate, on_pings))
        return FinalSums(used, sum(missed), max(worst))

    def _of_pages(self, s: Floats, block: slice) -> Floats | float:  # noqa: ARG002
        return float(s[0])

    def _used(self, crawl_rate: Floats, pinged: Indices, on_pings: Floats) -> Floats:  # noqa: ARG002
        return np.array([crawl_rate.sum() + on_pings.sum()])

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
            sums = np.zeros((len(Values._fields), over.size))
            for block in blocks(slice(0, host.size)):
                _add(demand, pages.cut(block), host[block], at, sums, buffers)
            return Values(*sums)

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
    def settle(self, s: Floats, crawl_rate: Floats, crawl_probability: Floats) -> FinalSums:
        crawl_probability.fill(0.0)
        return super().settle(s, crawl_rate, crawl_probability)

    def _of_pages(self, s: Floats, block: slice) -> Floats:
        return s.take(self._host[block])

    def _used(self, crawl_rate: Floats, pinged: Indices, on_pings: Floats) -> Floats:
        used = np.bincount(self._host, crawl_rate, self._n_hosts).astype(np.float64)
        used += np.bincount(self._host[pinged], on_pings, self._n_hosts)
        return used

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


def _split(pages: Pages, rate: Floats, probability: Floats) -> tuple[Indices, Floats]:
    """Divide total rates into rates on the clock, in place, and probabilities of crawls on pings.

    Return the pages with pings and their crawls a day on pings.
    """
    if pages.ping_recall is None:
        pinged = np.flatnonzero(pages.complete)
        ping_rate = pages.change_rate[pinged]
    else:
        ping_rate = pings(pages)[1]
        pinged = np.flatnonzero(ping_rate)
        ping_rate = ping_rate[pinged]
    taken = rate[pinged]
    share = np.divide(taken, ping_rate, out=np.zeros_like(taken), where=ping_rate > 0)
    probability[pinged] = share = np.minimum(share, 1.0, out=share)
    rate[pinged] = np.maximum(taken - ping_rate, 0.0)
    return pinged, share * ping_rate
