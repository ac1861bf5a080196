"""Constraints of an allocation: quality of pings, bounds of pages, caps of hosts and groups."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import structlog
from numpy.typing import ArrayLike, NDArray

from service.estimation.estimates import RateEstimates
from service.model.arrays import Floats, Ints
from service.model.columns import CapColumns, EpochColumns

CONSTRAINED = "harmonic"
"""The objective whose solver takes constraints."""

LEAST = 1e-9
"""Smallest bound passed to the solver, crawls a day; the smallest maximum of the API."""

ROUNDING = 1e-9
"""Relative rounding error of a sum of minima, in whatever order it is added up."""

log = structlog.get_logger()


class CapLevel(NamedTuple):
    """(K,) hosts or groups with a cap, and one more for all without."""

    of: Ints
    """Index of the cap of each page, or of each host."""
    limits: Floats
    """Crawls a day; infinite for no cap."""
    minima: Floats
    """Sums of the minimum crawl rates of the pages, crawls a day."""


@dataclass(frozen=True, slots=True)
class Constraints:
    """Bounds of pages by the names of the solver, and the levels of caps: hosts, then groups."""

    of_pages: dict[str, Floats]
    levels: tuple[CapLevel, ...] = ()

    def arguments(self, granted: ArrayLike = 0.0) -> dict[str, Any]:
        """Return the solver's keyword arguments; maxima and caps without crawls already granted."""
        arguments: dict[str, Any] = dict(self.of_pages)
        if "max_crawl_rate" in arguments:
            spare = arguments["max_crawl_rate"] - granted
            arguments["max_crawl_rate"] = np.maximum(spare, arguments.get("min_crawl_rate", 0.0))
        names = (("host", "host_bandwidth"), ("host_group", "group_bandwidth"))
        for level, (members, bandwidth) in zip(self.levels, names, strict=False):
            each = np.broadcast_to(granted, level.of.shape)
            granted = np.bincount(level.of, each, len(level.limits))
            spare = np.maximum(level.limits - granted, level.minima)
            arguments |= {members: level.of, bandwidth: spare}
        return arguments


def constrain(
    pages: EpochColumns, estimates: RateEstimates, caps: CapColumns, objective: str
) -> Constraints:
    """Return the constraints that this objective keeps."""
    if objective == CONSTRAINED:
        return Constraints(bounds(pages, estimates), tree(pages, caps))
    if len(caps):
        log.warning("this objective keeps no caps of hosts", objective=objective)
    if (pages.min_crawl_rate >= LEAST).any() or np.isfinite(pages.max_crawl_rate).any():
        log.warning("this objective keeps no bounds of pages", objective=objective)
    return Constraints({})


def bounds(pages: EpochColumns, estimates: RateEstimates) -> dict[str, Floats]:
    """Return the bounds and ping qualities of pages.

    A minimum beats a maximum; a minimum below `LEAST` is none.
    """
    arguments = {}
    low = np.where(pages.min_crawl_rate >= LEAST, pages.min_crawl_rate, 0.0)
    if low.any():
        arguments["min_crawl_rate"] = low
    if np.isfinite(pages.max_crawl_rate).any():
        high = np.nan_to_num(pages.max_crawl_rate, nan=np.inf)
        arguments["max_crawl_rate"] = np.maximum(high, low)
    if estimates.ping_rate.any():
        arguments |= {"ping_recall": estimates.recall, "ping_precision": estimates.precision}
    return arguments


def tree(pages: EpochColumns, caps: CapColumns) -> tuple[CapLevel, ...]:
    """Return the levels of caps: hosts, and groups where there are any; none without caps."""
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
    capped = caps.take(grouped[first])
    groups = _level("group", capped.group, capped.group_max_crawl_rate, group_of_host, hosts.minima)
    return hosts, groups


def _level(
    kind: str, names: NDArray[np.object_], limits: Floats, of: Ints, minima: Floats
) -> CapLevel:
    """Return a level; minima that exceed a cap replace the cap, so that no epoch fails."""
    sums = (1 + ROUNDING) * np.bincount(of, minima, len(limits) + 1).astype(np.float64)
    for node in np.flatnonzero(limits < sums[:-1]).tolist():
        log.warning(
            "minimum crawl rates exceed a cap and are kept instead of it",
            max_crawl_rate=float(limits[node]),
            min_crawl_rates=float(sums[node]),
            **{kind: names[node]},
        )
    return CapLevel(of, np.append(np.nan_to_num(limits, nan=np.inf), np.inf), sums)
