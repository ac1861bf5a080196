r"""Partial pooling: a page is taken to be like its siblings, as far as the corpus bears it out.

Change rates are Gamma(p, p/m_s) about the mean m_s of their URL group s, and these Gamma(g,
g/m) about the corpus' mean m. The model and its weights: docs/theory.md, "URL groups".
"""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.core.conditions import Floats, InvalidInput, check_amount
from service.core.prior import MAX_SHAPE, SAMPLE, START_DISPERSION, Prior, fit_dispersion, fit_shape
from service.core.url_groups import renumber

MAX_ROUNDS = 30
"""Means and shapes by turns: 3 to 8 rounds on real sites, 1 to 3 from the last fit on."""

SHAPE_TOLERANCE, MEAN_TOLERANCE = 0.005, 0.2
"""Until no shape and no mean moves by more. Means gain digits twice as fast as shapes do."""

SEARCH_TOLERANCE = 1e-3
"""Tolerance of each shape, while all else stays as it is."""

MAX_LOG_STEP = 1.5
"""A step of Newton's moves a mean by no more than a factor of 4.5."""

BLOCK = 1 << 16
"""Pages whose weights are in memory at a time."""

TOTALS_TOLERANCE = 0.05
"""Evidence none of whose totals has moved by more has the same shapes, to a few per cent."""

UrlGroups = NDArray[np.integer]
UrlGroupRates = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class PagePriors:
    """(N,) priors of pages: Gamma distributions of one shape, each with a mean of its own."""

    a: float
    """Shape of all of them. Positive."""
    b: Floats
    """Rates, days. Positive."""

    @property
    def mean(self) -> Floats:
        """(N,) expected change rates before the first crawl, 1/day."""
        return self.a / self.b


class Totals(NamedTuple):
    """The evidence of a corpus, summed up: as long as it is about the same, so are the shapes."""

    pages: float
    """That have been watched at all."""
    changes: float
    days: float
    squares: float
    """Of the changes: how unequal pages are."""

    @classmethod
    def of(cls, changes: ArrayLike, days: ArrayLike) -> "Totals":
        """Sum up (N,) changes and days."""
        counts, watched = np.asarray(changes, np.float64), np.asarray(days, np.float64)
        amounts = np.count_nonzero(watched), counts.sum(), watched.sum(), counts @ counts
        return cls(*map(float, amounts))

    def close_to(self, other: "Totals") -> bool:
        """Return whether the shapes that were fitted to these totals will do for the others."""
        pairs = zip(self, other, strict=True)
        return all(abs(then - now) <= TOTALS_TOLERANCE * then for then, now in pairs)


@dataclass(frozen=True, slots=True)
class UrlGroupPrior(Prior):
    """The corpus' prior, and what is believed of a page whose URL group is known.

    Compared by its numbers, not by the URL groups' rates.

    Examples
    --------
    >>> prior = UrlGroupPrior(0.5, 15.0, 2.0, 0.7, np.array([0.25, 0.03125], np.float32))
    >>> prior.of_pages(np.array([1, 0, 1])).mean
    array([0.03125, 0.25   , 0.03125])
    """

    within_shape: float
    """Shape of the pages' rates about their URL group's mean: alike if large. Positive."""
    between_shape: float
    """Shape of the URL groups' means about the corpus'. Positive."""
    url_group_rate: UrlGroupRates = field(compare=False, repr=False)
    """(S,) mean of each URL group, 1/day; the corpus' where nothing is known of it. Positive."""
    totals: Totals | None = None
    """The evidence that the shapes were fitted to, if that is known."""

    def of_pages(self, url_group: UrlGroups) -> PagePriors:
        """Return the priors of pages by their (N,) URL groups, of which every S-th is one."""
        rate = self.url_group_rate[url_group % self.url_group_rate.size].astype(np.float64)
        return PagePriors(self.within_shape, self.within_shape / rate)

    def still_fits(self, changes: ArrayLike, days: ArrayLike, n_url_groups: int) -> bool:
        """Return whether the shapes will do for (N,) pages in so many URL groups."""
        if self.totals is None or self.url_group_rate.size != n_url_groups:
            return False
        return self.totals.close_to(Totals.of(changes, days))


