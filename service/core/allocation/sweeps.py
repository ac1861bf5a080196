"""The passes over the pages: parts in threads, their sums added up."""

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import NamedTuple

import numpy as np

from service.core.allocation.blocks import LARGE, Pages, over_parts
from service.core.allocation.inputs import Indices
from service.core.allocation.roots import Values
from service.core.allocation.tree import Reach
from service.core.conditions import Floats


class Settled(NamedTuple):
    """What the read-off found: by host the crawls a day, and those times their violation."""

    used: Floats
    missed: Floats
    residual: float


def survey(pages: Pages, host: Indices | None, n_hosts: int) -> Reach:
    """Sum what bounds the demand of each host."""
    kernels = _kernels(pages)

    def part(part: slice) -> Floats:
        sums = np.zeros((n_hosts, 4))
        kernels.survey(pages, host, part, sums)
        return sums

    return Reach(*_total(over_parts(part, pages.importance.size)))


def take(pages: Pages, host: Indices | None, s: Floats) -> Values:
    """Bandwidth that the pages of each host take at the host's `s`, and its derivative."""
    kernels = _kernels(pages)

    def part(part: slice) -> Floats:
        sums = np.zeros((s.size, 2))
        kernels.take(pages, host, part, s, sums)
        return sums

    return Values(*_total(over_parts(part, pages.importance.size)))


def settle(
    pages: Pages, host: Indices | None, s: Floats, crawl_rate: Floats, crawl_probability: Floats
) -> Settled:
    """Write the rates that pages have at their host's `s`, and check them against it."""
    kernels = _kernels(pages)

    def part(part: slice) -> tuple[Floats, float]:
        sums = np.zeros((s.size, 2))
        worst = kernels.settle(pages, host, part, s, sums, crawl_rate, crawl_probability)
        return sums, worst

    sums, worst = zip(*over_parts(part, pages.importance.size), strict=True)
    used, missed = _total(sums)
    return Settled(used, missed, max(worst))


def _total(parts: list[Floats] | tuple[Floats, ...]) -> Floats:
    total = parts[0].T
    for sums in parts[1:]:
        total += sums.T
    return total


def _kernels(pages: Pages) -> ModuleType:
    """Compiled passes where they exist (numba, many pages, no noise or bounds), else numpy's."""
    noisy_or_bounded = pages.ping_recall is not None or pages.min_crawl_rate is not None
    compiled = pages.importance.size >= LARGE and not noisy_or_bounded and numba_is_here()
    return _load("compiled" if compiled else "interpreted")


@cache
def numba_is_here() -> bool:
    """Tell whether the extra `fast` is installed."""
    return find_spec("numba") is not None


def _load(name: str) -> ModuleType:
    return import_module(f"service.core.allocation.{name}")
