"""The protocol of estimators, their common checks, and estimators with a fitted prior."""

from abc import abstractmethod
from dataclasses import Field, replace
from itertools import accumulate
from typing import Any, ClassVar, NamedTuple, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import override

from service.core.ages import N_BINS, AgeProfile, Aging
from service.core.checks import Floats, InvalidInput, check_array, check_share
from service.core.common_values import Joint, alone
from service.core.pooling import (
    PagePriors,
    Totals,
    UrlGroupPrior,
    UrlGroupRates,
    still_fits,
    update_group_means,
    url_group_prior,
)
from service.core.prior import Prior, gamma_prior

Rows = NDArray[np.intp]
S = TypeVar("S", bound=tuple[Any, ...])


class CheckedCrawl(NamedTuple):
    """One crawl of every page, checked; numbers or (N,) arrays."""

    days: Floats
    """Time since the previous crawl; positive."""
    changed: Floats
    """1.0 where the page changed since, else 0.0; a part of 1 where it may not count."""
    rate: Floats
    """Crawl rate in force, 1/day; 0 without one, or where the estimator does not need it."""
    in_force: Floats
    """1.0 where a crawl rate was in force, else 0.0."""
    age: Floats | None
    """Days since the last modification, NaN where unknown; None: unknown for all pages."""


