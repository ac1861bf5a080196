"""Progress bars of commands that go through many pages."""

from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from service.cli.options import console

if TYPE_CHECKING:
    from service.storage import Transaction

RATE = TextColumn("{task.fields[n_rows]:,} rows {task.fields[rate]:,.0f}/s")


def rows_progress(*columns: Any) -> Progress:
    """Return a progress display with the number of rows, their rate, and more columns."""
    text = "[progress.description]{task.description}"
    return Progress(text, BarColumn(), *columns, RATE, TimeRemainingColumn(), console=console)


def add_rows_task(progress: Progress, title: str, total: int | None) -> TaskID:
    """Add a bar that `show_rows` moves."""
    return progress.add_task(title, total=total, n_rows=0, rate=0.0)


def show_rows(progress: Progress, task: TaskID, n_rows: int, completed: int) -> None:
    """Move a bar and show the mean rate since its start."""
    rate = n_rows / max(progress.tasks[task].elapsed or 0.0, 1e-3)
    progress.update(task, completed=completed, n_rows=n_rows, rate=rate)


def expected_pages(tx: "Transaction") -> int | None:
    """Return the number of pages of the epoch in force; None before the first epoch."""
    in_force = tx.epoch_in_force()
    return in_force.certificate.n_pages if in_force and in_force.certificate else None
