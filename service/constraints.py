"""What an allocation is told beyond importance and rates: pings, bounds of pages, caps of hosts."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import structlog
from numpy.typing import ArrayLike, NDArray

from service.arrays import Floats, Ints
from service.columns import CapColumns, EpochColumns
from service.estimates import Known

CONSTRAINED = "harmonic"
"""The objective whose solver takes them."""

LEAST = 1e-9
"""Crawls a day: a page is told of no lower maximum either."""

ROUNDING = 1e-9
"""By how much a sum of minima may be off, whatever order they are added in."""

log = structlog.get_logger()


class Level(NamedTuple):
    """(K,) hosts or groups with a cap, and one more for all that have none."""

    of: Ints
    """Which of them each page, or each host, belongs to."""
    limits: Floats
    """Crawls a day; infinite for no cap."""
    minima: Floats
    """What the minimum crawl rates of the pages add up to."""


@dataclass(frozen=True, slots=True)
class Constraints:
    """Those of the pages by the solver's names, and the levels of caps: none, hosts, or groups."""

    of_pages: dict[str, Floats]
    levels: tuple[Level, ...] = ()

    def given(self, taken: ArrayLike = 0.0) -> dict[str, Any]:
        """Name all as the solver does, maxima and caps without crawls that pages get anyway."""
        given: dict[str, Any] = dict(self.of_pages)
        if "max_crawl_rate" in given:
            spare = given["max_crawl_rate"] - taken
            given["max_crawl_rate"] = np.maximum(spare, given.get("min_crawl_rate", 0.0))
        names = (("host", "host_bandwidth"), ("host_group", "group_bandwidth"))
        for level, (members, bandwidth) in zip(self.levels, names, strict=False):
            each = np.broadcast_to(taken, level.of.shape)
            taken = np.bincount(level.of, each, len(level.limits))
            spare = np.maximum(level.limits - taken, level.minima)
            given |= {members: level.of, bandwidth: spare}
        return given


def constrain(pages: EpochColumns, known: Known, caps: CapColumns, objective: str) -> Constraints:
    """Gather what holds under this objective."""
    if objective == CONSTRAINED:
        return Constraints(bounds(pages, known), tree(pages, caps))
    if len(caps):
        log.warning("this objective keeps no caps of hosts", objective=objective)
    if (pages.min_crawl_rate >= LEAST).any() or np.isfinite(pages.max_crawl_rate).any():
        log.warning("this objective keeps no bounds of pages", objective=objective)
    return Constraints({})


def bounds(pages: EpochColumns, known: Known) -> dict[str, Floats]:
    """Give what pages have of their own; a minimum beats a maximum, one below `LEAST` is none."""
    given = {}
    low = np.where(pages.min_crawl_rate >= LEAST, pages.min_crawl_rate, 0.0)
    if low.any():
        given["min_crawl_rate"] = low
    if np.isfinite(pages.max_crawl_rate).any():
        high = np.nan_to_num(pages.max_crawl_rate, nan=np.inf)
        given["max_crawl_rate"] = np.maximum(high, low)
    if known.ping_rate.any():
        given |= {"ping_recall": known.recall, "ping_precision": known.precision}
    return given


def tree(pages: EpochColumns, caps: CapColumns) -> tuple[Level, ...]:
    """Give hosts, and groups where there are any; nothing where there is no cap."""
    if not len(caps):
        return ()
    host = np.minimum(caps.host_id.searchsorted(pages.host_id), len(caps) - 1)
    host = np.where(caps.host_id[host] == pages.host_id, host, len(caps))
    minima = np.nan_to_num(pages.min_crawl_rate)
    hosts = _level("host", caps.host, caps.max_crawl_rate, host, minima)
    grouped = np.flatnonzero(caps.group_id)
    if not grouped.size:
        return (hosts,)
    _, first, group = np.unique(caps.group_id[grouped], return_index=True, return_inverse=True)
    group_of_host = np.full(len(hosts.limits), len(first))
    group_of_host[grouped] = group
    named = caps.take(grouped[first])
    groups = _level("group", named.group, named.group_max_crawl_rate, group_of_host, hosts.minima)
    return hosts, groups


def _level(
    kind: str, names: NDArray[np.object_], limits: Floats, of: Ints, minima: Floats
) -> Level:
    """Add minima up; where they exceed a cap they are kept instead of it: no epoch fails by it."""
    sums = (1 + ROUNDING) * np.bincount(of, minima, len(limits) + 1).astype(np.float64)
    for node in np.flatnonzero(limits < sums[:-1]).tolist():
        log.warning(
            "minimum crawl rates exceed a cap and are kept instead of it",
            max_crawl_rate=float(limits[node]), min_crawl_rates=float(sums[node]),
            **{kind: names[node]},
        )  # fmt: skip
    return Level(of, np.append(np.nan_to_num(limits, nan=np.inf), np.inf), sums)
