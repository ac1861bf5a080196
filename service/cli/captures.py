"""`recrawl import` of an archive's captures."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from service.cli.file_steps import (
    MAX_SHOWN,
    ImportCounts,
    add_rows_task,
    checkpoint_of,
    opened_store,
    print_skipped,
    receiver_of,
    request_epoch,
    rows_progress,
    show_rows,
)
from service.model.words import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from service.transfer.capture_import import CaptureCounts, CaptureStep
    from service.transfer.importing import Checkpoint

WHOLE = 1_000
"""Length of the progress bar."""


def import_captures(
    sources: dict[Path, str],
    database_url: str | None,
    *,
    resume: bool,
    dry_run: bool,
    have_copies: bool,
) -> ImportCounts:
    """Import files of captures, by their formats, to a database as one; or only count."""
    from service.transfer.capture_import import NOTHING_DONE, Teaching, import_captures

    if dry_run:
        counts = _follow(import_captures(sources, datetime.now(UTC)), None)
        sentence = only_read(counts)
        return ImportCounts(
            skipped=counts.unreadable, sentence=sentence, empty=_empty(sources, counts)
        )
    with opened_store(database_url) as base:
        receiver = f"{receiver_of(base, database_url)} have_copies={have_copies}"
        checkpoint, standing = checkpoint_of(list(sources), receiver, resume)
        teaching = Teaching(base.store, base.rules, base.store.clock, have_copies)
        after = standing.get("after", NOTHING_DONE)
        counts = _follow(import_captures(sources, base.store.clock(), teaching, after), checkpoint)
        request_epoch(base, ImportCounts(counts.created, counts.taught))
    return ImportCounts(
        *(counts.created, 0, counts.unreadable),
        sentence=taught(counts),
        empty=_empty(sources, counts),
    )


def _empty(sources: dict[Path, str], counts: "CaptureCounts") -> str:
    """Return the names of sources without a capture."""
    n_lines = counts.content + counts.other + counts.unreadable
    return "" if n_lines else ", ".join(source.name for source in sources)


def _follow(steps: "Iterator[CaptureStep]", checkpoint: "Checkpoint | None") -> "CaptureCounts":
    """Show every step, write its position to the checkpoint, and return the sums."""
    from service.transfer.capture_import import CaptureCounts

    counts = CaptureCounts()
    with rows_progress() as progress:
        task = add_rows_task(progress, "importing captures", WHOLE)
        for step in steps:
            if checkpoint is not None and step.after is not None:
                checkpoint.write(after=step.after)
            print_skipped(step.unreadable[: max(MAX_SHOWN - counts.unreadable, 0)])
            counts = counts.plus(step.counts)
            n_rows = counts.content + counts.other
            show_rows(progress, task, n_rows, round(step.share * WHOLE))
    if checkpoint is not None:
        checkpoint.clear()
    return counts


def taught(counts: "CaptureCounts") -> str:
    """Return the sentence on an import."""
    return (
        f"{counted(counts.distinct - counts.late, 'capture')} learnt for "
        f"{counted(counts.taught, 'page')}, {counts.created:,} new; {_others(counts)}; "
        f"{counted(counts.late, 'late capture')}{_late(counts.late)}; "
        f"{counted(counts.unreadable, 'line')} skipped"
    )


def _late(n: int) -> str:
    return " (older than the last crawl of the page: import captures before you crawl)" if n else ""


def only_read(counts: "CaptureCounts") -> str:
    """Return the sentence on files that were only read."""
    return (
        f"{counted(counts.distinct, 'capture')} of {counted(counts.pages, 'page')} with content; "
        f"{_others(counts)}; {counted(counts.unreadable, 'line')} skipped; nothing was imported"
    )


def _others(counts: "CaptureCounts") -> str:
    return f"{counted(counts.other, 'capture')} without content"
