"""The experiments of the papers, repeated with the service's own estimators and allocations.

Each module contains some figures of one paper and has a tuple `EXPERIMENTS`. A new experiment is
a new module and its line in `EXPERIMENTS` below.
"""

from recrawl_lab.errors import UnknownExperiment
from recrawl_lab.experiments import (
    a22_accuracy,
    a22_history,
    a22_loop,
    a22_steps,
    gf08,
    k19_known,
    k19_learned,
)
from recrawl_lab.experiments.base import Experiment, Result, ResultTable, Setup

__all__ = ["EXPERIMENTS", "Experiment", "Result", "ResultTable", "Setup", "find"]

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for module in (a22_history, a22_accuracy, a22_steps, a22_loop, gf08, k19_known, k19_learned)
    for experiment in module.EXPERIMENTS
}
"""Experiments by name, in the order of the papers."""


def find(name: str) -> Experiment:
    """Return an experiment by name.

    Raises
    ------
    UnknownExperiment
        No experiment has this name; the message lists all names.
    """
    if name not in EXPERIMENTS:
        raise UnknownExperiment(f"no experiment {name!r}; choose one of {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]
