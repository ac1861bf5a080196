"""States of pages in lists, on columns, and lists of the pages in a state.

A page has one state:

| state | pages |
| --- | --- |
| `never_crawled` | no crawl was reported |
| `retired` | gone, or the target of a redirect, and due only by a ping or request (`leases.due`) |
| `gone` | the last answer was that the page is gone |
| `no_content` | no content in three crawls in a row or more: no share in the allocation |
| `failing` | no content in the last crawl, or the last two; or a price in its place |
| `active` | all others |

A list filters by the columns that decide; this module then applies the rule. Further words select
pages of any state. `overdue` pages are due before now. `moved` pages were redirected for good at
their last crawl. The site or robots.txt refused the last crawl of `refused` pages. The last lease
of an `unfinished` page ended without a report. A `set_aside` page is tried daily, after several
such leases in a row (`leases.unfinished`).
"""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.leases.due import due_at, given_up
from service.leases.open_due import opened
from service.leases.unfinished import unreported
from service.model.arrays import NO_TIME, Bools, Ints, instant
from service.model.columns import DueColumns
from service.model.errors import InvalidField
from service.model.listing import ListedPages, ListedPart, PageFilter, ShownPages, Unfinished
from service.model.outcomes import OFFER, Outcome, lacks_content
from service.model.unfinished import SET_ASIDE_AFTER
from service.storage import Transaction

MOST_RULED = 20_000
"""Maximum pages of one reading to which this module applies the rule."""

WALK_BLOCK = 10_000
"""Maximum pages that a list reads at a time."""

MARGIN = 1.1
"""Number of pages that a further reading takes, in those that would do at the share so far."""

MOST_COUNTED = 1_000_000
"""Maximum candidates that an exact count scans."""
COUNT_BLOCK = 20_000
"""Maximum pages of one reading of a count."""
COUNTED_WITHIN_S = 1.6
"""Duration that an exact count may be expected to take, seconds; it is refused beyond."""
TRIED_S = 0.25
"""Time after which a count is judged by the share that it has counted, seconds."""

SAMPLES, SAMPLE = 16, 500
"""Number of places at which an estimate counts pages, and number of candidates at each."""

Begin = Callable[[], AbstractContextManager[Transaction]]


class PageState(StrEnum):
    """The state of a page."""

    never_crawled = "never_crawled"
    retired = "retired"
    gone = "gone"
    no_content = "no_content"
    failing = "failing"
    active = "active"


OVERDUE, MOVED, REFUSED = "overdue", "moved", "refused"
UNFINISHED = {"unfinished": 1, "set_aside": SET_ASIDE_AFTER}
"""Words that select pages by their leases without a report, and the least number in a row."""

COLUMNS_OF: dict[str, dict[str, Any]] = {
    PageState.never_crawled: {"crawled": False},
    PageState.retired: {"may_retire": True},
    PageState.gone: {"crawled": True, "gone": True},
    PageState.no_content: {"crawled": True, "gone": False, "no_content": True},
    PageState.failing: {"crawled": True, "gone": False, "failing": True, "no_content": False},
    PageState.active: {"crawled": True, "gone": False, "failing": False},
    OVERDUE: {},
    MOVED: {"moved": True},
    REFUSED: {"gone": False, "failing": True},
    **{word: {} for word in UNFINISHED},
}
"""Values of columns that each state needs, by which the store filters."""
NEEDS_RULE = frozenset({*PageState, OVERDUE, REFUSED} - {PageState.active})
"""States for which the values of columns are not enough."""
RULED = frozenset({*PageState, OVERDUE, MOVED, REFUSED})
"""States that follow from the columns of due times."""
EVERY_PAGE = PageFilter()


