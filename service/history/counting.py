"""Sums of crawls and of pings for the history, and predictions against the crawls. Pure.

Arrays are (N,) for events, ordered by page and time, and (P,) for their pages.
"""

from typing import NamedTuple

import numpy as np

from service.core.calibration import CalibrationSums
from service.estimation.estimates import Rules
from service.estimation.predictions import predicted_changes
from service.model.arrays import Bools, Codes, Floats, Groups, Instants, Ints
from service.model.columns import PageStates
from service.model.history import Tally

MOST_COMPARED = 25
"""Number of crawls of a commit that are all compared with their predictions.

A larger commit compares only pages whose page_id is a multiple of a number, about as many crawls.
This avoids that large batches take longer."""


def compared_every(n_crawls: int) -> int:
    """Return the number whose multiples are the page_ids to compare.

    >>> [compared_every(n) for n in (1, 25, 26, 10_000)]
    [1, 1, 2, 400]
    """
    return -(-max(n_crawls, 1) // MOST_COMPARED)


class Compared(NamedTuple):
    """(K,) crawls that were compared with their predictions."""

    crawl: Ints
    """Row of the crawl."""
    probability: Floats
    """P(changed) before the crawl."""
    changed: Bools


NOT_COMPARED = Compared(np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.bool_))


def of_crawls(
    states: PageStates,
    groups: Groups,
    changed: Codes,
    failing: Bools,
    n_pings: Ints,
    compared: Compared,
    estimator: str,
) -> Tally:
    """Return the sums of accepted crawls; `states` are those before the crawls.

    A ping is true if the next crawl of its page found a change, else false. A change that no ping
    announced is missed if the page has had pings.
    """
    page = groups.page
    found, same = changed == 1, changed == 0
    columns = {
        "n_reported": np.ones(len(page), np.bool_),
        "n_failed": failing,
        "n_changed": found,
        "n_wasted": same,
    }
    if states.n_pings.any():
        columns |= {
            "n_true_pings": n_pings * found,
            "n_false_pings": n_pings * same,
            "n_missed": found & (n_pings == 0) & (states.n_pings > 0)[page],
        }
    sums = CalibrationSums.of(compared.probability, compared.changed)
    calibrations = {estimator: sums} if len(compared.crawl) else {}
    return Tally.of(states.host_id[page], columns, calibrations)


def of_pings(states: PageStates, groups: Groups) -> Tally:
    """Return the sums of accepted pings."""
    return Tally.of(states.host_id[groups.page], {"n_pings": np.ones(len(groups.page), np.bool_)})


def compare(
    states: PageStates,
    groups: Groups,
    since: Instants,
    at: Instants,
    changed: Codes,
    is_evidence: Bools,
    n_pings: Ints,
    rules: Rules,
    every: int,
) -> Compared:
    """Return crawls that are evidence with their predictions.

    `states` are those before the commit; pages whose id is a multiple of `every` are compared. An
    estimator that reads the log predicts nothing.
    """
    row = np.flatnonzero(is_evidence & (states.page_id[groups.page] % every == 0))
    if rules.estimator.needs_history or not len(row):
        return NOT_COMPARED
    probability = predicted_changes(
        states.take(groups.page[row]),
        rules.estimator,
        rules.epoch,
        since[row],
        at[row],
        n_pings[row],
    )
    return Compared(row, probability, changed[row] == 1)