class Estimator(Protocol[S]):
    """An estimator of the change rate of a page from its crawls.

    An estimator is a frozen dataclass of parameters. Its state is a NamedTuple of numbers, or of
    (N,) float64 arrays. `init(None)` returns the state of one page, `init(n)` that of n pages; the
    same code updates both. A state has constant size, except for estimators that need the history.
    Before the first crawl the estimate is the mean of the `prior`.

    Estimators with a prior that an epoch fits derive from `PriorEstimator`. Estimators with a
    posterior have ``credible_interval(state, mass)``, which holds the change rate with probability
    `mass`. Estimators with a likelihood have ``confidence_interval(state, mass)``, which holds the
    change rate in a share `mass` of repetitions. Others have no interval.
    """

    name: ClassVar[str]
    """Name of the estimator in the settings."""
    State: ClassVar[Any]
    """NamedTuple class of the state; `to_columns` and `from_columns` convert a state."""
    needs_crawl_rate: ClassVar[bool] = False
    """True if the estimator uses the crawl rate in force; without a rate `update` does nothing."""
    needs_history: ClassVar[bool] = False
    """True if the state is the `History` of all crawls, which the observation log keeps."""
    periodic_timing_ok: ClassVar[bool] = True
    """True if the estimator stays consistent when pages are crawled at regular intervals."""
    refusal: ClassVar[str] = ""
    """Reason why regular intervals are not allowed; empty if they are."""
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def init(self, n: int | None = None) -> S:
        """Return the state before the first crawl: zeros, of shape (n,) or scalar."""
        state: S = self.State(*(zeros(n) for _ in self.State._fields))
        return state

    def update(
        self,
        state: S,
        interval: ArrayLike,
        changed: ArrayLike,
        crawl_rate: ArrayLike = np.nan,
        age: ArrayLike = np.nan,
    ) -> S:
        """Return the state after one more crawl of every page; pure and elementwise.

        Parameters
        ----------
        interval, changed
            Days since the previous crawl, positive; whether the page changed since. A part w of a
            change counts as w of a change and 1 - w of none.
        crawl_rate : array_like, 1/day
            The crawl rate in force over the interval; NaN: none.
        age : array_like, days
            Time since the last modification that the site reports; NaN: no report.

        Raises
        ------
        InvalidInput
            An interval is not positive and finite, a crawl rate is negative or infinite, or an
            array has another shape than the state.
        """
        shape = self.shape(state)
        days, was_changed = check_crawl(shape, interval, changed)
        rate = in_force = np.zeros(())
        if self.needs_crawl_rate:
            rate, in_force = _rate_in_force(shape, crawl_rate)
        ages = None if np.isnan(age).all() else np.asarray(age, np.float64)
        return self.learn(state, CheckedCrawl(days, was_changed, rate, in_force, ages))

    def shape(self, state: S) -> tuple[int, ...]:
        """Return the shape of a number per page: (N,), or () for one page."""
        return np.shape(state[-1])

    @abstractmethod
    def learn(self, state: S, crawl: CheckedCrawl) -> S:
        """Return the state after a crawl that `update` has checked."""

    @abstractmethod
    def change_rate(self, state: S) -> Floats:
        """Return the estimate of the change rate, 1/day, in the shape of the state."""

    @property
    def steady(self) -> "PriorEstimator[Any] | None":
        """The Gamma whose state is the first two columns of this state, for pages with pings."""
        return None

    def fit(
        self,
        state: S,
        url_group: NDArray[np.integer] | None = None,
        n_url_groups: int = 0,
        last: Self | None = None,
    ) -> Self:
        """Return the estimator with its prior fitted to all pages (`PriorEstimator.fitted`)."""
        return alone(self.fitted(state, url_group, n_url_groups, last))

    def fitted(
        self,
        state: S,  # noqa: ARG002 - for estimators with a prior, as below
        url_group: NDArray[np.integer] | None = None,  # noqa: ARG002
        n_url_groups: int = 0,  # noqa: ARG002
        last: Self | None = None,  # noqa: ARG002
    ) -> Joint[Self]:
        """Return the estimator with its prior fitted to the pages of all parts."""
        yield from ()
        return self

    def of_url_groups(self, url_group: NDArray[np.integer]) -> Self:  # noqa: ARG002
        """Return the estimator with the priors of the (N,) URL groups of pages, if fitted."""
        return self

    def with_profile(self, profile: AgeProfile | None) -> Self:  # noqa: ARG002
        """Return the estimator with the age profile of the corpus, if it can use one."""
        return self

    def aged(self, row: Rows, age: Floats, days: Floats, present: Floats) -> Self:  # noqa: ARG002
        """Return the estimator that reads the states of pages, with the births of some of them.

        Parameters
        ----------
        row, age, days, present : (K,)
            Rows of these pages, their ages at the last crawl, days of their evidence, and the
            factors of the profile at the time of the estimate.
        """
        return self

    def of_ages(self, aging: Aging | None) -> Self:  # noqa: ARG002
        """Return the estimator with what `aged` has computed; None: all pages are old."""
        return self

    @property
    def aging(self) -> Aging | None:
        """Ages of the pages whose states are read; None: all are old."""
        return None

    @property
    def profile(self) -> AgeProfile | None:
        """The age profile of the corpus; None: ages do not matter."""
        return None

    def corpus(self) -> dict[str, float]:
        """Return the numbers that `fit` determined, by name; empty without a prior."""
        return {}

    @property
    def url_group_rate(self) -> UrlGroupRates | None:
        """Mean change rate of each URL group from the last `fit`, 1/day; None: no groups."""
        return None

    def with_corpus(
        self,
        numbers: dict[str, float],  # noqa: ARG002
        url_group_rate: UrlGroupRates | None = None,  # noqa: ARG002
    ) -> Self:
        """Return the estimator with the results of a fit: its `corpus` and `url_group_rate`."""
        return self


class PoissonEstimator(Estimator[S]):
    """An estimator of A22, for Poisson clocks; docs/theory.md, "Which estimator when"."""

    needs_crawl_rate: ClassVar[bool] = True
    periodic_timing_ok: ClassVar[bool] = False
    refusal: ClassVar[str] = (
        "assumes exponentially distributed intervals: under periodic timing at crawl rate p it "
        "converges to p (exp(change_rate / p) - 1) instead of the change rate"
    )


