"""What an estimator believes of all pages together: fitted, put down, taken up again."""

from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from service.core.conditions import InvalidInput
from service.core.credibility import (
    SectionPrior,
    SectionRates,
    Totals,
    fit_sections,
    follow_sections,
)
from service.core.estimators.base import Estimator
from service.core.estimators.bursty import Bursty
from service.core.estimators.gamma import Gamma
from service.core.estimators.lognormal import LogNormal
from service.core.prior import SAMPLE, Prior, fit_gamma_prior, fit_steadiness

SEEN = "seen_"
"""Before the names of the totals, where they are put down."""

E = TypeVar("E", bound=Estimator[Any])


def fit_corpus(
    estimator: E,
    state: Any,
    section: NDArray[np.integer] | None = None,
    n_sections: int = 0,
    last: E | None = None,
) -> E:
    """Give the estimator as the evidence of the whole corpus has it; without a prior, itself.

    With the (N,) sections of the pages its prior is a `SectionPrior`; see `of_sections`. Those
    whose numbers are the same modulo `n_sections` are taken for one.
    The search begins at the `last` fit. While the totals of the evidence are those of the last
    fit of all (`Totals.like`), its shapes stay and only the means of the sections move.
    """
    if not isinstance(estimator, Gamma | Bursty | LogNormal):
        return estimator
    changes, days = estimator.evidence(state)
    last = last or estimator
    near = _prior_of_all(last)
    if section is not None:
        section = section % n_sections
        if isinstance(near, SectionPrior) and near.still_fits(changes, days, n_sections):
            return replace(last, prior=follow_sections(near, changes, days, section))
    prior = fit_gamma_prior(changes, days, near=near)
    if section is not None:
        prior = fit_sections(changes, days, section, prior, n_sections, near)
    fitted = replace(estimator, prior=prior)
    if isinstance(fitted, Bursty):
        watched = np.flatnonzero(days)
        some = watched[:: max(1, -(-watched.size // SAMPLE))]
        sample = Bursty.State(*(np.asarray(column)[some] for column in state))
        own = fitted if section is None else of_sections(fitted, section[some])
        near_by = getattr(last, "steadiness", None)
        steadiness = fit_steadiness(sample.recent, own.expected(sample), near=near_by)
        return replace(fitted, steadiness=steadiness)
    return fitted


def of_sections(estimator: E, section: NDArray[np.integer]) -> E:
    """Give the estimator of (N,) pages, on the priors of their sections where it knows those."""
    if not isinstance(estimator, Gamma | Bursty | LogNormal):
        return estimator
    if isinstance(estimator.prior, SectionPrior):
        return replace(estimator, prior=estimator.prior.of(section))
    return estimator


def corpus_of(estimator: Estimator[Any]) -> dict[str, float]:
    """Put down the numbers that `fit_corpus` has found."""
    if not isinstance(estimator, Gamma | Bursty | LogNormal):
        return {}
    prior = _prior_of_all(estimator)
    told = {"a": prior.a, "b": prior.b}
    if isinstance(prior, SectionPrior):
        told |= {"within": prior.within, "between": prior.between}
        seen = prior.seen._asdict() if prior.seen else {}
        told |= {SEEN + name: total for name, total in seen.items()}
    if isinstance(estimator, Bursty):
        told["steadiness"] = estimator.steadiness
    return told


def _prior_of_all(estimator: Estimator[Any]) -> Prior:
    prior = getattr(estimator, "prior", None)
    if not isinstance(prior, Prior):
        raise InvalidInput("prior", "is that of single pages; hand in the estimator of all")
    return prior


def section_rate_of(estimator: Estimator[Any]) -> SectionRates | None:
    """Give the mean change rate of each section that `fit_corpus` has found, 1/day."""
    prior = getattr(estimator, "prior", None)
    return prior.section_rate if isinstance(prior, SectionPrior) else None


def with_corpus(
    estimator: E, told: dict[str, float], section_rate: SectionRates | None = None
) -> E:
    """Take up what `corpus_of` and `section_rate_of` have put down."""
    if not told or not isinstance(estimator, Gamma | Bursty | LogNormal):
        return estimator
    prior = Prior(told["a"], told["b"])
    if section_rate is not None:
        totals = {name: told[SEEN + name] for name in Totals._fields if SEEN + name in told}
        seen = Totals(**totals) if totals and _told_by_one_like(estimator, told) else None
        prior = SectionPrior(prior.a, prior.b, told["within"], told["between"], section_rate, seen)
    known = replace(estimator, prior=prior)
    if isinstance(known, Bursty) and "steadiness" in told:
        return replace(known, steadiness=told["steadiness"])
    return known


def _told_by_one_like(estimator: Estimator[Any], told: dict[str, float]) -> bool:
    return ("steadiness" in told) is isinstance(estimator, Bursty)
