r"""Partial pooling: the prior of a page comes from the other pages of its URL group.

Change rates are Gamma(p, p/m_s) about the mean m_s of their URL group s. The means m_s are
Gamma(g, g/m) about the corpus' mean m. The model and its weights: docs/theory.md, "URL groups".
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.core.checks import Floats, InvalidInput, check_amount
from service.core.common_values import (
    Contribution,
    Joint,
    alone,
    anywhere,
    gathered,
    sampled,
    total,
)
from service.core.prior import MAX_SHAPE, SAMPLE, START_DISPERSION, Prior, dispersion, fit_shape
from service.core.url_groups import renumber

MIN_WITHIN = 0.001
"""Minimum shape within URL groups, changes: one page of a thousand changes, the others never do.

A larger minimum holds the few live pages of an archive near the mean of its pages for months.
"""

MAX_ROUNDS = 30
"""Maximum rounds of a fit; real sites take 3 to 8 rounds, 1 to 3 when begun at the last fit."""

SHAPE_TOLERANCE, MEAN_TOLERANCE = 0.005, 0.2
"""Largest log steps of shapes and of means in the last round. Means gain digits twice as fast."""

SEARCH_TOLERANCE = 1e-3
"""Relative tolerance of a shape within one round."""

MAX_LOG_STEP = 1.5
"""Maximum Newton step of a log mean: a factor of 4.5."""

BLOCK = 1 << 16
"""Maximum number of pages whose weights are in memory at a time."""

TOTALS_TOLERANCE = 0.05
"""Largest relative change of the totals with which the shapes stay the same to a few per cent."""

UrlGroups = NDArray[np.integer]
UrlGroupRates = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class PagePriors:
    """(N,) priors of pages: Gamma distributions of one shape, each with its own mean."""

    a: float
    """Shape of all priors. Positive."""
    b: Floats
    """Rates of the priors, days. Positive."""

    @property
    def mean(self) -> Floats:
        """(N,) expected change rates before the first crawl, 1/day."""
        return self.a / self.b


class Totals(NamedTuple):
    """Sums of the evidence of a corpus; the shapes hold while the sums change little."""

    pages: float
    """Number of pages with evidence."""
    changes: float
    days: float
    squares: float
    """Sum of the squares of the changes, which shows how unequal pages are."""

    @classmethod
    def of(cls, changes: ArrayLike, days: ArrayLike) -> "Totals":
        """Return the sums of (N,) changes and days."""
        counts, watched = np.asarray(changes, np.float64), np.asarray(days, np.float64)
        amounts = np.count_nonzero(watched), counts.sum(), watched.sum(), np.square(counts).sum()
        return cls(*map(float, amounts))

    def close_to(self, other: "Totals") -> bool:
        """Return whether the shapes that were fitted to these totals suit the `other` ones."""
        pairs = zip(self, other, strict=True)
        return all(abs(then - now) <= TOTALS_TOLERANCE * then for then, now in pairs)


@dataclass(frozen=True, slots=True)
class UrlGroupPrior(Prior):
    """The corpus' prior, and the priors of pages by URL group.

    Equality compares the numbers, not the rates of the URL groups.

    Examples
    --------
    >>> prior = UrlGroupPrior(0.5, 15.0, 2.0, 0.7, np.array([0.25, 0.03125], np.float32))
    >>> prior.of_pages(np.array([1, 0, 1])).mean
    array([0.03125, 0.25   , 0.03125])
    """

    within_shape: float
    """Shape of the pages' rates about their URL group's mean; large where pages are alike."""
    between_shape: float
    """Shape of the URL groups' means about the corpus' mean. Positive."""
    url_group_rate: UrlGroupRates = field(compare=False, repr=False)
    """(S,) mean of each URL group, 1/day; the corpus' mean for a group without evidence."""
    totals: Totals | None = None
    """Sums of the evidence that the shapes were fitted to; None: not known."""

    def of_pages(self, url_group: UrlGroups) -> PagePriors:
        """Return the priors of pages by their (N,) URL groups, taken modulo S."""
        rate = self.url_group_rate[url_group % self.url_group_rate.size].astype(np.float64)
        return PagePriors(self.within_shape, self.within_shape / rate)