def check_crawl(
    shape: tuple[int, ...], interval: ArrayLike, changed: ArrayLike
) -> tuple[Floats, Floats]:
    """Return intervals, and 1.0 where a page changed, each a number or of the state's `shape`.

    A part of a change stays a part. Raise `InvalidInput` for another shape, an interval that is not
    positive and finite, or a part that is not in [0, 1].
    """
    days = check_array(
        "interval",
        interval,
        np.shape(interval) and shape,
        test=lambda x: (x > 0) & (x < np.inf),
        must="positive and finite",
    )
    return days, check_share("changed", changed, np.shape(changed) and shape)


def _rate_in_force(shape: tuple[int, ...], crawl_rate: ArrayLike) -> tuple[Floats, Floats]:
    rate = check_array(
        "crawl_rate",
        crawl_rate,
        np.shape(crawl_rate) and shape,
        test=lambda rates: ~((rates < 0) | (rates == np.inf)),
        must="finite and not negative, or NaN where none was in force",
    )
    in_force = rate > 0
    return np.where(in_force, rate, 0.0), np.asarray(in_force, np.float64)


def check_mass(mass: float) -> float:
    """Return the probability of an interval; raise `InvalidInput` unless it is in (0, 1)."""
    if not 0 < mass < 1:
        raise InvalidInput("mass", f"must lie strictly between 0 and 1, not {mass}")
    return mass


def check_half_life(half_life_days: float | None) -> None:
    """Raise `InvalidInput` for a half-life that is not positive; None: evidence never fades."""
    if half_life_days is not None and not half_life_days > 0:
        raise InvalidInput("half_life_days", f"must be positive, not {half_life_days}")


def faded(state: S, days: Floats, half_life_days: float | None) -> S:
    """Return the evidence that is left after `days`: half after a half-life; None: all of it."""
    if half_life_days is None:
        return state
    fraction = np.exp2(-days / half_life_days)
    return type(state)(*(evidence * fraction for evidence in state))


def zeros(n: int | None) -> Any:
    """Return zero as a number, or as an array of shape (n,)."""
    return 0.0 if n is None else np.zeros(n)


def to_columns(state: Any) -> Floats:
    """Return the state of N pages as one (N, W) matrix, with a row for each page."""
    return np.column_stack(state)


def from_columns(estimator: Estimator[S], columns: Floats) -> S:
    """Return the state whose (N, W) matrix is `columns`; its arrays are views.

    Raise `InvalidInput` for the width of another estimator's state.
    """
    empty: Any = estimator.init(0)
    ends = list(accumulate(1 if field.ndim == 1 else field.shape[1] for field in empty))
    if columns.shape[1] != ends[-1]:
        raise InvalidInput("columns", f"are {columns.shape[1]}, {estimator.name} has {ends[-1]}")
    fields = (
        columns[:, end - 1] if field.ndim == 1 else columns[:, end - field.shape[1] : end]
        for end, field in zip(ends, empty, strict=True)
    )
    state: S = estimator.State(*fields)
    return state


TOTALS = "seen_"
"""Prefix of the names of totals in `PriorEstimator.corpus`."""

AGE = "age_"
"""Prefix of the names of an age profile's factors in `PriorEstimator.corpus`."""

NUMBERS_OF_PRIOR = {"a", "b", "within_shape", "between_shape"}
"""Names of a prior's numbers in `PriorEstimator.corpus`."""


