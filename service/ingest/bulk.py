"""Acts on many pages, in bounded transactions that may be repeated.

An act reads a block of selected pages, then changes the block in one transaction. An act that is
sent again changes only the pages that still differ.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple, Protocol

import numpy as np

from recrawl_client.wire.pages import MOST_TAGS
from service.ingest.bounds import CROSSING
from service.ingest.deletions import delete
from service.leases.listing import Selection, list_pages
from service.leases.settle import LeaseSettler
from service.model.arrays import Ints, distinct
from service.model.domain import PagePatch
from service.model.listing import TagPatch
from service.storage import Store, Transaction
from service.storage.clock import Clock
from service.storage.pages.tagging import crowded, patch_tags

BLOCK = 5_000
"""Maximum pages that one transaction changes."""


class Refusal(NamedTuple):
    """Pages, ascending, that an act leaves as they are, with the reason."""

    page_id: Ints
    field: str
    reason: str


class Done(NamedTuple):
    """The outcome of an act on a block of pages."""

    changed: Ints
    """Pages that changed, ascending."""
    refused: Sequence[Refusal] = ()


class Act(Protocol):
    """A change of pages, and what a dry run of it refuses."""

    @property
    def name(self) -> str:
        """Name of the act: `change`, `delete` or `recrawl`."""

    def refusals(self, tx: Transaction, page_id: Ints) -> Sequence[Refusal]:
        """Return the pages that the act would refuse."""

    def apply(self, tx: Transaction, page_id: Ints, now: datetime) -> Done:
        """Change a block of ascending pages."""


@dataclass(frozen=True, slots=True)
class Patch:
    """New settings and tags of pages."""

    patch: PagePatch
    tags: TagPatch
    name: str = "change"

    def refusals(self, tx: Transaction, page_id: Ints) -> Sequence[Refusal]:
        """Return the pages whose bounds would cross, then those with too many tags."""
        crossed = tx.contradicted(page_id, self.patch)
        bound = "max_crawl_rate" if self.patch.min_crawl_rate is None else "min_crawl_rate"
        others = np.setdiff1d(page_id, crossed, assume_unique=True)
        full = crowded(tx, others, self.tags) if self.tags.add else others[:0]
        too_many = f"the page would have over {MOST_TAGS} tags; remove some"
        each = Refusal(crossed, bound, CROSSING), Refusal(full, "add_tags", too_many)
        return [refusal for refusal in each if len(refusal.page_id)]

    def apply(self, tx: Transaction, page_id: Ints, now: datetime) -> Done:
        """Change the settings, then the tags; a refused page keeps both."""
        locked = tx.lock_page_rows(page_id)
        # judged again under the lock, because bounds and tags may have changed since the list
        refused = list(self.refusals(tx, locked))
        free = np.setdiff1d(locked, _pages(refused), assume_unique=True)
        tagged = patch_tags(tx, free, self.tags)
        changed = tx.change_many(free, self.patch, now)
        return Done(distinct(np.concatenate([changed, tagged.changed])), refused)


@dataclass(frozen=True, slots=True)
class Delete:
    """The end of pages, with their states and logs."""

    name: str = "delete"

    def refusals(self, tx: Transaction, page_id: Ints) -> Sequence[Refusal]:  # noqa: ARG002
        """Return nothing, because any page may be deleted."""
        return ()

    def apply(self, tx: Transaction, page_id: Ints, now: datetime) -> Done:
        """Delete the pages that are still there."""
        return Done(delete(tx, page_id, now))


@dataclass(frozen=True, slots=True)
class Recrawl:
    """Crawls as soon as politeness allows, before the other pages of each host."""

    settler: LeaseSettler
    name: str = "recrawl"

    def refusals(self, tx: Transaction, page_id: Ints) -> Sequence[Refusal]:  # noqa: ARG002
        """Return nothing, because any page may be crawled."""
        return ()

    def apply(self, tx: Transaction, page_id: Ints, now: datetime) -> Done:
        """Request crawls and queue the pages; a page with an open request keeps its place."""
        requested = tx.request_many(page_id, now)
        self.settler.queue_requested(tx, requested, now)
        return Done(requested)


Note = Callable[[Transaction, Act, int], None]
"""Function that receives each transaction with its act and the number of changed pages. In the same
transaction it can record the caller."""


def no_note(_: Transaction, __: Act, ___: int) -> None:
    """Write nothing down."""


@dataclass(slots=True)
class BulkOutcome:
    """The outcome of an act on all selected pages so far."""

    n_matched: int = 0
    n_changed: int = 0
    refused: list[tuple[int, Refusal]] = field(default_factory=list)
    """Refused pages, with their position among the selected pages."""
    after: int | None = 0
    """page_id after which the act goes on; None at the end."""

    def add(self, page_id: Ints, done: Done) -> None:
        """Add the outcome of a block."""
        for refusal in done.refused:
            rows = np.searchsorted(page_id, refusal.page_id) + self.n_matched
            self.refused += ((row, refusal) for row in rows.tolist())
        self.n_matched += len(page_id)
        self.n_changed += len(done.changed)


def act_on_selected(
    store: Store,
    selection: Selection,
    act: Act,
    now: Clock,
    after: int = 0,
    *,
    dry_run: bool = False,
    note: Note = no_note,
    enough: Callable[[], bool] = lambda: False,
) -> BulkOutcome:
    """Act on the selected pages above `after`, block by block, until `enough` is true."""
    outcome, at = BulkOutcome(after=after), now()
    while outcome.after is not None and not (outcome.n_matched and enough()):
        with store.begin(write=False) as tx:
            pages, following = list_pages(tx, outcome.after, BLOCK, selection, at)
            refused = act.refusals(tx, pages.page_id) if dry_run and len(pages) else ()
        done = Done(pages.page_id[:0], refused)
        if len(pages) and not dry_run:
            done = act_on(store, pages.page_id, act, at, note)
        outcome.add(pages.page_id, done)
        outcome.after = following
    return outcome


def act_on(store: Store, page_id: Ints, act: Act, now: datetime, note: Note = no_note) -> Done:
    """Act on ascending pages in one transaction."""
    with store.begin() as tx:
        done = act.apply(tx, page_id, now)
        note(tx, act, len(done.changed))
    return done


def _pages(refused: Sequence[Refusal]) -> Ints:
    return np.concatenate([np.zeros(0, np.int64), *(each.page_id for each in refused)])
