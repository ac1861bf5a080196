"""Credibility: a page is believed to be like its siblings, as far as the corpus bears it out."""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.core.conditions import Floats, InvalidInput, check_amount
from service.core.prior import MAX_SHAPE, SAMPLE, Prior, fit_shape, fit_steadiness
from service.core.renumber import renumber

START_BETWEEN = 5.0
"""How alike sections are believed to be before any evidence: rates 45 % about their mean."""

MAX_ROUNDS = 30
"""Means and shapes by turns: 3 to 8 rounds on real sites, 1 to 3 from the last fit on."""

SHAPE_TOLERANCE, MEAN_TOLERANCE = 0.005, 0.2
"""Until no shape and no mean moves by more. Means gain digits twice as fast as shapes do."""

WITHIN_A_ROUND = 1e-3
"""Tolerance of each shape, while all else stays as it is."""

MOST_STEP = 1.5
"""A step of Newton's moves a mean by no more than a factor of 4.5."""

BLOCK = 1 << 16
"""Pages whose weights are in memory at a time."""

ALIKE = 0.05
"""Evidence none of whose totals has moved by more has the same shapes, to a few per cent."""

Sections = NDArray[np.integer]
SectionRates = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class PagePriors:
    """(N,) priors of pages: Gamma distributions of one shape, each with a mean of its own.

    Parameters
    ----------
    a : float
        Shape of all of them. Positive.
    b : (N,) days
        Rates. Positive.
    """

    a: float
    b: Floats

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

    def like(self, other: "Totals") -> bool:
        """Tell whether the shapes that were fitted to these totals will do for the others."""
        pairs = zip(self, other, strict=True)
        return all(abs(then - now) <= ALIKE * then for then, now in pairs)


@dataclass(frozen=True, slots=True)
class SectionPrior(Prior):
    """The corpus' prior, and what is believed of a page whose section is known.

    Compared by its numbers, not by the sections' rates.

    Parameters
    ----------
    a, b
        As of any page, as in `Prior`.
    within : float
        Shape of the pages' rates about their section's mean: alike if large. Positive.
    between : float
        Shape of the sections' means about the corpus'. Positive.
    section_rate : (S,) float32, 1/day
        Mean of each section, the corpus' where nothing is known of it. Positive.
    seen : Totals or None
        The evidence that the shapes were fitted to, if that is known.

    Examples
    --------
    >>> prior = SectionPrior(0.5, 15.0, 2.0, 0.7, np.array([0.25, 0.03125], np.float32))
    >>> prior.of(np.array([1, 0, 1])).mean
    array([0.03125, 0.25   , 0.03125])
    """

    within: float
    between: float
    section_rate: SectionRates = field(compare=False, repr=False)
    seen: Totals | None = None

    def of(self, section: Sections) -> PagePriors:
        """Give the priors of pages by their (N,) sections, of which every S-th is one."""
        rate = self.section_rate[section % self.section_rate.size].astype(np.float64)
        return PagePriors(self.within, self.within / rate)

    def still_fits(self, changes: ArrayLike, days: ArrayLike, n_sections: int) -> bool:
        """Tell whether its shapes will do for the evidence of (N,) pages in so many sections."""
        if self.seen is None or self.section_rate.size != n_sections:
            return False
        return self.seen.like(Totals.of(changes, days))


def fit_sections(
    changes: ArrayLike, days: ArrayLike, section: Sections, corpus: Prior, n_sections: int,
    near: Prior | None = None,
) -> SectionPrior:  # fmt: skip
    r"""Fit what pages of each section have in common: the chain corpus, section, page.

    Change rates are Gamma(p, p/m_s) about the mean m_s of their section s, and these Gamma(g, g/m)
    about the corpus' mean m. With credibility weights w_i = p/(p + m_s T_i), under which a page
    that was watched for ever weighs as much as one of which p changes were expected,

    .. math:: m_s = \frac{g + \sum w_i k_i}{g/m + \sum w_i T_i}

    is the mode of ln m_s: the score of the negative binomial likelihood of k_i is
    w_i (k_i - m_s T_i). The likelihood is concave in ln m_s; each round takes a step of Newton's.
    Where nothing is known of a section, m_s = m.

    The weighted sums have the mean and nearly the variance of a Poisson distribution, so g is that
    of `fit_steadiness`. The shape p is the one under which the evidence of each page is likeliest
    given its siblings' (m_s without the page itself): negative binomial of the mean m_{s,-i} T_i
    and a shape q, 1/q = 1/p + (1 + 1/p)/(g + K_{s,-i}), K being the weighted changes. As in
    `fit_gamma_prior`, `START_WEIGHT` further sections and pages, these distributed as the corpus'
    prior has it, keep the fit from degenerating. Time and memory O(N + S).

    Parameters
    ----------
    changes, days : array_like, shape (N,)
        Evidence per page beyond the prior, as in `GammaState`. Not negative.
    section : (N,) int
        In [0, n_sections).
    corpus : Prior
        As fitted to the same evidence by `fit_gamma_prior`.
    n_sections : int
        S, how many sections there may be.
    near : Prior or None
        Where to search first, such as the last fit: what is found is the same, sooner, if it is
        a `SectionPrior` of as many sections.

    Returns
    -------
    SectionPrior
        With MIN_SHAPE <= within <= MAX_SHAPE; the corpus' prior for all pages where nothing was
        observed.

    Raises
    ------
    InvalidInput
        Negative or non-finite evidence, a section out of range, or arrays of different shapes.

    References
    ----------
    Bühlmann, Straub 1970 (credibility weights); Jewell 1975 (the hierarchy). The negative binomial
    weights and the fit of the shapes are derived.

    Examples
    --------
    A hundred sections of twenty pages, half of them slow; of the last page nothing is known yet:

    >>> section = np.repeat(np.arange(100), 20)
    >>> days = np.full(2000, 10.0)
    >>> days[-1] = 0.0
    >>> changes = np.where(section < 50, 0.1, 1.0) * days
    >>> prior = fit_sections(changes, days, section, Prior(0.5, 1.0), 100)
    >>> print(f"{prior.within:.1f} {prior.between:.2f}", prior.of(section[[0, -1]]).mean.round(2))
    11.2 1.19 [0.11 0.99]
    """
    pages = Evidence.of(changes, days, section, n_sections)
    rate = np.full(n_sections, corpus.mean, np.float32)
    within, between = corpus.a, START_BETWEEN
    if pages.days.any():
        used, pages = pages.renumbered()
        means = np.full(used.size, corpus.mean)
        if isinstance(near, SectionPrior) and near.section_rate.size == n_sections:
            within, between = near.within, near.between
            means = near.section_rate[used].astype(np.float64)
        for _ in range(MAX_ROUNDS):
            before = np.log([within, between])
            sums = pages.sums(means, within, corpus.mean)
            between = fit_steadiness(
                sums.seen, sums.expected, START_BETWEEN, between, WITHIN_A_ROUND
            )
            siblings = pages.without_oneself(sums, means, within, between, corpus.mean)
            step = sums.step(means / corpus.mean, between)
            means = means * np.exp(step)
            within = fit_shape(*siblings, corpus.a, within, MAX_SHAPE, WITHIN_A_ROUND)
            moved = np.abs(np.log([within, between]) - before).max()
            if moved < SHAPE_TOLERANCE and np.abs(step).max() < MEAN_TOLERANCE:
                break
        rate[used] = means
    return SectionPrior(corpus.a, corpus.b, within, between, rate, Totals.of(changes, days))


