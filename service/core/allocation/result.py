"""What a solver returns: the allocation and the certificate that it is one."""

from dataclasses import dataclass

from service.core.conditions import Floats


@dataclass(frozen=True, slots=True)
class Allocation:
    """Crawl rates and probabilities, and how far from optimal they can be.

    A page is crawled `crawl_rate` times a day on the clock, and with `crawl_probability`
    each time a ping announces a change of it.

    Attributes
    ----------
    crawl_rate : (N,) float64, 1/day
    crawl_probability : (N,) float64, in [0, 1]
    multiplier : float, cost per crawl/day
        What one more crawl a day would save; 0 where the bandwidth exceeds what can be used,
        infinite where nothing can be spent on any page.
    bandwidth : float, 1/day
        Asked for.
    bandwidth_used : float, 1/day
        Spent: the sum of crawl_rate + crawl_probability * ping rate.
    kkt_residual : float, dimensionless
        Largest relative violation of stationarity, complementary slackness and feasibility;
        0 for baselines, which have no optimum.
    duality_gap : float, cost
        Upper bound on the cost of this allocation less the least cost possible; 0 for baselines.
    passes : int
        Sweeps over the pages that evaluated the bandwidth at a multiplier.
    host_multiplier : (H,) float64 or None
        The multiplier in force on each host: larger than `multiplier` where a host, or its group,
        has no bandwidth left.
    group_multiplier : (G,) float64 or None
    """

    crawl_rate: Floats
    crawl_probability: Floats
    multiplier: float
    bandwidth: float
    bandwidth_used: float
    kkt_residual: float = 0.0
    duality_gap: float = 0.0
    passes: int = 0
    host_multiplier: Floats | None = None
    group_multiplier: Floats | None = None
