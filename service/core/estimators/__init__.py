"""Estimators of change rates: one small module each, one registry."""

from dataclasses import fields
from typing import Any

from service.core.checks import InvalidInput
from service.core.estimators.base import Estimator
from service.core.estimators.bursty import Bursty
from service.core.estimators.gamma import CompleteObservations, Gamma
from service.core.estimators.lln import LLN
from service.core.estimators.lognormal import LogNormal
from service.core.estimators.mle import MLE, BinnedMLE
from service.core.estimators.mm import MM
from service.core.estimators.naive import Naive
from service.core.estimators.stochastic import SA, SAM
from service.core.prior import DEFAULT_PRIOR, Prior

_ALL = (Gamma, Bursty, LogNormal, MLE, BinnedMLE, MM, LLN, SA, SAM, Naive, CompleteObservations)
ESTIMATORS: dict[str, type[Estimator[Any]]] = {estimator.name: estimator for estimator in _ALL}
"""Class of each estimator, by its name in the settings."""


def make_estimator(
    name: str, *, prior: Prior = DEFAULT_PRIOR, half_life_days: float | None = None
) -> Estimator[Any]:
    """Return an estimator by name; raise `InvalidInput` for an unknown name.

    Estimators without a prior or a half-life ignore these parameters.
    """
    if name not in ESTIMATORS:
        raise InvalidInput("estimator", f"must be one of {', '.join(ESTIMATORS)}, not {name!r}")
    names = {field.name for field in fields(ESTIMATORS[name])}
    settings = {"prior": prior, "half_life_days": half_life_days}
    parameters = {key: value for key, value in settings.items() if key in names}
    estimator: Estimator[Any] = ESTIMATORS[name](**parameters)
    return estimator
