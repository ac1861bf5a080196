"""The prior: the distribution of change rates over the corpus, for pages without a crawl."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import digamma

from service.core.checks import Floats, InvalidInput, check_amount
from service.core.common_values import Contribution, Joint, alone, gathered, sampled

TOLERANCE = 1e-6
"""Maximum length of the last step, in the log: the error that remains is far smaller."""

FIRST_STEP = 1e-3
"""Log distance of the second point from the first, which shows the slope of the score."""

LONGEST_STEP = 2.0
"""Maximum step in the log: a factor of 7."""

MOST_STEPS = 100
"""Maximum number of steps; a search takes 2 to 6, bisection between any two ends at most 50."""


def peak(
    score: Callable[[float], float],
    near: float,
    low: float,
    high: float,
    tolerance: float = TOLERANCE,
) -> float:
    """Return the point between `low` and `high` where a falling score is zero, else the nearer end.

    The method is the secant method in the logarithm. It begins at `near` and ends when a step is
    no longer than `tolerance`. A bisection replaces a step that leaves the bracket.

    Examples
    --------
    >>> print(f"{peak(lambda x: 2.0 - x, 1.0, 0.05, 20.0):.9f}")
    2.000000000
    """
    first, last = float(np.log(low)), float(np.log(high))
    below, above = first - 1.0, last + 1.0
    x = min(max(float(np.log(near)), first), last)
    value = score(float(np.exp(x)))
    step = FIRST_STEP * float(np.sign(value))
    for _ in range(MOST_STEPS):
        below, above = (x, above) if value > 0 else (below, x)
        there = x + step if below <= x + step <= above else (below + above) / 2
        old, old_value, x = x, value, min(max(there, first), last)
        if x == old:
            break
        value = score(float(np.exp(x)))
        slope = (value - old_value) / (x - old)
        step = -value / slope if slope < 0 else float(np.copysign(LONGEST_STEP, value))
        step = min(max(step, -LONGEST_STEP), LONGEST_STEP)
        if min(abs(step), abs(x + step - old)) <= tolerance:
            x += step
            break
    return low if x <= first else high if x >= last else float(np.exp(x))


MIN_SHAPE, MAX_SHAPE = 0.05, 20.0
"""Bounds of the fitted shape of the corpus, changes.

With less, one crawl would outweigh the corpus. With more, the corpus would outweigh 20 changes.
"""

START_DISPERSION, MAX_DISPERSION = 5.0, 100.0
"""Shape of rates, or of URL groups' means, without evidence; maximum shape, as good as infinite."""

START_WEIGHT = 20.0
"""Weight of the prior that a fit starts from, pages."""

MAX_STEPS = 100
"""Maximum Newton steps for b; a fit takes 2 to 5, and 25 over 24 decades."""

NEAR = 1e-6
"""Maximum relative length of the last step in b: the error that remains is its square."""

SAMPLE = 1 << 15
"""Maximum pages of a fit: two numbers from 32,768 pages have standard errors of about 1 %."""


@dataclass(frozen=True, slots=True)
class Prior:
    """Gamma distribution of change rates over the corpus, density ∝ x^(a-1) e^(-b x).

    Parameters
    ----------
    a : float
        Shape, which weighs as much as so many changes. Positive.
    b : float, days
        Rate, which weighs as much as so many days of crawling. Positive.
    """

    a: float
    b: float

    def __post_init__(self) -> None:
        for name, value in (("a", self.a), ("b", self.b)):
            if not 0 < value < np.inf:
                raise InvalidInput(f"prior.{name}", f"must be positive and finite, not {value}")

    @property
    def mean(self) -> float:
        """Expected change rate of a page without a crawl, 1/day."""
        return self.a / self.b


DEFAULT_PRIOR = Prior(a=0.5, b=15.0)
"""Prior without evidence: one change in 30 days on average, 90 % between 1/7,600 and 1/8 per day.

Documentation sites have medians of 0.003 to 0.01 changes a day, news sites 0.3. The prior is broad
enough for both.
"""


