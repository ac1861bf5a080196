"""Import pages, or pages with their states, from a file to a service or into its database.

An import may be repeated: pages get the values of the file, and a state replaces the stored one
only if the state has newer evidence.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from recrawl_client import Client, Page
from service.core.estimators.base import Estimator
from service.estimation.estimates import width
from service.model.arrays import Bools, Ints
from service.model.columns import PageColumns, PageStates
from service.model.errors import EstimatorMismatch, UnreadableFile
from service.model.words import counted
from service.storage import Brought, Store, Transaction
from service.storage.pages.kinds import KindRows
from service.storage.pages.validators import MOST_NOTE_BYTES, ValidatorChanges
from service.transfer.files import Block, read_items
from service.transfer.lines import StateLine, instants, parse, states_of, validators_of


class Checkpoint:
    """Position of an import of these files with this content, into this receiver.

    The position is stored in a small file beside the source until the end of the import.
    """

    def __init__(self, source: Path, files: Iterable[Path], receiver: str) -> None:
        source = source.resolve()
        self.path = source.with_name(f"{source.name}.import-progress")
        stamps = [(file.stat().st_size, file.stat().st_mtime_ns) for file in files]
        identity = json.dumps([stamps, receiver]).encode()
        self.of = blake2b(identity, digest_size=16).hexdigest()
        self.resumed = False
        """True if an earlier import has left a position."""

    def read(self) -> dict[str, Any]:
        """Return the last written position, empty without one.

        Raises
        ------
        UnreadableFile
            The file belongs to other content or to another receiver.
        """
        if not self.path.is_file():
            return {}
        try:
            standing: dict[str, Any] = json.loads(self.path.read_text())
        except ValueError:
            # a file that is cut off belongs to no import and is refused below
            standing = {}
        standing = standing if isinstance(standing, dict) else {}
        if standing.pop("of", None) != self.of:
            raise UnreadableFile(
                f"{self.path} belongs to other content or another receiver; import without "
                "--resume (existing pages and states stay)"
            )
        self.resumed = True
        return standing

    def write(self, **standing: Any) -> None:
        """Replace the position in one step; in a read-only folder, write nothing."""
        new = self.path.with_name(self.path.name + ".new")
        with suppress(OSError):
            new.write_text(json.dumps({"of": self.of, **standing}))
            new.replace(self.path)

    def clear(self) -> None:
        """Remove the file at the end of the import."""
        with suppress(OSError):
            self.path.unlink(missing_ok=True)


FUTURE_ALLOWED = timedelta(minutes=5)


class Skipped(NamedTuple):
    """A line that was not imported, with the reason."""

    path: Path
    line: int
    reason: str


class ImportStep(NamedTuple):
    """One committed block of an import."""

    n_rows: int
    created: int
    """Number of new pages."""
    restored: int
    """Number of restored states."""
    skipped: list[Skipped]
    bytes_read: int
    """Position in the file after the block, bytes."""
    standing: dict[str, Any]
    """Position from which `--resume` goes on."""
    again: int = 0
    """Number of pages that were registered before, which take the values of the file."""


def check_lines(path: Path, kind: str, *, states: bool) -> Iterator[ImportStep]:
    """Yield a step for each block of a file, whose good pages count as new; import nothing."""
    item = StateLine if states else Page
    for block in read_items(path, names=item.__struct_fields__, kind=kind):
        parsed = parse(block.items, item)
        yield _step(path, block, len(parsed.lines), 0, parsed.rejected)


def send_pages(
    path: Path, client: Client, after_line: int = 0, kind: str | None = None
) -> Iterator[ImportStep]:
    """Register a file's pages with a running service; yield a step for each block."""
    for block in read_items(path, after_line, names=Page.__struct_fields__, kind=kind):
        answer = client.register_many(block.items)
        rejected = [(rejection.index, rejection.detail) for rejection in answer.rejected]
        again = answer.accepted - answer.created
        yield _step(path, block, answer.created, 0, rejected)._replace(again=again)


def add_pages(
    path: Path,
    store: Store,
    now: Callable[[], datetime],
    after_line: int = 0,
    kind: str | None = None,
) -> Iterator[ImportStep]:
    """Register a file's pages in the database; yield a step for each block's transaction."""
    for block in read_items(path, after_line, names=Page.__struct_fields__, kind=kind):
        parsed = parse(block.items, Page)
        created = again = 0
        if parsed.lines:
            with store.begin() as tx:
                registered = tx.register(parsed.pages, now())
                if (tags := parsed.tags) is not None:
                    tags.save(tx, registered.page_id)
                if (kinds := parsed.kinds) is not None:
                    save_kinds(tx, kinds, registered.page_id)
                created = int(registered.created.sum())
                again = len(registered.created) - created
        yield _step(path, block, created, 0, parsed.rejected)._replace(again=again)


