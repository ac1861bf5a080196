"""Which change rates are assumed, of one page and of many."""

from types import SimpleNamespace

import numpy as np
import pytest

from service.model.assumed_rates import assumed
from service.model.domain import Observability

COMPLETE, AUTO = Observability.complete, Observability.auto
NOTHING = (0.0, 0.0, 0.0)
CASES = [
    (0, 0, AUTO, NOTHING, True),
    (1, 0, AUTO, NOTHING, False),
    # a ping of a page whose pings are not proven shows no change yet
    (0, 9, AUTO, NOTHING, True),
    (0, 9, Observability.incomplete, NOTHING, True),
    (0, 1, COMPLETE, NOTHING, False),
    (0, 0, COMPLETE, NOTHING, True),
    # captures teach an estimate, and count no observation
    (0, 0, AUTO, (0.0, 2.5, 0.0), False),
]


def page(n_observations, n_pings, observability, estimate):
    return SimpleNamespace(
        n_observations=n_observations,
        n_pings=n_pings,
        observability=observability,
        estimate=estimate,
    )


@pytest.mark.parametrize("case", CASES)
def test_a_rate_is_assumed_until_crawls_captures_or_complete_pings_are_evidence(case):
    *fields, expected = case
    assert bool(assumed(page(*fields))) is expected


def test_arrays_of_pages_are_judged_as_each_page_is():
    *columns, expected = map(np.array, zip(*CASES, strict=True))
    assert assumed(page(*columns)).tolist() == expected.tolist()
    without = page(*columns[:3], np.zeros((len(CASES), 0)))  # an estimator that reads the log
    assert assumed(without).tolist() == [*expected.tolist()[:6], True]
