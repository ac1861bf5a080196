"""K19's Algorithms 1, 2 and 3 as printed, a reference for tests of the one-multiplier solver.

The code is small and slow on purpose. It bisects on the multiplier, and the active set grows until
no probability exceeds 1. A golden-section search splits the bandwidth between the two kinds of
pages. Inputs must be positive, as in the paper.
"""

from math import sqrt

import numpy as np

from service.core.checks import Bools, Floats

GOLDEN = (sqrt(5) - 1) / 2


def incomplete_only(
    importance: Floats, change_rate: Floats, bandwidth: float, precision: float = 1e-14
) -> Floats:
    """Return crawl rates of pages without pings (Algorithm 1, LambdaCrawl-IncomLObs)."""
    n = importance.size

    def bound(weight: float, slow: float, fast: float) -> float:
        return n**2 * slow * weight / (n * fast * bandwidth + bandwidth**2)

    def rates(multiplier: float) -> Floats:
        return (
            np.sqrt(change_rate**2 + 4 * importance * change_rate / multiplier) - change_rate
        ) / 2

    lower = bound(float(importance.min()), float(change_rate.min()), float(change_rate.max()))
    upper = bound(float(importance.max()), float(change_rate.max()), float(change_rate.min()))
    while upper - lower > precision * upper:
        middle = (lower + upper) / 2
        if middle in {lower, upper}:
            break
        if rates(middle).sum() > bandwidth:
            lower = middle
        else:
            upper = middle
    return rates((lower + upper) / 2)


def complete_only(importance: Floats, change_rate: Floats, bandwidth: float) -> Floats:
    """Return crawl probabilities of pages with pings (Algorithm 2, LambdaCrawl-ComplObs)."""
    probability = np.ones(importance.size)
    remaining = np.arange(importance.size)
    while remaining.size:
        weight, change = importance[remaining], change_rate[remaining]
        relaxed = weight / change * bandwidth / weight.sum()
        violated = relaxed >= 1
        probability[remaining] = np.minimum(relaxed, 1.0)
        bandwidth -= float(change[violated].sum())
        remaining = remaining[~violated]
        if not violated.any():
            break
    return probability


def mixed(
    importance: Floats,
    change_rate: Floats,
    complete: Bools,
    bandwidth: float,
    precision: float = 1e-8,
) -> tuple[Floats, Floats]:
    """Return crawl rates and probabilities of all pages (Algorithm 3, LambdaCrawl)."""
    clock, pinged = ~complete, complete

    def split(to_pinged: float) -> tuple[Floats, Floats]:
        return (
            incomplete_only(importance[clock], change_rate[clock], bandwidth - to_pinged),
            complete_only(importance[pinged], change_rate[pinged], to_pinged),
        )

    def reward(to_pinged: float) -> float:
        rate, probability = split(to_pinged)
        by_clock = importance[clock] @ np.log(rate / (rate + change_rate[clock]))
        return float(by_clock + importance[pinged] @ np.log(probability))

    low, high = 0.0, min(bandwidth, float(change_rate[pinged].sum()))
    best = low
    left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    of_left, of_right = reward(left), reward(right)
    while high - low > precision * bandwidth:
        if of_left > of_right:
            high, right, of_right = right, left, of_left
            left = high - GOLDEN * (high - low)
            of_left = reward(left)
        else:
            low, left, of_left = left, right, of_right
            right = low + GOLDEN * (high - low)
            of_right = reward(right)
        best = (low + high) / 2
    crawl_rate, crawl_probability = np.zeros(complete.size), np.zeros(complete.size)
    crawl_rate[clock], crawl_probability[pinged] = split(best)
    return crawl_rate, crawl_probability
