import pytest

from service.budget.keeper import Keeper


@pytest.fixture(autouse=True)
def no_timers(monkeypatch):
    """Keep keepers from giving back by themselves: their seconds stand still in these tests."""
    monkeypatch.setattr(Keeper, "_start_timer", lambda _: None)
