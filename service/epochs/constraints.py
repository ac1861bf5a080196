"""Constraints of an allocation: bounds of pages, caps of hosts and groups, and room for audits."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import structlog
from numpy.typing import ArrayLike, NDArray

from service.core.common_values import Joint, total
from service.estimation.estimates import RateEstimates
from service.model.arrays import Floats, Ints
from service.model.columns import CapColumns, EpochColumns

log = structlog.get_logger()

CONSTRAINED = "harmonic"
"""The objective whose solver takes constraints."""

LEAST = 1e-9
"""Smallest bound passed to the solver, crawls a day; the smallest maximum of the API."""
ROUNDING = 1e-9
"""Maximum relative rounding error of a sum of minima, in any order."""


class CapLevel(NamedTuple):
    """(K,) hosts or groups with a cap, and a last entry for all others."""

    of: Ints
    """Index of the cap of each page, or of each host."""
    limits: Floats
    """Caps, crawls a day; infinite for no cap."""
    minima: Floats
    """Sums of the minimum crawl rates of the pages, crawls a day."""


class Audits(NamedTuple):
    """Crawls that measure what the pings of pages miss."""

    of_pages: Floats
    """(N,) audits of the pages of this part, 1/day."""
    total: float
    """Audits of all parts, 1/day, or their costs."""
    minima: float
    """Sum of the minimum crawl rates of all parts, 1/day, or of their costs."""


@dataclass(frozen=True, slots=True)
class Constraints:
    """Bounds of pages by the solver's parameters, and the levels of caps: hosts, then groups."""

    of_pages: dict[str, Floats]
    levels: tuple[CapLevel, ...] = ()

    def arguments(self, granted: ArrayLike) -> dict[str, Any]:
        """Return the solver's keyword arguments; maxima and caps exclude the granted crawls."""
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

    @property
    def minima(self) -> float:
        """Sum of the minimum crawl rates, crawls a day."""
        return float(np.sum(self.of_pages.get("min_crawl_rate", 0.0)))

    def affordable(
        self, audits: Floats, bandwidth: float, cost: Floats | None = None
    ) -> Joint[Audits]:
        """Return the audits, reduced to the room that minima leave within every limit.

        The limits are the maximum of a page, the caps of its host and group, and the bandwidth. The
        bandwidth is in the unit of the (N,) `cost` of a crawl; None: 1.
        """
        least, most = (self.of_pages.get(f"{name}_crawl_rate") for name in ("min", "max"))
        if most is not None:
            audits = np.minimum(audits, most - (0.0 if least is None else least))
        of_page: Ints | slice = slice(None)
        for level in self.levels:
            of_page = level.of[of_page]
            audits_of = np.bincount(of_page, audits, len(level.limits))
            audits = audits * _share(level.limits - level.minima, audits_of)[of_page]
        price = np.broadcast_to(1.0, audits.shape) if cost is None else cost
        own_minima = self.minima if cost is None or least is None else float(least @ cost)
        minima, needed = yield from total((own_minima, float((audits * price).sum())))
        audits = audits * _share(bandwidth - minima, needed)
        return Audits(audits, (yield from total(float((audits * price).sum()))), minima)


def _share(room: ArrayLike, needed: ArrayLike) -> Floats:
    """Return the share of what is needed that fits into the room, in [0, 1]."""
    # no division by zero where nothing is needed
    tiny = np.finfo(np.float64).tiny
    return np.asarray(np.clip(room, 0.0, needed) / np.maximum(needed, tiny))


def constrain(
    pages: EpochColumns, estimates: RateEstimates, caps: CapColumns, objective: str
) -> Constraints:
    """Return the constraints that this objective supports; warn of the others."""
    if objective == CONSTRAINED:
        return Constraints(bounds(pages, estimates), tree(pages, caps))
    if len(caps):
        log.warning("this objective ignores caps of hosts", objective=objective)
    if (pages.min_crawl_rate >= LEAST).any() or np.isfinite(pages.max_crawl_rate).any():
        log.warning("this objective ignores bounds of pages", objective=objective)
    return Constraints({})


def bounds(pages: EpochColumns, estimates: RateEstimates) -> dict[str, Floats]:
    """Return the bounds and ping qualities of pages.

    A minimum above its maximum replaces the maximum. A minimum below `LEAST` is ignored.
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
    """Return the levels of caps: hosts, and groups if any has a cap; none without caps."""
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
    # the solver adds the minima in another order, and must not find their sum above the cap
    sums = (1 + ROUNDING) * np.bincount(of, minima, len(limits) + 1).astype(np.float64)
    for node in np.flatnonzero(limits < sums[:-1]).tolist():
        log.warning(
            "minimum crawl rates exceed a cap and replace it",
            max_crawl_rate=float(limits[node]),
            min_crawl_rates=float(sums[node]),
            **{kind: names[node]},
        )
    return CapLevel(of, np.append(np.nan_to_num(limits, nan=np.inf), np.inf), sums)
