"""Estimators of change rates: one small module each, one registry."""

from dataclasses import fields
from typing import Any

from service.core.conditions import InvalidInput
from service.core.estimators.base import Estimator
from service.core.estimators.complete import CompleteObservations, CompleteState
from service.core.estimators.gamma import Gamma, GammaState
from service.core.estimators.lln import LLN, LLNState
from service.core.prior import DEFAULT_PRIOR, Prior

__all__ = [
    "ESTIMATORS",
    "LLN",
    "CompleteObservations",
    "CompleteState",
    "Estimator",
    "Gamma",
    "GammaState",
    "LLNState",
    "make_estimator",
]

ESTIMATORS: dict[str, type] = {
    estimator.name: estimator for estimator in (Gamma, LLN, CompleteObservations)
}
"""Name in the settings -> class."""


def make_estimator(
    name: str, *, prior: Prior = DEFAULT_PRIOR, half_life_days: float | None = None
) -> Estimator[Any]:
    """Estimator by name; prior and half-life go to those that have a use for them.

    Raises
    ------
    InvalidInput
        Unknown name (the message lists the known ones).

    Examples
    --------
    >>> make_estimator("gamma", half_life_days=365.0)
    Gamma(prior=Prior(a=0.5, b=15.0), half_life_days=365.0)
    """
    if name not in ESTIMATORS:
        raise InvalidInput("estimator", f"must be one of {', '.join(ESTIMATORS)}, not {name!r}")
    known = {field.name for field in fields(ESTIMATORS[name])}
    given = {"prior": prior, "half_life_days": half_life_days}
    parameters = {key: value for key, value in given.items() if key in known}
    estimator: Estimator[Any] = ESTIMATORS[name](**parameters)
    return estimator
