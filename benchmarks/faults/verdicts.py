"""Values that checks compare, the final database, and verdicts."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

T = TypeVar("T")
Entry = tuple[int, int]
"""Page and instant (µs since 1970) of an entry of the log."""
EXAMPLES = 3
"""Maximum number of violations to show of a check."""


class State(NamedTuple):
    """The service's counts and last crawl of a page."""

    n_observations: int
    n_changes: int
    last_crawl_at: int | None
    """Instant of the last crawl, µs since 1970."""


class Logged(NamedTuple):
    """One crawl in the log."""

    page_id: int
    at: int
    evidence: bool
    changed: bool


@dataclass(frozen=True)
class Final:
    """The database after the campaign."""

    crawls: list[Logged] = field(default_factory=list)
    pings: list[Entry] = field(default_factory=list)
    states: dict[int, State] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)
    """Number of pages of each published epoch."""
    pages: dict[str, int] = field(default_factory=dict)
    """page_id of each URL."""


@dataclass(frozen=True)
class Verdict:
    """The result of one check."""

    name: str
    violations: list[str]
    checked: int
    """Number of cases checked."""

    @property
    def examples(self) -> list[str]:
        return self.violations[:EXAMPLES]


def by(items: Iterable[T], name: str) -> Iterable[list[T]]:
    """Return lists of the items with equal attributes, in their order."""
    groups: dict[object, list[T]] = defaultdict(list)
    for item in items:
        groups[getattr(item, name)].append(item)
    return groups.values()
