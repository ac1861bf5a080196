"""A hold: the reason why a page is not crawled now, in words and values. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from recrawl_client.wire.pages import HoldKind

NOTHING = "Nothing to do"
"""Begin of a sentence that asks for no act."""

AnswerT = TypeVar("AnswerT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """The reason why a page is not crawled now."""

    kind: HoldKind
    cause: str
    """Clause on the reason."""
    remedy: str = ""
    """Act that helps; empty: none is needed."""
    until: datetime | None = None
    """Earliest time of the crawl by this reason; None: it is not known."""
    by: str | None = None
    """Worker, pauser, host or URL group that holds the page; None: nobody."""
    n_before: int = 0
    """Pages of the host queue that come before."""

    @property
    def sentence(self) -> str:
        """The reason as a sentence without a full stop, which begins with what to do."""
        return f"{self.to_do}: {self.cause}"

    @property
    def to_do(self) -> str:
        """The act that helps, in words."""
        return f"{self.remedy[:1].upper()}{self.remedy[1:]}" if self.remedy else NOTHING


def first(answers: Iterable[AnswerT | None]) -> AnswerT | None:
    """Return the first answer that is not None."""
    return next((answer for answer in answers if answer is not None), None)
