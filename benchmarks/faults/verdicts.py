"""What checks compare, the database after a campaign, and what they return."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

T = TypeVar("T")
Entry = tuple[int, int]
"""Page and instant (µs since 1970) of an entry of the log."""
EXAMPLES = 3
"""Violations of a check that are shown."""


class State(NamedTuple):
    """What the service keeps of a page."""

    n_observations: int
    n_changes: int
    last_crawl_at: int | None
    """µs since 1970."""


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
    """Pages of each published epoch."""
    pages: dict[str, int] = field(default_factory=dict)
    """Page of each URL."""


@dataclass(frozen=True)
class Verdict:
    """The result of one check."""

    name: str
    violations: list[str]
    checked: int
    """Cases that were looked at."""

    @property
    def examples(self) -> list[str]:
        return self.violations[:EXAMPLES]


def by(items: Iterable[T], name: str) -> Iterable[list[T]]:
    """Group items by an attribute, in their order."""
    groups: dict[object, list[T]] = defaultdict(list)
    for item in items:
        groups[getattr(item, name)].append(item)
    return groups.values()
