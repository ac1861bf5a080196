"""A kind of needs, and a condition that it finds."""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from service.model.words import span
from service.status.facts import Facts


class Found(NamedTuple):
    """A condition that holds."""

    subject: str
    since: datetime
    values: Mapping[str, Any] = {}
    """Values of the words in braces of `NeedKind.sentence` and `NeedKind.remedy`."""


class NeedKind(NamedTuple):
    """A kind of needs."""

    name: str
    find: Callable[[Facts], Iterator[Found]]
    """Function that yields what holds, the worst first."""
    sentence: str
    """The act, then the condition."""
    remedy: str
    """A command, or a request with its body."""
    of_many: str = ""
    """Remedy for more than `MOST_LISTED`; "": the same."""
    since_stays: bool = True
    """True if `Found.since` stays while the condition holds; a later one is another condition."""


def length_in_words(length: timedelta) -> str:
    """Return a length of time for a sentence."""
    return span(length.total_seconds())