def add_states(
    path: Path,
    store: Store,
    estimator: Estimator[Any],
    now: Callable[[], datetime],
    after_line: int = 0,
    kind: str | None = None,
) -> Iterator[ImportStep]:
    """Restore a file's pages and states; yield a step for each block's transaction.

    Raises
    ------
    EstimatorMismatch
        The file holds states of another estimator.
    """
    numbers = width(estimator)
    for block in read_items(path, after_line, names=StateLine.__struct_fields__, kind=kind):
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
                    tx,
                    parsed.pages.take(good),
                    brought(lines),
                    now(),
                    validators_of(lines),
                )
                taken_over, pages = parsed._replace(lines=lines), parsed.pages.take(good)
                tags, kinds = taken_over.tags, taken_over.kinds
                if tags is not None or kinds is not None:
                    page_id = tx.page_ids(pages.key, pages.host)
                if tags is not None:
                    tags.save(tx, page_id)
                if kinds is not None:
                    save_kinds(tx, kinds, page_id)
        yield _step(path, block, created, restored, rejected)


def save_kinds(tx: Transaction, kinds: KindRows, page_id: Ints) -> None:
    """Write the kinds of pages, and let their host queues look for those of the other kind."""
    changed = kinds.save(tx, page_id)
    if len(changed):
        tx.lower_host_queues(tx.queued_bounds(changed))


def _refusal(line: StateLine, path: Path, estimator: str, width: int, now: datetime) -> str:
    if line.estimator != estimator:
        raise EstimatorMismatch(
            f"{path} holds states of estimator {line.estimator}, the settings ask for {estimator}; "
            f"set RECRAWL_ESTIMATOR={line.estimator} here, or export without --states, so that "
            f"{estimator} learns anew"
        )
    if len(line.estimate) != width:
        numbers = counted(len(line.estimate), "number")
        return f"the estimate has {numbers}; {estimator} keeps {width} a page"
    if line.note is not None and not _is_note(line.note):
        return f"note {line.note[:40]!r} is not JSON of at most {MOST_NOTE_BYTES:,} bytes"
    newest = max(filter(None, (line.last_crawl_at, line.last_ping_at, line.pings_since)))
    if newest > now + FUTURE_ALLOWED:
        return f"{newest.isoformat()} is in the future; the clock shows {now.isoformat()}"
    return ""


def _is_note(note: str) -> bool:
    try:
        msgspec.json.decode(note)
        return len(note.encode()) <= MOST_NOTE_BYTES
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False


def brought(lines: list[StateLine]) -> Brought:
    """Return the states of lines, with the times of their pages."""
    created_at, born_at = (
        instants([getattr(line, name) for line in lines]) for name in ("created_at", "born_at")
    )
    return Brought(states_of(lines), created_at, born_at)


def take_over(
    tx: Transaction,
    pages: PageColumns,
    brought: Brought,
    now: datetime,
    validators: ValidatorChanges | None = None,
) -> tuple[int, int]:
    """Register pages and restore the states that are newer than the stored ones.

    The validators of a page are restored with its state.

    Return the number of new pages and the number of restored states.
    """
    page_id, created = tx.register(pages, now, brought)
    stored = np.flatnonzero(~created)
    # states are locked in ascending order
    stored = stored[np.argsort(page_id[stored])]
    states = replace(brought.states.take(stored), page_id=page_id[stored])
    newer = newer_states(states, tx.lock_states(states.page_id, scheduled=False))
    tx.restore_states(states.take(newer))
    if validators is not None:
        restored = created.copy()
        restored[stored[newer]] = True
        changes = replace(validators, page_id=page_id).take(restored)
        tx.save_validators(changes.take(np.argsort(changes.page_id)))
    n_created = int(created.sum())
    return n_created, n_created + int(newer.sum())


def newer_states(states: PageStates, stored: PageStates) -> Bools:
    """Return which states have newer evidence than the stored ones of the same pages."""
    newest, other = _evidence(states)
    newest_stored, other_stored = _evidence(stored)
    newer: Bools = (newest > newest_stored) | ((newest == newest_stored) & (other > other_stored))
    return newer


def _evidence(states: PageStates) -> Ints:
    """Return the later and the earlier of last crawl and last ping; NaT is before all others."""
    both = np.stack([states.last_crawl_at, states.last_ping_at]).view(np.int64)
    return np.sort(both, axis=0)[::-1]


def _step(
    path: Path, block: Block, created: int, restored: int, rejected: list[tuple[int, str]]
) -> ImportStep:
    refused = [(block.lines[position], reason) for position, reason in rejected]
    skipped = [Skipped(path, line, why) for line, why in sorted([*block.skipped, *refused])]
    n_rows = len(block.items) + len(block.skipped)
    return ImportStep(
        n_rows, created, restored, skipped, block.bytes_read, {"line": block.last_line}
    )
