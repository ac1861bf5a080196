"""The worth of new pages: levels of URLs, digests that are known, pages that are held.

The column `held` of a page has the last level of its ladder while the page must wait. It has minus
that level while the page may be crawled and has no answer, and NULL else. A page without an
answer has no place in flight if its last crawl was an offer for a price.

**Locks.** The row of a host locks all levels of the host. These rows are locked by ascending id,
after states of pages, and before host queues. Pages that are admitted are locked without waiting.
"""

from abc import abstractmethod
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.model.arrays import Bools, Codes, Columns, Floats, Ints
from service.storage.dialect import Subject


@dataclass(frozen=True, slots=True, kw_only=True)
class NewLevels(Columns):
    """(N,) levels of ladders, by ascending level."""

    level: Ints
    parent: Ints
    """Level above; 0 for a host."""
    name: NDArray[np.object_]


@dataclass(frozen=True, slots=True, kw_only=True)
class UrlLevels(Columns):
    """(N,) levels with their counts, by ascending level."""

    level: Ints
    parent: Ints
    last: Bools
    """True for the shape of a last segment, which has pages."""
    n_first: Ints
    """First crawls with an answer, of the level and of all below."""
    n_new: Ints
    """Those that brought something new."""
    n_opened: Ints
    """Trials by levels directly below (`core.worth.counted`)."""
    n_opened_new: Ints
    n_in_flight: Ints
    """As in `core.worth.Levels`."""
    n_forbidden: Ints
    """First crawls that robots.txt forbade, of the level and of all below."""
    n_led: Ints
    """Those of `n_first` whose chains of redirects have no end yet, and that have no verdict."""
    rule: Codes
    """Rule of an operator (`core.worth`)."""
    stopped: Bools


WRITTEN = (
    *("n_first", "n_new", "n_opened", "n_opened_new", "n_in_flight", "n_forbidden", "n_led"),
    "stopped",
)
"""Columns of levels that a verdict writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldPages(Columns):
    """(N,) pages, and the last level of each."""

    page_id: Ints
    level: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldImportance(Columns):
    """(N,) last levels that pages wait in, and the importance of these pages together."""

    level: Ints
    importance: Floats


class ShownLevel(NamedTuple):
    """A level as a list of levels shows it."""

    level: int
    parent: int
    name: str
    n_first: int
    n_new: int
    n_opened: int
    n_opened_new: int
    n_in_flight: int
    n_forbidden: int
    n_led: int
    rule: int
    stopped: bool
    since: datetime

    @property
    def is_forbidden(self) -> bool:
        """True if robots.txt forbids most of the first crawls that brought nothing new."""
        return 2 * self.n_forbidden > self.n_first - self.n_new


class WorthStatements(Subject):
    """The statements on levels of URLs."""

    @abstractmethod
    def add_levels(self, levels: NewLevels, now: datetime) -> None:
        """Insert levels that are new."""

    @abstractmethod
    def lock_levels(self, level: Ints) -> UrlLevels:
        """Lock the hosts of levels; return the levels and all above them, as far as they exist."""

    @abstractmethod
    def save_levels(self, levels: UrlLevels, now: datetime) -> None:
        """Write the counts and verdicts of locked levels; a new verdict is since `now`."""

    @abstractmethod
    def unopened(self, level: Ints, limit: int) -> Ints:
        """Return last levels below that have no answer, and that pages wait in, at most `limit`."""

    @abstractmethod
    def fullest(self, level: int) -> Ints:
        """Return the last level below without an answer that has the most waiting pages.

        The newest of equally full ones comes first. At most `MOST_WEIGHED` are compared, and pages
        beyond `MOST_WAITING` do not count.
        """

    @abstractmethod
    def waiting_below(self, level: int, limit: int) -> Ints:
        """Return last levels below a level, or itself, that pages wait in, at most `limit`."""

    @abstractmethod
    def hold_again(self, level: int) -> HeldPages:
        """Hold the pages in and below a level that may be crawled and were not; return them."""

    @abstractmethod
    def hold_pages(self, page_id: Ints) -> None:
        """Let pages wait that may be crawled and have no answer."""

    @abstractmethod
    def waiting_pages(self, level: Ints, at_most: Ints) -> HeldPages:
        """Lock pages that wait in last levels, at most so many of each, the oldest first.

        Pages that another transaction has locked are left out.
        """

    @abstractmethod
    def admit_pages(self, page_id: Ints) -> None:
        """Let locked pages that wait be crawled."""

    @abstractmethod
    def hand_on(self, page_id: Ints) -> None:
        """Write the levels of pages to the pages to which they redirect, of the same database."""

    @abstractmethod
    def end_holds(self, page_id: Ints) -> None:
        """Forget the levels of pages, which have an answer."""

    @abstractmethod
    def held_pages(self, page_id: Ints) -> HeldPages:
        """Return those of some pages that wait or have no answer, with the signs of `held`.

        A page that was offered for a price has no place in flight, so its sign is that of waiting.
        """

    @abstractmethod
    def waiting_levels(self, after: int, limit: int) -> Ints:
        """Return the next last levels above `after` that pages wait in, ascending."""

    @abstractmethod
    def urls_of_levels(self, level: Ints) -> NDArray[np.object_]:
        """Return the URL of one waiting page of each last level that has no row of its own."""

    @abstractmethod
    def add_digests(self, digest: Ints) -> Ints:
        """Insert digests, ascending and distinct; return those that were new."""

    @abstractmethod
    def drop_digests(self, page_id: Ints) -> None:
        """Forget the digests of pages that are deleted, which may come again."""

    @abstractmethod
    def set_rule(self, level: int, rule: int, now: datetime) -> None:
        """Write the rule of an operator for a level."""

    @abstractmethod
    def n_sampled(self, since: datetime, pending_since: datetime) -> int:
        """Return the number of stopped last levels with a sample since an instant.

        Samples that wait for their crawls count for longer, if admitted since `pending_since`.
        """

    @abstractmethod
    def due_samples(self, before: datetime, limit: int) -> Ints:
        """Return stopped levels without a sample since an instant, the longest waiting first."""

    @abstractmethod
    def mark_sampled(self, level: Ints, now: datetime) -> None:
        """Write that levels had a sample."""

    @abstractmethod
    def date_samples(self, level: Ints, now: datetime) -> None:
        """Write that the samples of some last levels, as far as there were any, are of `now`."""

    @abstractmethod
    def shown_levels(
        self, after: str, limit: int, prefix: str, *, only_stopped: bool
    ) -> list[ShownLevel]:
        """Return the next levels by name after a name, whose names begin with `prefix`."""

    @abstractmethod
    def levels_above(self, level: Ints) -> list[ShownLevel]:
        """Return levels and all above them."""

    @abstractmethod
    def n_waiting(self, level: Ints) -> dict[int, int]:
        """Return the number of pages that wait in and below each of some levels, where any do."""

    @abstractmethod
    def n_in_flight(self, level: Ints) -> dict[int, int]:
        """Return the number of admitted pages without an answer in and below each level."""

    @abstractmethod
    def importance_held(self) -> HeldImportance:
        """Return the importance of the pages that are held before their first crawls, by level."""
