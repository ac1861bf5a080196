"""Import of captures: files are read and sorted first, then each page learns once.

The database gets nothing before all files have been read, so a broken file changes nothing. A page
and its captures belong to one transaction. Captures make no entry of the log and no event, spend
no budget and start no incident.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from service.budget.admission import release
from service.core import waits
from service.core.estimators.base import Estimator
from service.estimation.captures import (
    CaptureColumns,
    after_captures,
    is_late,
    newest_captures,
    with_copies,
    without_copies,
)
from service.estimation.rules import Rules, rules_in_force
from service.model.arrays import KEY, UNSPECIFIED, Floats, Ints, instant, is_among
from service.model.columns import PageColumns, PageStates
from service.model.domain import Timing
from service.model.errors import NotExportable
from service.model.urls import NormalUrl
from service.storage import Store, Transaction
from service.transfer.capture_sort import CaptureParts, SortedPart
from service.transfer.captures import read_captures
from service.transfer.importing import FUTURE_ALLOWED, Skipped
from service.transfer.text import content_bytes

TOGETHER = 10_000
"""Pages of one transaction."""
NOTHING_DONE = ""
"""Key before all others, as hexadecimal digits."""


class CaptureCounts(NamedTuple):
    """Counts of captures and of their pages."""

    content: int = 0
    """Captures that show content."""
    other: int = 0
    """Captures that show no content of a page: redirects, errors, no digest, no GET, no page."""
    unreadable: int = 0
    """Lines that could not be read."""
    distinct: int = 0
    """Captures that show content, of each page and second one."""
    late: int = 0
    """Distinct captures that are not newer than the last crawl of their page."""
    pages: int = 0
    """Pages with captures that show content."""
    created: int = 0
    """Pages that are new."""
    taught: int = 0
    """Pages that learnt from captures."""

    def plus(self, other: "CaptureCounts") -> "CaptureCounts":
        """Return the sums."""
        return CaptureCounts(*map(sum, zip(self, other, strict=True)))


class CaptureStep(NamedTuple):
    """A part of an import: lines that were read, or pages that were committed."""

    counts: CaptureCounts
    unreadable: list[Skipped]
    share: float
    """Share of the work done so far."""
    after: str | None
    """Last committed key, after which `--resume` goes on; None while files are read."""


@dataclass(frozen=True, slots=True)
class Teaching:
    """The receiver of an import, and the way in which its pages learn."""

    store: Store
    rules: Rules
    clock: Callable[[], datetime]
    have_copies: bool
    """True if the crawler has the newest captures as its copies."""


def import_captures(
    sources: Mapping[Path, str],
    now: datetime,
    teaching: Teaching | None = None,
    after: str = NOTHING_DONE,
) -> Iterator[CaptureStep]:
    """Yield the steps of an import of files by their formats; without `teaching` only count.

    A resumed import reads all files again, and goes on with the keys after `after`.

    Raises
    ------
    UnreadableFile
        A file cannot be read to its end. The database is as before.
    NotExportable
        The estimator needs the log of all crawls, which the import does not write.
    """
    if teaching is not None:
        _refuse_history(teaching.rules.estimator)
    total = max(sum(source.stat().st_size for source in sources), 1)
    done = 0
    with tempfile.TemporaryDirectory(prefix="recrawl-captures-") as folder:
        parts = CaptureParts(Path(folder), sum(map(content_bytes, sources)))
        for source, kind in sources.items():
            for block in read_captures(source, kind, now + FUTURE_ALLOWED):
                parts.add(block)
                skipped = [Skipped(source, *line) for line in block.unreadable]
                counts = CaptureCounts(len(block.records), block.n_other, len(skipped))
                share = (done + block.bytes_read) / total / 2
                yield CaptureStep(counts, skipped, share, None)
            done += source.stat().st_size
        for share, part in parts.parts():
            yield from _taught(part, teaching, after, 0.5 + share / 2)


def _refuse_history(estimator: Estimator[Any]) -> None:
    if estimator.needs_history:
        raise NotExportable(
            f"estimator {estimator.name} needs the observation log, which an import of captures "
            "leaves empty; choose another RECRAWL_ESTIMATOR"
        )


def _taught(
    part: SortedPart, teaching: Teaching | None, after: str, share: float
) -> Iterator[CaptureStep]:
    """Yield a step for each transaction of a part."""
    bounds = np.searchsorted(part.page, np.arange(len(part.pages) + 1))
    for start in range(0, len(part.pages), TOGETHER):
        end = min(start + TOGETHER, len(part.pages))
        last = part.pages[end - 1].key.hex()
        if last <= after:
            continue
        captures = slice(int(bounds[start]), int(bounds[end]))
        counts = CaptureCounts(distinct=captures.stop - captures.start, pages=end - start)
        if teaching is not None:
            records = part.records[captures]
            columns = CaptureColumns(
                page=part.page[captures] - start, at=records["at"], digest=records["digest"]
            )
            counts = counts.plus(teach(teaching, part.pages[start:end], columns))
        yield CaptureStep(counts, [], share, last)


def teach(
    teaching: Teaching, pages: Sequence[NormalUrl], captures: CaptureColumns
) -> CaptureCounts:
    """Register pages and teach them captures by page and time, in one transaction."""
    now = teaching.clock()
    with teaching.store.begin() as tx:
        page_id, created = tx.register(_described(pages), now)
        states = tx.lock_states(np.sort(page_id))
        captures = _of_states(captures, page_id, states)
        late = is_late(states, captures)
        captures = captures.where(~late)
        newest = newest_captures(len(states), captures)
        taught = ~np.isnat(newest)
        if taught.any():
            estimator = rules_in_force(tx, teaching.rules).estimator
            after = after_captures(estimator, states, captures)
            if teaching.have_copies:
                after = with_copies(after, newest, _factors(teaching.rules, len(states)))
                _end_waits(tx, states.where(taught), now)
            else:
                after = without_copies(after, newest, instant(now))
            tx.save_states(after.where(taught))
    return CaptureCounts(late=int(late.sum()), created=int(created.sum()), taught=int(taught.sum()))


def _of_states(captures: CaptureColumns, page_id: Ints, states: PageStates) -> CaptureColumns:
    """Return captures of pages by the rows of the states, without pages that were deleted now."""
    own = page_id[captures.page]
    there = is_among(own, states.page_id)
    captures, own = captures.where(there), own[there]
    row = states.page_id.searchsorted(own)
    return replace(captures, page=row).take(np.argsort(row, kind="stable"))


def _factors(rules: Rules, n: int) -> Floats:
    """Return times to the first crawl, in mean intervals: pages imported together drift apart."""
    uniform = rules.rng.random(n)
    return waits.exponential(uniform) if rules.timing is Timing.poisson else uniform


def _end_waits(tx: Transaction, states: PageStates, now: datetime) -> None:
    """Let pages that have a copy wait for no first crawl, and forget what older copies had."""
    tx.clear_validators(states.page_id)
    held = states.where(states.held != 0)
    for one, rows in tx.by_database(held.page_id) if len(held) else ():
        some = held.take(rows)
        one.end_holds(some.page_id)
        release(one, some.held[some.held < 0], now)


def _described(pages: Sequence[NormalUrl]) -> PageColumns:
    n = len(pages)
    unsaid = np.full(n, np.nan)
    return PageColumns(
        key=np.frombuffer(b"".join(page.key for page in pages), KEY),
        url=np.array([page.url for page in pages], object),
        host=np.array([page.host for page in pages], object),
        importance=unsaid,
        observability=np.full(n, UNSPECIFIED, np.int16),
        min_crawl_rate=unsaid,
        max_crawl_rate=unsaid,
    )
