"""Bring a file's pages, or pages with their states, to a service or into its database.

Whatever was imported before may be imported again: pages are changed to what the file says, and
per page time moves forward, so a state is taken over only if it has newer evidence than the
stored one.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from service.arrays import Bools, Instants, Ints
from service.columns import PageColumns, PageStates
from service.core.estimators import Estimator
from service.errors import EstimatorMismatch
from service.estimates import width
from service.sources.files import Block, first_item, read_items
from service.sources.lines import PageLine, StateLine, instants, parse, states_of
from service.sources.posting import Poster
from service.storage import Brought, Store, Transaction

FUTURE_ALLOWED = timedelta(minutes=5)


class Skipped(NamedTuple):
    """A line that was not imported, and why."""

    path: Path
    line: int
    reason: str


class Step(NamedTuple):
    """One committed block of an import."""

    n_rows: int
    created: int
    """Pages that are new."""
    restored: int
    """States taken over."""
    skipped: list[Skipped]
    bytes_read: int
    """So far."""
    standing: dict[str, Any]
    """What an import that goes on from here must be told."""


def holds_states(path: Path) -> bool:
    """Tell whether a file's lines are pages with states."""
    return "estimator" in first_item(path)


def send_pages(path: Path, poster: Poster, after_line: int = 0) -> Iterator[Step]:
    """Register a file's pages with a running service."""
    for block in read_items(path, after_line, names=PageLine.__struct_fields__):
        posted = poster.post_pages(block.items)
        refused = [(refusal["index"], refusal["detail"]) for refusal in posted["rejected"]]
        yield _step(path, block, posted["created"], 0, refused)


def add_pages(
    path: Path, store: Store, now: Callable[[], datetime], after_line: int = 0
) -> Iterator[Step]:
    """Register a file's pages in the database itself, a transaction a block."""
    for block in read_items(path, after_line, names=PageLine.__struct_fields__):
        parsed = parse(block.items, PageLine)
        created = 0
        if parsed.lines:
            with store.begin() as tx:
                created = int(tx.register(parsed.pages, now()).created.sum())
        yield _step(path, block, created, 0, parsed.rejected)


def add_states(
    path: Path,
    store: Store,
    estimator: Estimator[Any],
    now: Callable[[], datetime],
    after_line: int = 0,
) -> Iterator[Step]:
    """Take over a file's pages with their states, a transaction a block.

    Raises
    ------
    EstimatorMismatch
        The file holds another estimator's states.
    """
    numbers = width(estimator)
    for block in read_items(path, after_line, names=StateLine.__struct_fields__):
        parsed = parse(block.items, StateLine)
        refused = [_refusal(line, path, estimator.name, numbers, now()) for line in parsed.lines]
        good = np.array([not reason for reason in refused], np.bool_)
        rejected = parsed.rejected + [
            (position, reason)
            for position, reason in zip(parsed.position, refused, strict=True)
            if reason
        ]
        created = restored = 0
        if good.any():
            lines = [line for line, taken in zip(parsed.lines, good, strict=True) if taken]
            with store.begin() as tx:
                created, restored = take_over(
                    tx, parsed.pages.take(good), states_of(lines),
                    instants([line.created_at for line in lines]), now(),
                )  # fmt: skip
        yield _step(path, block, created, restored, rejected)


def _refusal(line: StateLine, path: Path, estimator: str, width: int, now: datetime) -> str:
    if line.estimator != estimator:
        raise EstimatorMismatch(
            f"{path} holds states of estimator {line.estimator}, the settings ask for {estimator}; "
            f"set RECRAWL_ESTIMATOR={line.estimator} here, or export without --states and let "
            f"{estimator} learn anew"
        )
    if len(line.estimate) != width:
        return f"the estimate has {len(line.estimate)} numbers; {estimator} keeps {width} a page"
    newest = max(filter(None, (line.last_crawl_at, line.last_ping_at, line.pings_since)))
    if newest > now + FUTURE_ALLOWED:
        return f"{newest.isoformat()} lies in the future; the clock says {now.isoformat()}"
    return ""


def take_over(
    tx: Transaction, pages: PageColumns, states: PageStates, created_at: Instants, now: datetime
) -> tuple[int, int]:
    """Register pages and take over the states that are newer than the stored ones.

    Gives how many pages are new and how many states were taken over; `states.page_id` is not
    read.
    """
    page_id, created = tx.register(pages, now, Brought(states, created_at))
    known = np.flatnonzero(~created)
    known = known[np.argsort(page_id[known])]
    states = replace(states.take(known), page_id=page_id[known])
    newer = newer_states(states, tx.lock_states(states.page_id, scheduled=False))
    tx.restore_states(states.take(newer))
    n_created = int(created.sum())
    return n_created, n_created + int(newer.sum())


def newer_states(states: PageStates, stored: PageStates) -> Bools:
    """Tell which states have newer evidence than the stored ones of the same pages."""
    newest, other = _evidence(states)
    newest_stored, other_stored = _evidence(stored)
    newer: Bools = (newest > newest_stored) | ((newest == newest_stored) & (other > other_stored))
    return newer


def _evidence(states: PageStates) -> Ints:
    """Give the later and the earlier of last crawl and last ping; NaT is before everything."""
    both = np.stack([states.last_crawl_at, states.last_ping_at]).view(np.int64)
    return np.sort(both, axis=0)[::-1]


def _step(
    path: Path, block: Block, created: int, restored: int, rejected: list[tuple[int, str]]
) -> Step:
    refused = [(block.lines[position], reason) for position, reason in rejected]
    skipped = [Skipped(path, line, why) for line, why in sorted([*block.skipped, *refused])]
    n_rows = len(block.items) + len(block.skipped)
    return Step(n_rows, created, restored, skipped, block.bytes_read, {"line": block.last_line})