def fit_gamma_prior(
    changes: ArrayLike, days: ArrayLike, start: Prior = DEFAULT_PRIOR, near: Prior | None = None
) -> Prior:
    """Return the prior under which the evidence of the whole corpus is likeliest (GF08's idea).

    The fit adds `START_WEIGHT` pages with known rates that are distributed as `start`. With few
    pages the prior therefore moves little, without pages not at all, and it never degenerates.

    Parameters
    ----------
    changes, days : array_like, shape (N,)
        Evidence per page beyond the prior, as in `GammaState`. Not negative. The fit uses an
        evenly spread sample if more than `SAMPLE` pages have days.
    start : Prior
        The prior without evidence.
    near : Prior or None
        Starting point of the search, such as the last fit, which saves time; None: `start`.

    Raises
    ------
    InvalidInput
        Negative or non-finite evidence, or arrays of different shapes.

    Examples
    --------
    A corpus of two kinds of pages, each watched for 100 days:

    >>> prior = fit_gamma_prior([50.0] * 500 + [1.0] * 500, [100.0] * 1000)
    >>> print(f"{prior.a:.2f} {prior.mean:.3f}")
    0.49 0.251
    """
    return alone(gamma_prior(changes, days, start, near))


def gamma_prior(
    changes: ArrayLike, days: ArrayLike, start: Prior = DEFAULT_PRIOR, near: Prior | None = None
) -> Joint[Prior]:
    """Return the prior of the corpus of all parts (`fit_gamma_prior`)."""
    sample = yield from _sample(changes, days)
    near = Prior(near.a, near.b) if near else start  # without tables of URL groups
    prior: Prior = yield Contribution(sample, partial(_likeliest, start=start, near=near))
    return prior


def _likeliest(samples: Sequence[tuple[Floats, Floats]], start: Prior, near: Prior) -> Prior:
    """Return the prior of the samples of all parts."""
    counts, exposure = gathered(samples)
    if not counts.size:
        return start
    likelihood = _CorpusLikelihood(counts, exposure, start, 1.0 / near.mean)
    a = peak(likelihood.score, near.a, MIN_SHAPE, MAX_SHAPE)
    return Prior(a, likelihood.best_b(a))


@dataclass(slots=True)
class _CorpusLikelihood:
    """The negative binomial likelihood of a corpus, and of `START_WEIGHT` pages like `start`.

        sum_i ln Γ(a + k_i) - ln Γ(a) + a ln b - (a + k_i) ln(b + T_i)

    For each a, the best b is the root of a convex decreasing function. The best a is the zero of
    the score with the best b.
    """

    counts: Floats
    exposure: Floats
    start: Prior
    days_per_change: float
    """b/a of the last root; the next search begins there."""

    def best_b(self, a: float) -> float:
        """Return the root of sum_i [a - b (a + k_i)/(b + T_i)] + weight (a - b start.mean)."""
        b = a * self.days_per_change
        for _ in range(MAX_STEPS):
            watched = b + self.exposure
            quiet, share = self.exposure / watched, b / watched
            prior_days = START_WEIGHT * b * self.start.mean
            value = np.sum(a * quiet - self.counts * share) + START_WEIGHT * a - prior_days
            step = b * value / (np.sum((a + self.counts) * quiet * share) + prior_days)
            b = float(np.maximum(b + step, b / 16))
            if abs(step) <= NEAR * b:
                break
        self.days_per_change = b / a
        return b

    def score(self, a: float) -> float:
        """Return the derivative of the log-likelihood in a, at the best b."""
        b = self.best_b(a)
        changed = self.counts[self.counts > 0]
        log_mean, log_b = float(digamma(a)), np.log(b)
        gained = np.sum(digamma(a + changed)) - changed.size * log_mean
        spent = np.sum(np.log(b + self.exposure)) - self.exposure.size * log_b
        start_log_mean = float(digamma(self.start.a)) - np.log(self.start.b)
        return float(gained - spent + START_WEIGHT * (start_log_mean - log_mean + log_b))