def fit_url_groups(
    changes: ArrayLike,
    days: ArrayLike,
    url_group: UrlGroups,
    corpus: Prior,
    n_url_groups: int,
    near: Prior | None = None,
) -> UrlGroupPrior:
    """Return the priors of corpus, URL groups and pages, fitted to all pages; O(N + S).

    The weighted sums of a URL group have the mean and nearly the variance of a Poisson
    distribution. Therefore `fit_dispersion` fits the shape between groups. The shape within groups
    makes the evidence of each page likeliest, given the evidence of the other pages of its group.

    Parameters
    ----------
    changes, days : array_like, shape (N,)
        Evidence per page beyond the prior, as in `GammaState`. Not negative.
    url_group : (N,) int
        In [0, n_url_groups).
    corpus, near : Prior
        The fit of `fit_gamma_prior`; the starting point of the search, such as the last fit.

    Raise `InvalidInput` for negative or infinite evidence, or a URL group out of range.

    References
    ----------
    Bühlmann, Straub 1970 (credibility weights); Jewell 1975 (the hierarchy). The negative binomial
    weights and the fit of the shapes are derived (docs/theory.md, "URL groups").

    Examples
    --------
    A hundred URL groups of twenty pages, half of them slow; the last page has no evidence yet:

    >>> url_group = np.repeat(np.arange(100), 20)
    >>> days = np.full(2000, 10.0)
    >>> days[-1] = 0.0
    >>> changes = np.where(url_group < 50, 0.1, 1.0) * days
    >>> prior = fit_url_groups(changes, days, url_group, Prior(0.5, 1.0), 100)
    >>> print(f"{prior.within_shape:.1f} {prior.between_shape:.2f}")
    11.2 1.19
    >>> print(prior.of_pages(url_group[[0, -1]]).mean.round(2))
    [0.11 0.99]
    """
    return alone(url_group_prior(changes, days, url_group, corpus, n_url_groups, near))


def url_group_prior(
    changes: ArrayLike,
    days: ArrayLike,
    url_group: UrlGroups,
    corpus: Prior,
    n_url_groups: int,
    near: Prior | None = None,
) -> Joint[UrlGroupPrior]:
    """Return the priors of the URL groups of this part (`fit_url_groups`).

    The shapes are those of all parts. A URL group has all of its pages in one part.
    """
    pages = GroupEvidence.checked(changes, days, url_group, n_url_groups)
    within, between = corpus.a, START_DISPERSION
    used: Any = slice(0)
    means: Floats = np.zeros(0)
    if (yield from anywhere(pages.days.any())):
        used, pages = pages.renumbered()
        means = np.full(used.size, corpus.mean)
        last = near if isinstance(near, UrlGroupPrior) else None
        resized = last is None or last.url_group_rate.size != n_url_groups
        if not (yield from anywhere(resized)) and last is not None:
            within, between = last.within_shape, last.between_shape
            means = last.url_group_rate[used].astype(np.float64)
        within, between, means = yield from _climb(pages, means, within, between, corpus)
    totals = yield from total(Totals.of(changes, days))
    rate = np.full(n_url_groups, corpus.mean, np.float32)  # last: it may be larger than the pages
    rate[used] = means
    return UrlGroupPrior(corpus.a, corpus.b, within, between, rate, totals)


def _climb(
    pages: "GroupEvidence", means: Floats, within_shape: float, between_shape: float, corpus: Prior
) -> Joint[tuple[float, float, Floats]]:
    """Return the likeliest shapes and means, by rounds of a step in the means and two searches."""
    some = yield from sampled(np.flatnonzero(pages.days), SAMPLE)
    for _ in range(MAX_ROUNDS):
        before = np.log([within_shape, between_shape])
        sums = pages.sums(means, within_shape, corpus.mean)
        evidence = sums.changes, sums.expected
        between_shape = yield from dispersion(*evidence, between_shape, SEARCH_TOLERANCE)
        expected = pages.from_siblings(some, sums, means, within_shape, between_shape, corpus.mean)
        step = sums.newton_step(means / corpus.mean, between_shape)
        means = means * np.exp(step)
        shares = expected, float(np.abs(step).max(initial=0.0))
        search = partial(_within, start=corpus.a, near=within_shape)
        within_shape, longest = yield Contribution(shares, search)
        moved = np.abs(np.log([within_shape, between_shape]) - before).max()
        if moved < SHAPE_TOLERANCE and longest < MEAN_TOLERANCE:
            break
    return within_shape, between_shape, means


def _within(shares: Sequence[Any], start: float, near: float) -> tuple[float, float]:
    """Return the shape within URL groups, and the longest step of all parts."""
    samples, steps = zip(*shares, strict=True)
    changes, expected, doubt = gathered(samples)
    bounds = MIN_WITHIN, MAX_SHAPE
    shape = fit_shape(changes, expected, doubt, start, near, bounds, SEARCH_TOLERANCE)
    return shape, max(steps)


