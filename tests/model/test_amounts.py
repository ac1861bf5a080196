"""Amounts of budgets: what an operator writes, and the errors that say what to write."""

import math

import pytest

from service.model.amounts import Amount, price_in, read_amount, read_budget


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("10000 crawls", Amount(10_000.0, "crawls")),
        ("10,000 crawls", Amount(10_000.0, "crawls")),
        ("1e6 crawls", Amount(1e6, "crawls")),
        ("50 GB", Amount(5e10, "bytes")),
        ("50GB", Amount(5e10, "bytes")),
        ("2 GiB", Amount(2.0 * 2**30, "bytes")),
        ("1.5 TB", Amount(1.5e12, "bytes")),
        ("7 kB", Amount(7_000.0, "bytes")),
        ("20 h", Amount(72_000.0, "seconds")),
        ("90 min", Amount(5_400.0, "seconds")),
        ("2 hours", Amount(7_200.0, "seconds")),
        ("30 s", Amount(30.0, "seconds")),
        ("30 USD", Amount(30.0, "USD")),
        ("USD 0.01", Amount(0.01, "USD")),
        ("eur 5", Amount(5.0, "EUR")),
    ],
)
def test_an_amount_is_a_number_and_a_unit(text, amount):
    assert read_amount(text) == amount


@pytest.mark.parametrize(
    "text", ["50", "GB", "", "-5 GB", "nan GB", "inf USD", "5 GB 3", "1e999 s"]
)
def test_a_text_without_a_number_and_a_unit_is_refused_with_right_examples(text):
    with pytest.raises(ValueError, match=r"as in 10000 crawls, 50 GB, 20 h or 30 USD$"):
        read_amount(text)


@pytest.mark.parametrize("text", ["5 pages", "5 XYZ", "5 GBit", "5 fortnights"])
def test_an_unknown_unit_is_refused_by_its_name(text):
    with pytest.raises(ValueError, match=rf"'{text.split()[1]}' is no unit .* 50 GB"):
        read_amount(text)


@pytest.mark.parametrize("text", ["30 USD a day", "30 USD/day", "30 USD per day", "30 USD"])
def test_a_budget_may_say_that_it_is_a_day(text):
    assert read_budget(text) == Amount(30.0, "USD")


def test_a_budget_of_nothing_is_refused():
    with pytest.raises(ValueError, match=r"^0 bytes a day is no budget"):
        read_budget("0 GB")


def test_a_price_is_in_the_currency_of_the_budget():
    assert price_in("USD 0.01", "USD") == price_in("0.01 USD", "USD") == price_in(0.01, "USD")
    assert math.isnan(price_in("USD 0.01", None))
    for wrong in ("EUR 0.01", "0.01", "5 GB", -1, math.nan, math.inf):
        with pytest.raises(ValueError, match=r"USD 0\.01"):
            price_in(wrong, "USD")
