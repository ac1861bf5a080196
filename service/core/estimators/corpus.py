"""Estimators with a prior: fitted to all pages, written down and restored."""

from abc import abstractmethod
from dataclasses import replace
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from service.core.conditions import Floats, InvalidInput
from service.core.estimators.base import Estimator
from service.core.pooling import (
    PagePriors,
    Totals,
    UrlGroupPrior,
    UrlGroupRates,
    fit_url_groups,
    follow_url_groups,
)
from service.core.prior import Prior, fit_gamma_prior

TOTALS = "seen_"
"""Prefix of the names of totals in `PriorEstimator.corpus`."""

NUMBERS_OF_PRIOR = {"a", "b", "within_shape", "between_shape"}
"""Names of the numbers of a prior in `PriorEstimator.corpus`."""

S = TypeVar("S")


class PriorEstimator(Estimator[S]):
    """An estimator with a prior that an epoch fits to the evidence of all pages."""

    prior: Prior | PagePriors
    fitted_parameters: ClassVar[tuple[str, ...]] = ()
    """Names of the parameters beside the prior that `fit_parameters` sets."""

    @abstractmethod
    def evidence(self, state: S) -> tuple[Floats, Floats]:
        """Return changes and days of each page for `fit_gamma_prior`."""

    def fit_parameters(
        self,
        state: S,  # noqa: ARG002 - for estimators with parameters beside the prior
        url_group: NDArray[np.integer] | None,  # noqa: ARG002
        last: Self,  # noqa: ARG002
    ) -> Self:
        """Return the estimator, whose prior is fitted, with its other parameters fitted."""
        return self

    def fit(
        self,
        state: S,
        url_group: NDArray[np.integer] | None = None,
        n_url_groups: int = 0,
        last: Self | None = None,
    ) -> Self:
        """Return the estimator with its prior fitted to the evidence of all pages.

        With the (N,) URL groups of the pages the prior is a `UrlGroupPrior`. URL groups whose
        numbers are the same modulo `n_url_groups` count as one. The search begins at the `last`
        fit. While the totals of the evidence are those of the last whole fit (`Totals.like`), its
        shapes remain and only the means of the URL groups move.
        """
        changes, days = self.evidence(state)
        last = last or self
        near = last.corpus_prior()
        if url_group is None:
            fitted = replace(self, prior=fit_gamma_prior(changes, days, near=near))
            return fitted.fit_parameters(state, None, last)
        url_group = url_group % n_url_groups
        if isinstance(near, UrlGroupPrior) and near.still_fits(changes, days, n_url_groups):
            return replace(last, prior=follow_url_groups(near, changes, days, url_group))
        prior = fit_gamma_prior(changes, days, near=near)
        pooled = fit_url_groups(changes, days, url_group, prior, n_url_groups, near)
        return replace(self, prior=pooled).fit_parameters(state, url_group, last)

    def of_url_groups(self, url_group: NDArray[np.integer]) -> Self:
        """Return the estimator of (N,) pages, on the priors of their URL groups if fitted."""
        if isinstance(self.prior, UrlGroupPrior):
            return replace(self, prior=self.prior.of(url_group))
        return self

    def corpus(self) -> dict[str, float]:
        """Return the numbers that `fit` has found, by name."""
        prior = self.corpus_prior()
        numbers = {"a": prior.a, "b": prior.b}
        if isinstance(prior, UrlGroupPrior):
            numbers |= {"within_shape": prior.within_shape, "between_shape": prior.between_shape}
            totals = prior.totals._asdict() if prior.totals else {}
            numbers |= {TOTALS + name: total for name, total in totals.items()}
        return numbers | {name: getattr(self, name) for name in self.fitted_parameters}

    def corpus_prior(self) -> Prior:
        """Return the prior of any page.

        Raises
        ------
        InvalidInput
            The estimator is that of single pages (`of_url_groups`).
        """
        if not isinstance(self.prior, Prior):
            raise InvalidInput("prior", "is that of single pages; pass the estimator of all pages")
        return self.prior

    @property
    def url_group_rate(self) -> UrlGroupRates | None:
        """Mean change rate of each URL group that `fit` has found, 1/day."""
        return self.prior.url_group_rate if isinstance(self.prior, UrlGroupPrior) else None

    def with_corpus(
        self, numbers: dict[str, float], url_group_rate: UrlGroupRates | None = None
    ) -> Self:
        """Return the estimator as `corpus` and `url_group_rate` describe it.

        Because another estimator may have fitted other parameters, its totals are not taken.
        """
        if not numbers:
            return self
        prior = Prior(numbers["a"], numbers["b"])
        names = {name for name in numbers if not name.startswith(TOTALS)} - NUMBERS_OF_PRIOR
        if url_group_rate is not None:
            of_evidence = {
                name: numbers[TOTALS + name] for name in Totals._fields if TOTALS + name in numbers
            }
            same = names == set(self.fitted_parameters)
            totals = Totals(**of_evidence) if of_evidence and same else None
            shapes = numbers["within_shape"], numbers["between_shape"]
            prior = UrlGroupPrior(prior.a, prior.b, *shapes, url_group_rate, totals)
        own: dict[str, Any] = {name: numbers[name] for name in names & {*self.fitted_parameters}}
        return replace(self, prior=prior, **own)
