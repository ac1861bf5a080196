"""Acts that cannot be undone: shown first, then confirmed on a terminal or by --yes."""

import sys
from typing import Annotated

import typer

from service.cli.options import console
from service.model.errors import NotConfirmed

DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show what would be deleted, and delete nothing")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Act without a question, for programs")]


def can_ask() -> bool:
    """Return whether a person can answer."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirm(act: str, *, yes: bool) -> None:
    """Show what an act does, and ask; raise `NotConfirmed` without a terminal, `Abort` after no."""
    if yes:
        console.print(act, highlight=False, markup=False, soft_wrap=True)
        return
    if not can_ask():
        raise NotConfirmed(f"{act}; nothing was done: add --yes, or answer on a terminal")
    typer.confirm(f"{act}. Go on?", abort=True, err=True)