class Selection(NamedTuple):
    """Pages that a caller selects: by columns, and by state."""

    only: PageFilter
    state: str | None = None
    """A `PageState`, `OVERDUE`, `MOVED`, `REFUSED`, or a word of `UNFINISHED`; None: all states."""

    def columns(self, now: datetime) -> PageFilter:
        """Return the filter of the store, with the columns that the state needs."""
        if self.state is None:
            return self.only
        if (least := UNFINISHED.get(self.state)) is not None:
            return replace(self.only, unfinished=Unfinished(least, now))
        return replace(self.only, **COLUMNS_OF[self.state])

    @property
    def by_index(self) -> bool:
        """True if every candidate is selected."""
        filters = (getattr(self.only, name) for name in PageFilter.__dataclass_fields__)
        return self.state is None and sum(value is not None for value in filters) <= (
            self.only.host is not None or self.only.tag is not None
        )

    @property
    def by_rule(self) -> bool:
        """True if the rule alone decides (`ruled`), without a filter by the store."""
        return self.only == EVERY_PAGE and self.state in RULED

    def of(self, pages: DueColumns, now: datetime) -> Bools:
        """Return which of the pages, which the store has filtered, are selected."""
        return self.ruled(pages, now) if self.state in NEEDS_RULE else np.ones(len(pages), np.bool_)

    def ruled(self, pages: DueColumns, now: datetime) -> Bools:
        """Return which of any pages are in the state, one of `RULED`."""
        if self.state == OVERDUE:
            overdue: Bools = due_at(pages) < instant(now)
            return overdue
        if self.state == MOVED:
            return np.asarray(pages.outcome == Outcome.moved, np.bool_)
        if self.state == REFUSED:
            return refused(pages)
        return np.asarray(states_of(pages) == self.state, np.bool_)


def states_of(pages: DueColumns) -> NDArray[np.object_]:
    """Return the state of each page."""
    gone, n_failures = pages.gone, pages.n_failures
    retired = (gone | given_up(pages)) & np.isnat(due_at(pages))
    lacking, never = lacks_content(gone, n_failures), np.isnat(pages.last_crawl_at) & ~retired
    conditions = [never, retired, gone, lacking, (n_failures > 0) | (pages.outcome == OFFER)]
    names = [state.value for state in PageState]
    place = np.select(conditions, range(len(conditions)), len(conditions))
    state: NDArray[np.object_] = np.array(names, object)[place]
    return state


def refused(pages: DueColumns) -> Bools:
    """Return which pages are there, and were refused at their last crawl."""
    of_site: Bools = ~pages.gone & (pages.n_failures > 0) & (pages.outcome == Outcome.refused)
    return of_site


def copy_states(pages: DueColumns, redirects_to: Ints) -> NDArray[np.object_]:
    """Return the states of pages for those who hold copies of them.

    There are two states more than in lists. A `moved` page is gone because it was redirected. The
    last crawl of a `refused` page was refused by its site or its robots.txt.
    """
    states = states_of(pages)
    states[refused(pages)] = REFUSED
    # the target of a redirect need not be registered
    moved = (redirects_to > 0) | (pages.outcome == Outcome.moved)
    states[pages.gone & moved] = MOVED
    return states


def advises_no_fetch(states: NDArray[np.object_]) -> Bools:
    """Return the states in which a fetch would bring nothing."""
    useless: Bools = np.logical_or.reduce([states == state for state in USELESS])
    return useless


USELESS = (PageState.gone.value, PageState.retired.value, MOVED, REFUSED)


def list_pages(
    tx: Transaction, after: int, limit: int, selection: Selection, now: datetime
) -> ListedPart:
    """Return the selected pages above `after`, at most `limit`.

    Because `MOST_RULED` and the store limit the pages scanned, an empty part may not be the last.
    """
    if selection.state not in NEEDS_RULE:
        return tx.list_pages(after, limit, selection.columns(now))
    parts: list[ListedPages] = []
    n_read, n_found, size, place = 0, 0, limit, after
    while True:
        size = min(size, WALK_BLOCK)
        part = tx.list_pages(place, size, selection.columns(now))
        parts.append(part.pages.where(selection.of(part.pages, now)))
        limit -= len(parts[-1])
        n_found += len(parts[-1])
        n_read += len(part.pages)
        if limit < 0:
            parts[-1] = parts[-1].take(slice(limit))
            return ListedPart(ListedPages.concatenate(parts), int(parts[-1].page_id[-1]))
        if part.after is None or not limit or len(part.pages) < size or n_read >= MOST_RULED:
            return ListedPart(ListedPages.concatenate(parts), part.after)
        enough = MARGIN * limit * n_read / n_found if n_found else np.inf
        place, size = part.after, int(min(2 * size, max(enough, size / 4)))