def fit_dispersion(
    recent: ArrayLike,
    expected: ArrayLike,
    near: float = START_DISPERSION,
    tolerance: float = TOLERANCE,
) -> float:
    """Return the dispersion of change rates about their long-run values; large: steady rates.

    The dispersion is the shape s, at most `MAX_DISPERSION`, that makes the `recent` changes of all
    pages likeliest. Each page's rate is its long-run rate times a factor of density Gamma(s, s).

    Parameters
    ----------
    recent, expected : array_like, shape (N,)
        Recent evidence of each page, and the evidence expected at its long-run rate, changes.
        Pages with 0 expected are ignored. Checks and sample are as in `fit_gamma_prior`.
    near, tolerance : float
        As in `peak`.

    Examples
    --------
    Pages that changed three times as often as usual or not at all:

    >>> f"{fit_dispersion([6.0, 0.0, 0.0] * 300, [2.0] * 900):.2f}"
    '0.21'
    """
    return alone(dispersion(recent, expected, near, tolerance))


def dispersion(
    recent: ArrayLike,
    expected: ArrayLike,
    near: float = START_DISPERSION,
    tolerance: float = TOLERANCE,
) -> Joint[float]:
    """Return the dispersion over all parts (`fit_dispersion`)."""
    sample = yield from _sample(recent, expected)
    shape: float = yield Contribution(sample, partial(_dispersion, near=near, tolerance=tolerance))
    return shape


def _dispersion(samples: Sequence[tuple[Floats, Floats]], near: float, tolerance: float) -> float:
    counts, mean = gathered(samples)
    certain = np.zeros(counts.size)
    bounds = MIN_SHAPE, MAX_DISPERSION
    return fit_shape(counts, mean, certain, START_DISPERSION, near, bounds, tolerance)


def fit_shape(
    changes: Floats,
    expected: Floats,
    doubt: Floats,
    start: float,
    near: float,
    bounds: tuple[float, float],
    tolerance: float,
) -> float:
    """Return the shape a of the factors between pages' rates and their expected rates.

    The shape maximises the negative binomial likelihood of the changes. That distribution has mean
    `expected` and shape q with 1/q = 1/a + (1 + 1/a) doubt. The likelihood includes `START_WEIGHT`
    pages with known factors that are distributed by `start`.

    Parameters
    ----------
    changes, expected : (N,)
        Not negative; `expected` positive.
    doubt : (N,)
        Inverse shape of the expected rate itself; 0 where that rate is certain.
    near, tolerance : float
        As in `peak`, between the `bounds`.
    """
    start_log_mean = float(digamma(start)) - np.log(start)
    changed = np.flatnonzero(changes)
    counts = changes[changed]

    def score(a: float) -> float:
        """Return the derivative of the likelihood in a; dq/da = (1 + doubt) (q/a)^2."""
        q = 1.0 / (1.0 / a + (1.0 + 1.0 / a) * doubt)
        slope = (expected - changes) / (q + expected) + np.log(q / (q + expected))
        shape = q[changed]
        slope[changed] += digamma(shape + counts) - digamma(shape)
        own = np.log(a) - digamma(a) + start_log_mean
        return float(np.sum((1.0 + doubt) * (q / a) ** 2 * slope) + START_WEIGHT * own)

    return peak(score, near, *bounds, tolerance)


def _sample(changes: ArrayLike, days: ArrayLike) -> Joint[tuple[Floats, Floats]]:
    """Return this part's evidence, checked, of at most `SAMPLE` pages with days in all parts."""
    counts = check_amount("changes", changes, np.shape(changes))
    exposure = check_amount("days", days, np.shape(changes))
    observed = yield from sampled(np.flatnonzero(exposure > 0), SAMPLE)
    return counts[observed], exposure[observed]
