"""Notice that a database was restored, and begin a new incarnation.

Every process asks at its start, and the process that runs epochs asks in each of its rounds. The
question is a few short statements. Writers wait for each other at the row of the newest
incarnation, and then judge again.
"""

from contextlib import AbstractContextManager
from typing import Protocol

import numpy as np
import structlog

from service.model.incarnations import Incarnation, Surroundings, restored
from service.storage.incarnations import marks
from service.storage.incarnations.contract import IncarnationStatements
from service.storage.incarnations.marks import Marks

log = structlog.get_logger()

TOLD = (
    "the database was restored; ids, epochs and entries of the audit go on above all earlier ones"
)

SAID = "an operator said so"


class Begin(Protocol):
    """Function that opens a transaction."""

    def __call__(self, *, write: bool) -> AbstractContextManager[IncarnationStatements]:
        """Open a transaction."""


def recognise(begin: Begin, rng: np.random.Generator) -> Incarnation | None:
    """Begin an incarnation if the database was restored, and return it; None: it was not.

    A standby is not written, so it is recognised after it takes over.
    """
    with begin(write=False) as tx:
        present, lives = tx.surroundings(), tx.incarnations()
    if lives and present.place == lives[-1].place and present.timeline in ("", lives[-1].timeline):
        return None
    with begin(write=True) as tx:
        newest = tx.lock_incarnation()
        if newest is None:
            tx.begin_first(present, rng)
            return None
        if reason := restored(newest, present, tx.now()):
            return began(tx, newest, present, rng, reason)
        tx.settle_incarnation(newest.number, present.place, present.timeline or newest.timeline)
    return None


def renewed(begin: Begin, rng: np.random.Generator) -> Incarnation:
    """Begin an incarnation, because an operator knows of a restore."""
    with begin(write=True) as tx:
        return began(tx, tx.lock_incarnation(), tx.surroundings(), rng, SAID)


def renewed_file(database: str, begin: Begin, rng: np.random.Generator) -> Incarnation:
    """Do the same for a SQLite file, and write its marks."""
    with begin(write=True) as tx:
        begun = began(tx, tx.lock_incarnation(), tx.surroundings(), rng, SAID)
        marks.write(database, marks_of(tx, begun, database))
    return begun


def recognise_file(
    database: str, begin: Begin, rng: np.random.Generator, *, opens: bool
) -> Incarnation | None:
    """Do the same for a SQLite file, and write its marks; a process that `opens` it marks it anew.

    The marks change under the lock of the file and before the commit, so no other writer sees one
    of the two alone.
    """
    written = marks.read(database)
    with begin(write=False) as tx:
        lives = tx.incarnations()
        present = marks_of(tx, lives[-1], database) if lives else None
    if present is None or opens or present.are_new(written):
        return _settle_file(database, begin, rng, opens=opens)
    return None


def _settle_file(
    database: str, begin: Begin, rng: np.random.Generator, *, opens: bool
) -> Incarnation | None:
    """Mark a file anew under its lock, and begin an incarnation if it was restored."""
    written: Marks | None = None
    opening = Surroundings(rng.bytes(8).hex(), "", None)
    try:
        with begin(write=True) as tx:
            newest, begun = tx.lock_incarnation(), None
            written = marks.read(database)
            present = None if newest is None else marks_of(tx, newest, database)
            if reason := why_restored(database, present, written):
                newest = begun = began(tx, newest, opening, rng, reason)
            elif newest is None:
                tx.begin_first(opening, rng)
                newest = tx.lock_incarnation()
            elif opens:
                newest = newest._replace(place=opening.place)
            assert newest is not None  # noqa: S101 - for mypy
            if marks.write(database, marks_of(tx, newest, database)) and opens:
                tx.settle_incarnation(newest.number, newest.place, "")
    except BaseException:
        if written is not None:
            marks.write(database, written)
        raise
    return begun


def why_restored(database: str, present: Marks | None, written: Marks | None) -> str:
    """Return why a file must have been restored since its marks were written; "" if not.

    `present` is None for a file that no process has opened yet.
    """
    if written is None:
        # marks that a power cut has damaged prove nothing
        missing = present is not None and not marks.path_of(database).exists()
        return "the file was copied without its marks" if missing else ""
    if present is None:
        return "the file is another database than before"
    return written.contradict(present)


def marks_of(tx: IncarnationStatements, newest: Incarnation, database: str) -> Marks:
    """Return the marks that fit the file as it is."""
    inode = marks.inode_of(database)
    return Marks(newest.name, newest.place, tx.last_numbers(), inode, tx.now())


def began(
    tx: IncarnationStatements,
    newest: Incarnation | None,
    present: Surroundings,
    rng: np.random.Generator,
    reason: str,
) -> Incarnation:
    """Begin an incarnation and log it."""
    begun = tx.begin_incarnation(newest, present, rng)
    log.warning(
        TOLD,
        reason=reason,
        incarnation=begun.name,
        first_page_id=begun.first_page,
        first_epoch=begun.first_epoch,
    )
    return begun
