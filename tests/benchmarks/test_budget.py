"""A flood of false pings costs other pages little, in the trial of the laboratory."""

import numpy as np
import pytest

from benchmarks.budget.pings import DAYS, FROM, crawls_of, false_pings, rows, stale_by_day

pytestmark = pytest.mark.slow


def test_a_flood_of_false_pings_costs_little():
    stale = {}
    for times in (0.0, 10.0):
        trial = false_pings(200, seed=1, times=times)
        crawls, n_requested = crawls_of(trial, seed=1)
        assert (n_requested > 0) == (times > 0)
        assert np.isfinite(crawls.at).all()
        stale[times] = stale_by_day(trial, crawls)[int(FROM) : int(DAYS)]
    five_days = {times: days.reshape(-1, 5).mean(1) for times, days in stale.items()}
    assert (five_days[10.0] <= 1.25 * five_days[0.0].mean()).all()
    assert stale[10.0].mean() <= 1.15 * stale[0.0].mean()


def test_a_line_has_each_span_with_its_error():
    (line,) = rows(["honest"], n=30, seeds=2)
    assert line["trial"] == "honest"
    assert 0.98 <= line["used"] <= 1.01
    assert all(mean > 0 < error for mean, error in (line["40-45"], line["60-80"]))
