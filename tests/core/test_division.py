"""The division of a budget among refreshes, first crawls and requests that teach nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.checks import InvalidInput
from service.core.division import LEAST_PLANNED, Wanted, divided

AMOUNTS = st.floats(0, 1e9)


def test_refreshes_have_what_new_pages_and_retries_leave():
    parts = divided(100.0, Wanted(n_copies=500, n_waiting=8, first_crawls=8.0), 12.0, 0.5)
    assert parts.planned == 80.0
    assert (parts.budget, parts.overhead) == (100.0, 12.0)


def test_first_crawls_may_have_their_share_although_few_pages_wait_at_the_epoch():
    for first_crawls in (0.0, 3.0, 5_000.0):
        wants = Wanted(n_copies=500, n_waiting=int(first_crawls), first_crawls=first_crawls)
        assert divided(100.0, wants, 0.0, 0.2).first_crawls == pytest.approx(20.0)


def test_while_first_copies_wait_a_page_needs_one_refresh_a_day():
    wants = Wanted(n_copies=10, n_waiting=900, first_crawls=900.0)
    parts = divided(100.0, wants, 5.0, 0.5)
    assert (parts.planned, parts.first_crawls) == (10.0, 85.0)
    few = divided(100.0, wants._replace(n_waiting=20, first_crawls=20.0), 5.0, 0.5)
    assert few.planned == 75.0, "what new pages do not want is for refreshes"
    none = divided(100.0, wants._replace(n_waiting=0, first_crawls=0.0), 5.0, 0.5)
    assert (none.planned, none.first_crawls) == (95.0, 50.0)


def test_a_corpus_without_a_copy_has_all_for_first_crawls():
    parts = divided(100.0, Wanted(n_waiting=900, first_crawls=900.0), 0.0, 0.1)
    assert (parts.planned, parts.first_crawls) == (100.0, 100.0)


def test_minima_that_fit_into_the_budget_fit_into_the_plan():
    wants = Wanted(n_copies=500, n_waiting=900, first_crawls=900.0, minima=90.0)
    assert divided(100.0, wants, 30.0, 0.5).planned == 90.0
    assert divided(100.0, wants._replace(minima=101.0), 30.0, 0.5).planned == 100.0


@given(AMOUNTS, AMOUNTS, AMOUNTS, st.integers(1, 10**9), st.integers(0, 10**9), st.floats(0, 1))
def test_parts_fit_into_the_budget(budget, overhead, first, n_copies, n_waiting, first_share):
    wants = Wanted(n_copies, n_waiting, first)
    parts = divided(budget, wants, overhead, first_share)
    assert LEAST_PLANNED * budget <= parts.planned <= budget
    assert 0 <= parts.first_crawls <= budget
    spare = budget - overhead - min(first, parts.first_crawls)
    assert parts.planned == pytest.approx(max(spare, LEAST_PLANNED * budget))


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("budget", (-1.0, 0.0, 0.5)),
        ("budget", (float("inf"), 0.0, 0.5)),
        ("overhead", (1.0, float("nan"), 0.5)),
        ("first_share", (1.0, 0.0, 1.1)),
    ],
)
def test_what_is_no_amount_is_refused_by_name(name, values):
    budget, overhead, first_share = values
    with pytest.raises(InvalidInput) as refused:
        divided(budget, Wanted(), overhead, first_share)
    assert refused.value.name == name
