"""What an estimator believes of all pages together: fitted, put down, taken up again."""

from dataclasses import replace
from typing import Any, TypeVar

from service.core.estimators.base import Estimator
from service.core.estimators.bursty import Bursty
from service.core.estimators.gamma import Gamma
from service.core.estimators.lognormal import LogNormal
from service.core.prior import Prior, fit_gamma_prior, fit_steadiness

E = TypeVar("E", bound=Estimator[Any])


def fit_corpus(estimator: E, state: Any) -> E:
    """Give the estimator as the evidence of the whole corpus has it; without a prior, itself."""
    if not isinstance(estimator, Gamma | Bursty | LogNormal):
        return estimator
    fitted = replace(estimator, prior=fit_gamma_prior(*estimator.evidence(state)))
    if isinstance(fitted, Bursty):
        return replace(fitted, steadiness=fit_steadiness(state.recent, fitted.expected(state)))
    return fitted


def corpus_of(estimator: Estimator[Any]) -> dict[str, float]:
    """Put down what `fit_corpus` has found."""
    if not isinstance(estimator, Gamma | Bursty | LogNormal):
        return {}
    told = {"a": estimator.prior.a, "b": estimator.prior.b}
    if isinstance(estimator, Bursty):
        told["steadiness"] = estimator.steadiness
    return told


def with_corpus(estimator: E, told: dict[str, float]) -> E:
    """Take up what `corpus_of` has put down."""
    if not told or not isinstance(estimator, Gamma | Bursty | LogNormal):
        return estimator
    known = replace(estimator, prior=Prior(told["a"], told["b"]))
    if isinstance(known, Bursty) and "steadiness" in told:
        return replace(known, steadiness=told["steadiness"])
    return known
