"""Amounts that a budget counts: crawls, bytes, seconds or money.

>>> read_amount("50 GB")
Amount(value=50000000000.0, unit='bytes')
>>> str(read_amount("20 h")), str(read_amount("USD 0.01"))
('72,000 seconds', '0.01 USD')
"""

import math
import re
from typing import NamedTuple, Protocol

from service.model.words import number

CRAWLS, BYTES, SECONDS = "crawls", "bytes", "seconds"
"""Units beside the currencies."""
EXAMPLES = "10000 crawls, 50 GB, 20 h or 30 USD"
"""Right amounts, for errors."""
DEFAULT = "none is set: 0.2 crawls a day for each page that has a copy"
"""Words for the budget that nobody has set."""
LEAST, MOST = 1e-9, 1e15
"""Bounds of a budget in its unit, a day."""

CURRENCIES = frozenset(
    (
        *("AED", "ARS", "AUD", "BDT", "BGN", "BRL", "CAD", "CHF", "CLP", "CNY", "COP", "CZK"),
        *("DKK", "EGP", "EUR", "GBP", "HKD", "HUF", "IDR", "ILS", "INR", "ISK", "JPY", "KES"),
        *("KRW", "KWD", "KZT", "MAD", "MXN", "MYR", "NGN", "NOK", "NZD", "PEN", "PHP", "PKR"),
        *("PLN", "QAR", "RON", "RSD", "RUB", "SAR", "SEK", "SGD", "THB", "TRY", "TWD", "TZS"),
        *("UAH", "UGX", "USD", "UYU", "VND", "XAF", "XOF", "ZAR"),
    )
)
"""Codes of ISO 4217 that amounts may have."""
_STEPS = {"k": 3, "m": 6, "g": 9, "t": 12, "p": 15}
_SPANS = {"s": 1, "sec": 1, "second": 1, "min": 60, "minute": 60, "h": 3_600, "hour": 3_600}
_SPANS |= {"d": 86_400, "day": 86_400}
_SIZE = re.compile(r"(?:([kmgtp])(i?))?(?:b|byte|bytes)", re.IGNORECASE)
_AMOUNT = re.compile(r"([0-9][0-9,_]*(?:\.[0-9]+)?|\.[0-9]+)(e[+-]?[0-9]{1,3})?\s*([A-Za-z]+)")
_PRICE = re.compile(r"([A-Za-z]{3})\s*([0-9.,]+(?:e[+-]?[0-9]{1,3})?)")


def is_money(unit: str) -> bool:
    """Return whether a unit is a currency."""
    return unit in CURRENCIES


class Amount(NamedTuple):
    """A number of crawls, of bytes, of seconds, or of a currency."""

    value: float
    unit: str
    """`CRAWLS`, `BYTES`, `SECONDS`, or a code of `CURRENCIES`."""

    def __str__(self) -> str:
        return f"{self.value:,.12g} {self.unit}"

    @property
    def is_money(self) -> bool:
        """True for an amount of a currency."""
        return is_money(self.unit)


class HasUnit(Protocol):
    """A budget as far as its unit matters."""

    @property
    def unit(self) -> str:
        """Unit of the budget, which an operator may change."""


NO_BUDGET: HasUnit = Amount(math.inf, CRAWLS)

TYPICAL = {CRAWLS: 1.0, BYTES: 100_000.0, SECONDS: 1.0}
"""Cost of a crawl while no crawl has reported any, by unit."""
TYPICAL_PRICE = 0.001
"""The same in a currency."""


_FINE = {CRAWLS: 1.0, BYTES: 1.0, SECONDS: 1e3}
_FINE_MONEY = 1e6


def fine_units(unit: str) -> float:
    """Return the number of fine units in a unit, so that sums of the history are whole numbers.

    They are bytes, milliseconds, and millionths of a currency.
    """
    return _FINE.get(unit, _FINE_MONEY)


def typical_cost(unit: str) -> float:
    """Return the cost of a crawl that counts while no crawl has reported its cost."""
    return TYPICAL.get(unit, TYPICAL_PRICE)


def read_amount(text: str) -> Amount:
    """Return the amount that a text states; a currency may stand before its number.

    Raises
    ------
    ValueError
        The text has no number, or a unit that is not known. The message has right examples.
    """
    stripped = text.strip()
    priced = _PRICE.fullmatch(stripped)
    match = _AMOUNT.fullmatch(f"{priced[2]} {priced[1]}" if priced else stripped)
    if match is None:
        raise ValueError(f"{text[:60]!r} is no amount; write a number and a unit, as in {EXAMPLES}")
    number = float(match[1].replace(",", "").replace("_", "") + (match[2] or ""))
    if not math.isfinite(number):
        raise ValueError(f"{text[:60]!r} is too large; write a number and a unit, as in {EXAMPLES}")
    return _in_unit(number, match[3])


def _in_unit(number: float, word: str) -> Amount:
    """Return a number of the unit that a word names; raise `ValueError` for another word."""
    lower = word.lower()
    if lower in ("crawl", CRAWLS):
        return Amount(number, CRAWLS)
    if word.upper() in CURRENCIES:
        return Amount(number, word.upper())
    size = _SIZE.fullmatch(word)
    if size is not None:
        power = _STEPS.get((size[1] or "").lower(), 0)
        factor = 2.0 ** (10 * power // 3) if size[2] else 10.0**power
        return Amount(number * factor, BYTES)
    span = _SPANS.get(lower) or _SPANS.get(lower.removesuffix("s"))
    if span is not None:
        return Amount(number * span, SECONDS)
    raise ValueError(f"{word[:30]!r} is no unit of a budget; write one as in {EXAMPLES}")


def read_budget(text: str) -> Amount:
    """Return the amount a day that a text states; raise `ValueError` as `read_amount`.

    Raise it also for an amount below `LEAST` or above `MOST`.
    """
    day = re.sub(r"\s*(/|per|a)\s*day$", "", text.strip(), flags=re.IGNORECASE)
    amount = read_amount(day)
    if not LEAST <= amount.value <= MOST:
        raise ValueError(
            f"{amount} a day is no budget; write from {number(LEAST)} to {number(MOST)}, "
            f"as in {EXAMPLES}"
        )
    return amount


def price_in(price: "float | str", currency: str | None) -> float:
    """Return a reported price as a number of the budget's currency; NaN without one in force.

    A number without a currency is one of the budget's.

    Raises
    ------
    ValueError
        The text is no price, or has another currency than the budget.
    """
    if not isinstance(price, str):
        if not 0 <= price < math.inf:
            raise ValueError(f"{price} is no price; send a number from 0, or a text as USD 0.01")
        return float(price) if currency else math.nan
    try:
        amount = read_amount(price)
    except ValueError:
        amount = Amount(0.0, CRAWLS)
    if not amount.is_money:
        raise ValueError(f"{price[:60]!r} is no price; send one such as USD 0.01")
    if currency and amount.unit != currency:
        raise ValueError(
            f"{price[:60]!r} is not in {currency}, the currency of the budget; "
            f"send one such as {currency} 0.01"
        )
    return amount.value if currency else math.nan
