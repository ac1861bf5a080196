"""Claims of the papers, each with the paper's figure, ours, a tolerance and the verdict.

A `Value` compares one number with the paper's number. An `Order` compares the order of numbers
with the paper's order. The verdict follows from the numbers, never from a sentence.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal, NamedTuple

from typing_extensions import override

AGREES, DIFFERS = "agrees", "differs"


def number(value: float) -> str:
    """Return a number in three digits.

    >>> number(0.12345), number(4043.0), number(float("inf"))
    ('0.123', '4,043', 'infinite')
    """
    if abs(value) == float("inf"):
        return "infinite"
    return f"{value:,.0f}" if abs(value) >= LONG else f"{value:.3g}"


LONG = 1_000
"""Numbers from which all digits before the point are shown."""


class Tolerance(NamedTuple):
    """Largest difference of our figure from the paper's."""

    kind: Literal["share", "factor", "distance"]
    amount: float

    @property
    def text(self) -> str:
        """The tolerance in words."""
        if self.kind == "factor":
            return f"factor {self.amount:g}"
        return f"±{100 * self.amount:g} %" if self.kind == "share" else f"±{self.amount:.2g}"

    def admits(self, measured: float, stated: float) -> bool:
        """Return whether our figure is near enough to the paper's."""
        if self.kind == "factor":
            return stated / self.amount <= measured <= stated * self.amount
        scale = abs(stated) if self.kind == "share" else 1.0
        return abs(measured - stated) <= self.amount * scale


def share(part: float) -> Tolerance:
    """Return a tolerance of a share of the paper's figure.

    >>> share(0.1).text, share(0.1).admits(4.6, 5.0), share(0.1).admits(3.4, 5.0)
    ('±10 %', True, False)
    """
    return Tolerance("share", part)


def factor(most: float) -> Tolerance:
    """Return a tolerance of a factor, for words such as "comparable".

    >>> factor(2.0).text, factor(2.0).admits(1.9, 1.0), factor(2.0).admits(0.4, 1.0)
    ('factor 2', True, False)
    """
    return Tolerance("factor", most)


def distance(most: float) -> Tolerance:
    """Return a tolerance in the unit of the figure.

    >>> distance(0.05).text, distance(0.05).admits(0.04, 0.0), distance(0.05).admits(0.06, 0.0)
    ('±0.05', True, False)
    """
    return Tolerance("distance", most)


def apart(values: dict[str, float], *names: str) -> tuple[dict[str, float], dict[str, float]]:
    """Return the numbers with these names, and the others.

    >>> apart({"a": 1.0, "b": 2.0, "c": 3.0}, "b")
    ({'b': 2.0}, {'a': 1.0, 'c': 3.0})
    """
    others = {name: value for name, value in values.items() if name not in names}
    return {name: values[name] for name in names}, others


@dataclass(frozen=True, slots=True, kw_only=True)
class Check(ABC):
    """One claim of a paper beside our numbers."""

    claim: str
    place: str
    """Paper with section and figure."""

    @property
    @abstractmethod
    def paper(self) -> str:
        """The paper's figure or order."""

    @property
    @abstractmethod
    def ours(self) -> str:
        """Our figure, or our numbers in the paper's order."""

    @property
    @abstractmethod
    def tolerance(self) -> str:
        """Condition of agreement."""

    @property
    @abstractmethod
    def agrees(self) -> bool:
        """True if our numbers satisfy the condition."""

    @property
    def verdict(self) -> str:
        """The word for `agrees`."""
        return AGREES if self.agrees else DIFFERS

    def row(self) -> dict[str, str]:
        """Return the texts of the claim, by column."""
        names = ("claim", "place", "paper", "ours", "tolerance", "verdict")
        return {name: str(getattr(self, name)) for name in names}

    def __str__(self) -> str:
        return f"{self.claim} (paper {self.paper}, ours {self.ours}, {self.tolerance})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Value(Check):
    """A claim with a number.

    >>> five_fold = Value(claim="…", place="K19 9.5", stated=5.0, measured=3.4, within=share(0.1))
    >>> five_fold.verdict
    'differs'
    """

    stated: float
    """The paper's figure."""
    measured: float
    within: Tolerance
    unit: str = ""

    @property
    @override
    def paper(self) -> str:
        return self._text(self.stated)

    @property
    @override
    def ours(self) -> str:
        return self._text(self.measured)

    @property
    @override
    def tolerance(self) -> str:
        return self.within.text

    @property
    @override
    def agrees(self) -> bool:
        return self.measured == self.stated or self.within.admits(self.measured, self.stated)

    def _text(self, value: float) -> str:
        return f"{number(value)} {self.unit}".rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Order(Check):
    """A claim of an order, or of a sign beside 0.

    >>> first = Order(claim="A is better than B", place="…", ascending=({"A": 1.2}, {"B": 1.1}))
    >>> first.paper, first.ours, first.verdict
    ('A < B', 'A 1.2; B 1.1', 'differs')
    """

    ascending: tuple[dict[str, float], ...]
    """Groups of named numbers; each number of a group is less than each of the next."""
    margin: float = 0.0
    """Share by which a number must exceed those before it, for words such as "significantly"."""

    @property
    @override
    def paper(self) -> str:
        return " < ".join(", ".join(group) for group in self.ascending)

    @property
    @override
    def ours(self) -> str:
        """Our numbers in the paper's order, whether they are in that order or not."""
        return "; ".join(
            ", ".join(f"{name} {number(value)}" for name, value in group.items())
            for group in self.ascending
        )

    @property
    @override
    def tolerance(self) -> str:
        return f"order, by over {self.margin:.0%}".replace("%", " %") if self.margin else "order"

    @property
    @override
    def agrees(self) -> bool:
        pairs = zip(self.ascending, self.ascending[1:], strict=False)
        return all(
            max(low.values()) * (1 + self.margin) < min(high.values()) for low, high in pairs
        )