class PriorEstimator(Estimator[S]):
    """An estimator with a prior that an epoch fits to the evidence of all pages."""

    prior: Prior | PagePriors
    fitted_parameters: ClassVar[tuple[str, ...]] = ()
    """Names of the parameters beside the prior that `fit_parameters` sets."""

    @abstractmethod
    def evidence(self, state: S) -> tuple[Floats, Floats]:
        """Return the changes and days of each page that `fit_gamma_prior` takes."""

    def fit_parameters(
        self,
        state: S,  # noqa: ARG002 - for estimators with parameters beside the prior
        url_group: NDArray[np.integer] | None,  # noqa: ARG002
        last: Self,  # noqa: ARG002
    ) -> Joint[Self]:
        """Return the estimator, whose prior is fitted, with its other parameters fitted."""
        yield from ()
        return self

    @override
    def fitted(
        self,
        state: S,
        url_group: NDArray[np.integer] | None = None,
        n_url_groups: int = 0,
        last: Self | None = None,
    ) -> Joint[Self]:
        """Return the estimator with its prior fitted to the evidence of all parts.

        With the (N,) URL groups of the pages, the prior is a `UrlGroupPrior`. URL groups with the
        same number modulo `n_url_groups` count as one. The search begins at the `last` fit. While
        the totals of the evidence stay close to those of the last whole fit, only the means of the
        URL groups move.
        """
        changes, days = self.evidence(state)
        last = last or self
        near = last.corpus_prior()
        if url_group is None:
            prior = yield from gamma_prior(changes, days, near=near)
            return (yield from replace(self, prior=prior).fit_parameters(state, None, last))
        url_group = url_group % n_url_groups
        fits = yield from still_fits(near, changes, days, n_url_groups)
        if fits and isinstance(near, UrlGroupPrior):
            return replace(last, prior=update_group_means(near, changes, days, url_group))
        prior = yield from gamma_prior(changes, days, near=near)
        pooled = yield from url_group_prior(changes, days, url_group, prior, n_url_groups, near)
        return (yield from replace(self, prior=pooled).fit_parameters(state, url_group, last))

    @override
    def of_url_groups(self, url_group: NDArray[np.integer]) -> Self:
        if isinstance(self.prior, UrlGroupPrior):
            return replace(self, prior=self.prior.of_pages(url_group))
        return self

    @override
    def corpus(self) -> dict[str, float]:
        prior = self.corpus_prior()
        numbers = {"a": prior.a, "b": prior.b}
        if isinstance(prior, UrlGroupPrior):
            numbers |= {"within_shape": prior.within_shape, "between_shape": prior.between_shape}
            totals = prior.totals._asdict() if prior.totals else {}
            numbers |= {TOTALS + name: total for name, total in totals.items()}
        if self.profile is not None:
            numbers |= {f"{AGE}{k}": float(factor) for k, factor in enumerate(self.profile.factor)}
        return numbers | {name: getattr(self, name) for name in self.fitted_parameters}

    def corpus_prior(self) -> Prior:
        """Return the prior of all pages; raise `InvalidInput` if each page has its own prior."""
        if not isinstance(self.prior, Prior):
            raise InvalidInput("prior", "is that of single pages; pass the estimator of all pages")
        return self.prior

    @property
    @override
    def url_group_rate(self) -> UrlGroupRates | None:
        return self.prior.url_group_rate if isinstance(self.prior, UrlGroupPrior) else None

    @override
    def with_corpus(
        self, numbers: dict[str, float], url_group_rate: UrlGroupRates | None = None
    ) -> Self:
        # Return the estimator with the results of a fit: its `corpus` and `url_group_rate`. The
        # totals are ignored if another kind of estimator made the fit, because that estimator may
        # have fitted other parameters.
        if not numbers:
            return self
        prior = Prior(numbers["a"], numbers["b"])
        names = {name for name in numbers if not name.startswith((TOTALS, AGE))} - NUMBERS_OF_PRIOR
        if url_group_rate is not None:
            of_evidence = {
                name: numbers[TOTALS + name] for name in Totals._fields if TOTALS + name in numbers
            }
            same = names == set(self.fitted_parameters)
            totals = Totals(**of_evidence) if of_evidence and same else None
            shapes = numbers["within_shape"], numbers["between_shape"]
            prior = UrlGroupPrior(prior.a, prior.b, *shapes, url_group_rate, totals)
        own: dict[str, Any] = {name: numbers[name] for name in names & {*self.fitted_parameters}}
        return replace(self, prior=prior, **own).with_profile(_profile(numbers))


def _profile(numbers: dict[str, float]) -> AgeProfile | None:
    """Return the age profile among the numbers of a corpus, if there is one."""
    if f"{AGE}0" not in numbers:
        return None
    return AgeProfile(np.array([numbers[f"{AGE}{k}"] for k in range(N_BINS)]))
