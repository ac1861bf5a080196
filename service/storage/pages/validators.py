"""Validators of pages for conditional requests, and notes of crawlers: a row only where present.

`etag` and `last_modified` are those of the page's last answer with content. `note` is JSON that the
service does not read.
"""

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from service.model.arrays import Bools, Columns, Instants, Ints
from service.storage.dialect import Subject

MOST_NOTE_BYTES = 1_024
"""Maximum size of a note, bytes of compact JSON."""
NO_NOTE = "null"
"""Note that removes the stored note."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidatorColumns(Columns):
    """(N,) validators and notes of pages."""

    page_id: Ints
    etag: NDArray[np.object_]
    """Entity tag as the site sent it; "": none."""
    last_modified: Instants
    """Last modification as the site reports; NaT: no report."""
    note: NDArray[np.object_]
    """JSON of the note; "": none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidatorChanges(ValidatorColumns):
    """(N,) changes of validators and notes; an absent value keeps the stored one."""

    resets: Bools
    """True where a new answer replaces the etag and the last modification, also by none."""

    @property
    def only_reset(self) -> Bools:
        """(N,) True where a change has no value."""
        empty: Bools = (self.etag == "") & np.isnat(self.last_modified) & (self.note == "")
        return empty


class ValidatorStatements(Subject):
    """The part of a transaction that works on validators and notes."""

    @abstractmethod
    def validators(self, page_id: Ints) -> ValidatorColumns:
        """Return the validators of those of these pages that have any, by ascending page_id."""

    @abstractmethod
    def save_validators(self, changes: ValidatorChanges) -> None:
        """Change the validators of pages whose states are locked; delete rows without a value."""

    @abstractmethod
    def clear_validators(self, page_id: Ints) -> None:
        """Delete the etags and last modifications of pages whose states are locked; keep notes.

        The statement takes no time for each page while no page of the store has a row.
        """