def shown(tx: Transaction, pages: ListedPages, now: datetime) -> ShownPages:
    """Return the pages of a list with their leases that ended without a report.

    Pages that wait in a closure of their host wait until the opening.
    """
    n, until = np.zeros(len(pages), np.int64), np.full(len(pages), NO_TIME)
    some = unreported(tx, pages, now)
    n[some.row], until[some.row] = some.standing.n, some.standing.until
    if pages.hours is not None:
        at = np.fmax(until, np.where(due_at(pages) < instant(now), instant(now), NO_TIME))
        opens = opened(pages.hours, at)
        until = np.where(opens > at, opens, until)
    return ShownPages(**pages.arrays(), n_unfinished=n, until=until)


class Count(NamedTuple):
    """The number of selected pages."""

    n: int
    exact: bool


def count(
    begin: Begin,
    selection: Selection,
    now: datetime,
    *,
    exact: bool,
    clock: Callable[[], float] = time.monotonic,
) -> Count:
    """Return the number of selected pages.

    An exact count scans at most `MOST_COUNTED` candidates. With more, and without `exact`, the
    count is an estimate from samples of candidates.

    Raises
    ------
    InvalidField
        An exact count would take too long.
    """
    with begin() as tx:
        # one more than an exact count scans shows whether there are more
        n, _ = tx.candidates(0, MOST_COUNTED + 1, selection.only)
    if n <= MOST_COUNTED and selection.by_index:
        return Count(n, exact=True)
    if n <= MOST_COUNTED and (exact or n <= SAMPLES * SAMPLE):
        patience = Patience(n, clock if exact else lambda: 0.0)
        return Count(sum(_counts(begin, selection, now, patience)), exact=True)
    with begin() as tx:
        return Count(_estimated(tx, n, selection, now), exact=False)


class Patience:
    """The time that a count may take."""

    def __init__(self, n: int, clock: Callable[[], float]) -> None:
        self.n = n
        self.clock = clock
        self.began = clock()

    def check(self, share: float) -> None:
        """Raise `InvalidField` if the whole takes too long, by the share that is counted."""
        took_s = self.clock() - self.began
        if took_s >= TRIED_S and took_s > COUNTED_WITHIN_S * share:
            raise InvalidField(
                "count",
                f"an exact count of the {self.n:,} pages that it must look at would take about "
                f"{took_s / share:.0f} s, and may take 2 s; send count=estimate, or select fewer "
                "pages by host or tag",
            )


def _counts(begin: Begin, selection: Selection, now: datetime, patience: Patience) -> Iterator[int]:
    """Yield the numbers of selected pages of all parts, each of a short transaction of its own."""
    after: int | None = 0
    n_read = 0
    while after is not None:
        with begin() as tx:
            n_here, n_selected, after = _counted(tx, after, selection, now)
        n_read += n_here
        yield n_selected
        if after is not None and n_read:
            patience.check(min(n_read / patience.n, 1.0))


def _counted(
    tx: Transaction, after: int, selection: Selection, now: datetime
) -> tuple[int, int, int | None]:
    """Return candidates of the next part, selected ones among them, and where to go on."""
    n_here, last = tx.candidates(after, COUNT_BLOCK, selection.only)
    following = last if n_here == COUNT_BLOCK else None
    if selection.by_rule:  # these columns are few, and no text
        n = int(selection.ruled(tx.due_block(after, last), now).sum()) if n_here else 0
        return n_here, n, following
    n, place = 0, after if n_here else None
    while place is not None:
        part = tx.list_pages(place, COUNT_BLOCK, selection.columns(now), last=last)
        n += int(selection.of(part.pages, now).sum())
        place = part.after
    return n_here, n, following


def _estimated(tx: Transaction, n: int, selection: Selection, now: datetime) -> int:
    """Return the share of selected candidates at evenly spaced places, times all candidates.

    With more candidates than were counted, their number follows from the spacing of the samples.
    """
    space = tx.page_ranges()
    n_sampled = n_selected = span = 0
    for offset in np.linspace(0, space.size, SAMPLES, endpoint=False).astype(np.int64).tolist():
        place = space.id_at(offset)
        n_here, end = tx.candidates(place, SAMPLE, selection.only)
        if not n_here:
            continue
        pages = tx.list_pages(place, SAMPLE, selection.columns(now), last=end).pages
        n_selected += int(selection.of(pages, now).sum())
        n_sampled += n_here
        span += (space.offset_of(end) if n_here == SAMPLE else space.size) - offset
    if not n_sampled:
        return 0
    whole = n if n <= MOST_COUNTED else max(n, round(n_sampled * space.size / span))
    return round(whole * n_selected / n_sampled)
