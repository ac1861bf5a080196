"""Notes that come with registrations, and notes that new targets of redirects inherit."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from service.model.arrays import NO_TIME, Bools, Ints, distinct, is_among
from service.model.columns import PageStates
from service.storage.pages.validators import StoredValidators, ValidatorChanges


class NoteStatements(Protocol):
    """The statements that write notes."""

    def lock_states(self, page_id: Ints, *, scheduled: bool = False) -> PageStates:
        """Lock states, ascending."""

    def validators(self, page_id: Ints) -> StoredValidators:
        """Return the validators of pages."""

    def save_validators(self, changes: ValidatorChanges) -> None:
        """Change the validators of pages."""


class NotedRows(NamedTuple):
    """The notes of some rows of a batch of pages."""

    row: Ints
    """(R,) distinct rows with a note stated, in any order."""
    note: NDArray[np.object_]
    """(R,) JSON of each note; `NO_NOTE` removes the stored one."""
    if_new: Bools
    """(R,) True for notes of new pages alone."""

    @classmethod
    def of(cls, notes: Mapping[int, tuple[str, bool]]) -> "NotedRows":
        """Return the notes of rows, and whether each is of a new page alone."""
        texts, if_new = zip(*notes.values(), strict=True) if notes else ((), ())
        row = np.array(list(notes), np.int64)
        return cls(row, np.array(texts, object), np.array(if_new, np.bool_))

    def moved(self, n: int) -> "NotedRows":
        """Return the notes of rows that stand `n` rows later."""
        return self._replace(row=self.row + n)

    def where(self, keep: Bools) -> "NotedRows":
        """Return the notes of the rows of a mask."""
        return self.take(keep[self.row])

    def of_rows(self, rows: Ints) -> "NotedRows | None":
        """Return the notes of ascending rows, numbered among these; None if none has a note."""
        some = self.take(np.isin(self.row, rows))
        return some._replace(row=rows.searchsorted(some.row)) if len(some.row) else None

    def take(self, where: Bools | Ints) -> "NotedRows":
        """Return some notes, by a mask or by their positions."""
        return NotedRows(self.row[where], self.note[where], self.if_new[where])

    def save(self, tx: NoteStatements, page_id: Ints, created: Bools) -> None:
        """Write the notes of the pages of a batch, whose ids are by row."""
        wanted = self.take(created[self.row] | ~self.if_new)
        row, note, _ = wanted.take(np.argsort(page_id[wanted.row]))
        page, new = page_id[row], created[row]
        # nobody else sees a page that this transaction has created
        there = new | is_among(page, tx.lock_states(page[~new]).page_id)
        tx.save_validators(noted(page[there], note[there]))


def inherit_notes(tx: NoteStatements, source: Ints, target: Ints) -> None:
    """Write the notes of redirecting pages to the new pages to which they lead."""
    stored = tx.validators(distinct(source))
    with_note = stored.take(stored.note != "")
    has_one = is_among(source, with_note.page_id)
    if not has_one.any():
        return
    page, first = np.unique(target[has_one], return_index=True)
    row = with_note.page_id.searchsorted(source[has_one][first])
    tx.save_validators(noted(page, with_note.note[row]))


def noted(page_id: Ints, note: NDArray[np.object_]) -> ValidatorChanges:
    """Return changes of notes alone."""
    n = len(page_id)
    return ValidatorChanges(
        page_id=page_id,
        etag=np.full(n, "", object),
        last_modified=np.full(n, NO_TIME),
        note=note,
        resets=np.zeros(n, np.bool_),
    )