def follow_sections(
    prior: SectionPrior, changes: ArrayLike, days: ArrayLike, section: Sections
) -> SectionPrior:
    """Move the means of the sections to the evidence of today, by a step of Newton's each.

    Shapes stay: they say how unequal pages are all together, and hardly move while the totals of
    the evidence do not (`Totals.like`). A tenth of the work of `fit_sections`, whose parameters
    and errors are these.
    """
    pages = Evidence.of(changes, days, section, prior.section_rate.size)
    used, pages = pages.renumbered()
    means = prior.section_rate[used].astype(np.float64)
    sums = pages.sums(means, prior.within, prior.mean)
    rate = prior.section_rate.copy()
    rate[used] = means * np.exp(sums.step(means / prior.mean, prior.between))
    return replace(prior, section_rate=rate)


class Sums(NamedTuple):
    """(S,) credible evidence of sections at their present means."""

    seen: Floats
    """Changes."""
    expected: Floats
    """As many changes as the corpus' mean makes one expect."""
    curvature: Floats
    """Of the likelihood in ln m_s, downwards."""

    def step(self, ratio: Floats, between: float) -> Floats:
        """Give a step of Newton's in the log means; `ratio` of the means to the corpus' mean."""
        score = between + self.seen - ratio * (between + self.expected)
        return np.clip(score / (between * ratio + self.curvature), -MOST_STEP, MOST_STEP)


class Siblings(NamedTuple):
    """(M,) pages, and what others of their section make one expect of them."""

    changes: Floats
    expected: Floats
    doubt: Floats
    """One over as many changes' worth is what is expected."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """(N,) what is known of pages, and in which section each is."""

    changes: Floats
    days: Floats
    section: Sections
    n_sections: int

    @classmethod
    def of(
        cls, changes: ArrayLike, days: ArrayLike, section: Sections, n_sections: int
    ) -> "Evidence":
        """Check what was handed in."""
        counts = check_amount("changes", changes, np.shape(changes))
        exposure = check_amount("days", days, np.shape(changes))
        if section.shape != counts.shape:
            raise InvalidInput("section", f"has shape {section.shape}, expected {counts.shape}")
        if section.size and not (section.min() >= 0 and section.max() < n_sections):
            raise InvalidInput("section", f"must lie in [0, {n_sections})")
        return cls(counts, exposure, section, n_sections)

    def renumbered(self) -> tuple[Sections, "Evidence"]:
        """Give the sections that have pages, ascending, and those the numbers from 0 on."""
        used, place = renumber(self.section, self.n_sections)
        return used, Evidence(self.changes, self.days, place, used.size)

    def sums(self, rate: Floats, within: float, mean: float) -> Sums:
        """Sum up by section."""
        seen, exposed, curvature = np.zeros((3, self.n_sections))
        for start in range(0, self.days.size, BLOCK):
            block = slice(start, start + BLOCK)
            section, changes, days = self.section[block], self.changes[block], self.days[block]
            weight = within / (within + rate[section] * days)
            np.add.at(seen, section, weight * changes)
            np.add.at(exposed, section, weight * days)
            np.add.at(curvature, section, weight * (1.0 - weight) * (within + changes))
        return Sums(seen, mean * exposed, curvature)

    def without_oneself(
        self, sums: Sums, rate: Floats, within: float, between: float, mean: float
    ) -> Siblings:
        """Take each page out of its section's sums, of at most `SAMPLE` pages that were watched."""
        some = np.flatnonzero(self.days)
        some = some[:: max(1, -(-some.size // SAMPLE))]
        section, changes, days = self.section[some], self.changes[some], self.days[some]
        weight = within / (within + rate[section] * days)
        shape = between + np.maximum(sums.seen[section] - weight * changes, 0.0)
        exposed = between + np.maximum(sums.expected[section] - weight * days * mean, 0.0)
        return Siblings(changes, mean * shape / exposed * days, 1.0 / shape)