def still_fits(last: Prior, changes: ArrayLike, days: ArrayLike, n_url_groups: int) -> Joint[bool]:
    """Return whether the shapes of the `last` fit suit the pages of all parts.

    This part has (N,) pages in `n_url_groups` URL groups.
    """
    totals, size = None, 0
    if isinstance(last, UrlGroupPrior):
        totals, size = last.totals, last.url_group_rate.size
    resized = yield from anywhere(totals is None or size != n_url_groups)
    if resized or totals is None:
        return False
    return totals.close_to((yield from total(Totals.of(changes, days))))


def update_group_means(
    prior: UrlGroupPrior, changes: ArrayLike, days: ArrayLike, url_group: UrlGroups
) -> UrlGroupPrior:
    """Return the prior with each mean moved to the evidence by one Newton step.

    Parameters and errors are as in `fit_url_groups`; the work is a tenth.
    """
    pages = GroupEvidence.checked(changes, days, url_group, prior.url_group_rate.size)
    used, pages = pages.renumbered()
    means = prior.url_group_rate[used].astype(np.float64)
    sums = pages.sums(means, prior.within_shape, prior.mean)
    rate = prior.url_group_rate.copy()
    rate[used] = means * np.exp(sums.newton_step(means / prior.mean, prior.between_shape))
    return replace(prior, url_group_rate=rate)


class GroupSums(NamedTuple):
    """(S,) weighted evidence of URL groups at their present means."""

    changes: Floats
    expected: Floats
    """Changes expected at the corpus' mean."""
    curvature: Floats
    """Minus the second derivative of the log-likelihood in ln m_s."""

    def newton_step(self, ratio: Floats, between_shape: float) -> Floats:
        """Return a Newton step in the log means; `ratio` is the means over the corpus' mean."""
        score = between_shape + self.changes - ratio * (between_shape + self.expected)
        return np.clip(
            score / (between_shape * ratio + self.curvature), -MAX_LOG_STEP, MAX_LOG_STEP
        )


@dataclass(frozen=True, slots=True)
class GroupEvidence:
    """(N,) evidence of pages, and their URL groups."""

    changes: Floats
    days: Floats
    url_group: UrlGroups
    n_url_groups: int

    @classmethod
    def checked(
        cls, changes: ArrayLike, days: ArrayLike, url_group: UrlGroups, n_url_groups: int
    ) -> "GroupEvidence":
        """Return the evidence; raise `InvalidInput` where it is out of range."""
        counts = check_amount("changes", changes, np.shape(changes))
        exposure = check_amount("days", days, np.shape(changes))
        if url_group.shape != counts.shape:
            raise InvalidInput("url_group", f"has shape {url_group.shape}, expected {counts.shape}")
        if url_group.size and not (url_group.min() >= 0 and url_group.max() < n_url_groups):
            raise InvalidInput("url_group", f"must lie in [0, {n_url_groups})")
        return cls(counts, exposure, url_group, n_url_groups)

    def renumbered(self) -> tuple[UrlGroups, "GroupEvidence"]:
        """Return the URL groups that have pages, ascending, and the evidence by index in them."""
        used, place = renumber(self.url_group, self.n_url_groups)
        return used, GroupEvidence(self.changes, self.days, place, used.size)

    def sums(self, rate: Floats, within_shape: float, mean: float) -> GroupSums:
        """Return the sums by URL group."""
        total, exposed, curvature = np.zeros((3, self.n_url_groups))
        for start in range(0, self.days.size, BLOCK):
            block = slice(start, start + BLOCK)
            url_group, changes, days = self.url_group[block], self.changes[block], self.days[block]
            weight = within_shape / (within_shape + rate[url_group] * days)
            np.add.at(total, url_group, weight * changes)
            np.add.at(exposed, url_group, weight * days)
            np.add.at(curvature, url_group, weight * (1.0 - weight) * (within_shape + changes))
        return GroupSums(total, mean * exposed, curvature)

    def from_siblings(
        self,
        some: NDArray[np.intp],
        sums: GroupSums,
        rate: Floats,
        within_shape: float,
        between_shape: float,
        mean: float,
    ) -> tuple[Floats, Floats, Floats]:
        """Return the arguments of `fit_shape` for some pages.

        The expectation of a page comes from the other pages of its URL group.
        """
        url_group, changes, days = self.url_group[some], self.changes[some], self.days[some]
        weight = within_shape / (within_shape + rate[url_group] * days)
        shape = between_shape + np.maximum(sums.changes[url_group] - weight * changes, 0.0)
        exposed = between_shape + np.maximum(sums.expected[url_group] - weight * days * mean, 0.0)
        return changes, mean * shape / exposed * days, 1.0 / shape
