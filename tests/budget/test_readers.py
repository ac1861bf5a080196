"""Readers of the schedule without leases: from day 20 on, they keep the budget."""

import numpy as np
import pytest
from support.budget_cases import service

from benchmarks.budget.__main__ import LEARNT, kept
from benchmarks.budget.game import play
from benchmarks.budget.trials import quiet
from recrawl_lab.worlds.versions import Versions

MOST_OFF = 0.02
"""Maximum difference of a week from the budget, as a share of it."""


@pytest.mark.dear
@pytest.mark.parametrize(("budget", "days_each"), [(20.0, 5.0), (20.0, 20.0), (80.0, 10.0)])
def test_days_and_weeks_without_leases_have_the_budget(budget, days_each):
    trial = quiet(round(budget * days_each), 1, LEARNT + 28.0, per_page=1 / days_each)
    figures = kept(play(trial, 1, gated=False))
    assert figures["worst_week"] <= MOST_OFF
    assert figures["worst_day"] <= figures["allowed_day"]


@pytest.mark.slow
def test_readers_who_report_an_hour_late_to_epochs_of_ten_minutes_have_the_budget(monkeypatch):
    monkeypatch.setattr("benchmarks.budget.game.STEP", 1 / 144)
    trial = quiet(160, 1, LEARNT + 14.0, per_page=0.25)
    figures = kept(
        play(trial, 1, gated=False, asks=lambda at: abs(24 * at - round(24 * at)) < 1e-4)
    )
    assert figures["worst_week"] <= MOST_OFF


@pytest.mark.slow
def test_weeks_of_a_running_service_without_leases_have_the_budget(database_url):
    """A reader comes each hour, and epochs come each six hours."""
    n, budget, days = 400, 40.0, LEARNT + 14
    world = quiet(n, 1, float(days), per_page=budget / n).world
    versions, by_day = Versions(world), np.zeros(days, int)
    with service(database_url, bandwidth=budget) as live:
        ids = live.register(*world.url)
        page_of = {page_id: page for page, page_id in enumerate(ids)}
        for hour in range(24 * days):
            if hour % 6 == 0:
                live.service.runner.run_once()
            now = live.clock.advance(hours=1).isoformat()
            due = [row["page_id"] for row in live.schedule(due_before=now)]
            pages = np.array([page_of[page_id] for page_id in due], np.int64)
            seen = versions.at(pages, np.full(len(due), (hour + 1) / 24)).tolist()
            crawls = [
                {"page_id": page_id, "observed_at": now, "digest": str(version)}
                for page_id, version in zip(due, seen, strict=True)
            ]
            if crawls:
                assert live.post("/observations", crawls).json()["accepted"] == len(due)
            by_day[hour // 24] += len(due)
    off = by_day[LEARNT:].reshape(-1, 7).mean(1) / budget - 1
    assert np.abs(off).max() <= MOST_OFF