def fit_url_groups(
    changes: ArrayLike,
    days: ArrayLike,
    url_group: UrlGroups,
    corpus: Prior,
    n_url_groups: int,
    near: Prior | None = None,
) -> UrlGroupPrior:
    """Return the chain corpus, URL group, page that is fitted to all pages; O(N + S).

    The weighted sums of a URL group have the mean and nearly the variance of a Poisson
    distribution, so the shape between groups is that of `fit_dispersion`. The shape within is the
    one under which the evidence of each page is likeliest given its siblings'.

    Parameters
    ----------
    changes, days : array_like, shape (N,)
        Evidence per page beyond the prior, as in `GammaState`. Not negative.
    url_group : (N,) int
        In [0, n_url_groups).
    corpus, near : Prior
        The fit of `fit_gamma_prior`; where to search first, such as the last fit.

    Raise `InvalidInput` for negative or infinite evidence, or a URL group out of range.

    References
    ----------
    Bühlmann, Straub 1970 (credibility weights); Jewell 1975 (the hierarchy). The negative binomial
    weights and the fit of the shapes are derived.

    Examples
    --------
    A hundred URL groups of twenty pages, half of them slow; of the last page nothing is known yet:

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
    pages = GroupEvidence.checked(changes, days, url_group, n_url_groups)
    rate = np.full(n_url_groups, corpus.mean, np.float32)
    within, between = corpus.a, START_DISPERSION
    if pages.days.any():
        used, pages = pages.renumbered()
        means = np.full(used.size, corpus.mean)
        if isinstance(near, UrlGroupPrior) and near.url_group_rate.size == n_url_groups:
            within, between = near.within_shape, near.between_shape
            means = near.url_group_rate[used].astype(np.float64)
        within, between, rate[used] = _climb(pages, means, within, between, corpus)
    return UrlGroupPrior(corpus.a, corpus.b, within, between, rate, Totals.of(changes, days))


def _climb(
    pages: "GroupEvidence", means: Floats, within_shape: float, between_shape: float, corpus: Prior
) -> tuple[float, float, Floats]:
    """Return the likeliest shapes and means: a step in the means and a search for each by turns."""
    for _ in range(MAX_ROUNDS):
        before = np.log([within_shape, between_shape])
        sums = pages.sums(means, within_shape, corpus.mean)
        between_shape = fit_dispersion(sums.changes, sums.expected, between_shape, SEARCH_TOLERANCE)
        expected = pages.from_siblings(sums, means, within_shape, between_shape, corpus.mean)
        step = sums.newton_step(means / corpus.mean, between_shape)
        means = means * np.exp(step)
        within_shape = fit_shape(*expected, corpus.a, within_shape, MAX_SHAPE, SEARCH_TOLERANCE)
        moved = np.abs(np.log([within_shape, between_shape]) - before).max()
        if moved < SHAPE_TOLERANCE and np.abs(step).max() < MEAN_TOLERANCE:
            break
    return within_shape, between_shape, means


def update_group_means(
    prior: UrlGroupPrior, changes: ArrayLike, days: ArrayLike, url_group: UrlGroups
) -> UrlGroupPrior:
    """Return the prior with the means moved to the evidence of today, by a step of Newton's each.

    A tenth of the work of `fit_url_groups`, with the same parameters and errors.
    """
    pages = GroupEvidence.checked(changes, days, url_group, prior.url_group_rate.size)
    used, pages = pages.renumbered()
    means = prior.url_group_rate[used].astype(np.float64)
    sums = pages.sums(means, prior.within_shape, prior.mean)
    rate = prior.url_group_rate.copy()
    rate[used] = means * np.exp(sums.newton_step(means / prior.mean, prior.between_shape))
    return replace(prior, url_group_rate=rate)


class GroupSums(NamedTuple):
    """(S,) credible evidence of URL groups at their present means."""

    changes: Floats
    expected: Floats
    """As many changes as the corpus' mean makes one expect."""
    curvature: Floats
    """Of the likelihood in ln m_s, downwards."""

    def newton_step(self, ratio: Floats, between_shape: float) -> Floats:
        """Return a step of Newton's in the log means; `ratio` of the means to the corpus' mean."""
        score = between_shape + self.changes - ratio * (between_shape + self.expected)
        return np.clip(
            score / (between_shape * ratio + self.curvature), -MAX_LOG_STEP, MAX_LOG_STEP
        )


@dataclass(frozen=True, slots=True)
class GroupEvidence:
    """(N,) what is known of pages, and in which URL group each is."""

    changes: Floats
    days: Floats
    url_group: UrlGroups
    n_url_groups: int

    @classmethod
    def checked(
        cls, changes: ArrayLike, days: ArrayLike, url_group: UrlGroups, n_url_groups: int
    ) -> "GroupEvidence":
        """Return the evidence, refused where it has no meaning."""
        counts = check_amount("changes", changes, np.shape(changes))
        exposure = check_amount("days", days, np.shape(changes))
        if url_group.shape != counts.shape:
            raise InvalidInput("url_group", f"has shape {url_group.shape}, expected {counts.shape}")
        if url_group.size and not (url_group.min() >= 0 and url_group.max() < n_url_groups):
            raise InvalidInput("url_group", f"must lie in [0, {n_url_groups})")
        return cls(counts, exposure, url_group, n_url_groups)

    def renumbered(self) -> tuple[UrlGroups, "GroupEvidence"]:
        """Return the URL groups that have pages, ascending, and those the numbers from 0 on."""
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
        self, sums: GroupSums, rate: Floats, within_shape: float, between_shape: float, mean: float
    ) -> tuple[Floats, Floats, Floats]:
        """Return the arguments of `fit_shape` from siblings, for at most `SAMPLE` pages."""
        some = np.flatnonzero(self.days)
        some = some[:: max(1, -(-some.size // SAMPLE))]
        url_group, changes, days = self.url_group[some], self.changes[some], self.days[some]
        weight = within_shape / (within_shape + rate[url_group] * days)
        shape = between_shape + np.maximum(sums.changes[url_group] - weight * changes, 0.0)
        exposed = between_shape + np.maximum(sums.expected[url_group] - weight * days * mean, 0.0)
        return changes, mean * shape / exposed * days, 1.0 / shape
