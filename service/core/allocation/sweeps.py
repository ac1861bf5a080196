"""The passes over the pages: parts in threads, their sums added up."""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from service.core.allocation import roots
from service.core.allocation.blocks import LARGE, Pages, over_parts
from service.core.allocation.inputs import Indices
from service.core.allocation.roots import Values
from service.core.allocation.tree import Reach
from service.core.conditions import Floats


class Settled(NamedTuple):
    """What the read-off found: crawls a day; the cost and size of violations."""

    used: float
    missed: float
    residual: float


class Sweeps:
    """Passes over pages that belong to hosts, or to one if there is no `host`.

    They are compiled where that exists (numba, many pages, no noise or bounds), else numpy's.
    `scratch` are columns for a number a page, in use until `settle`.
    """

    def __init__(
        self,
        pages: Pages,
        host: Indices | None = None,
        n_hosts: int = 1,
        scratch: tuple[Floats, Floats] | None = None,
    ) -> None:
        plain = pages.ping_recall is None and pages.min_crawl_rate is None
        self._pages, self._host = pages, host
        self._ordered: Any = pages
        self._by, self._first = host, None
        self._n_hosts = n_hosts
        if plain and pages.importance.size >= LARGE and numba_is_here():
            self._kernels = _load("compiled")
            if host is not None and scratch is not None:
                by_host = _load("ordered").by_host
                self._ordered, self._first = by_host(pages, host, n_hosts, scratch)
                self._by = self._first
        elif plain and host is None and scratch is not None:
            self._kernels = _load("packed")
            self._ordered = self._kernels.pack(pages, scratch)
        else:
            self._kernels = _load("interpreted")

    def survey(self) -> Reach:
        """Sum what bounds the demand of each host."""
        return Reach(*self._sum(4, self._kernels.survey))

    def take(self, s: Floats) -> Values:
        """Bandwidth that the pages of each host take at the host's `s`, and its derivative."""

        def take(pages: Pages, by: Indices | None, part: slice, sums: Floats) -> None:
            self._kernels.take(pages, by, part, s, sums)

        return Values(*self._sum(2, take))

    def limit(self, s: Floats, values: Values, bandwidth: Floats, lower: Floats) -> int:
        """Lower the s of hosts that take more than their bandwidth at it to where they take that.

        What is in `values` is taken at s, before and after. Returns the number of passes.
        """
        if self._first is None:
            passes = roots.limit(self.take, s, values, bandwidth, lower)
            values.value[:] = self.take(s).value
            return passes + 1

        def limit(part: slice) -> None:
            self._kernels.limit(self._ordered, self._first, part, s, values, bandwidth, lower)

        over_parts(limit, self._pages.importance.size, self._first)
        return 1

    def settle(self, s: Floats, crawl_rate: Floats, crawl_probability: Floats) -> Settled:
        """Write the rates that pages have at their host's `s`, and check them against it."""
        rates = crawl_rate, crawl_probability

        def part(part: slice) -> tuple[float, float, float]:
            answer: tuple[float, float, float] = self._kernels.settle(
                self._pages, self._host, part, s, *rates
            )
            return answer

        used, missed, worst = zip(*over_parts(part, self._pages.importance.size), strict=True)
        return Settled(sum(used), sum(missed), max(worst))

    def _sum(
        self, n_columns: int, kernel: Callable[[Pages, Indices | None, slice, Floats], None]
    ) -> Floats:
        """Add up columns by host: shared by the threads where each has hosts of its own."""
        n = self._pages.importance.size
        shape = n_columns, self._n_hosts
        shared = None if self._first is None else np.zeros(shape)

        def part(part: slice) -> Floats:
            sums = np.zeros(shape) if shared is None else shared
            kernel(self._ordered, self._by, part, sums)
            return sums

        total, *others = over_parts(part, n, self._first)
        if shared is None:
            for sums in others:
                total += sums
        return total


@cache
def numba_is_here() -> bool:
    """Tell whether the extra `fast` is installed."""
    return find_spec("numba") is not None


def _load(name: str) -> ModuleType:
    return import_module(f"service.core.allocation.{name}")
