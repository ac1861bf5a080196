"""Validators of pages for conditional requests, and notes of crawlers: a row only where present.

`etag` and `last_modified` are those of the page's last answer with content. `note` is JSON that the
service does not read.
"""

from abc import abstractmethod
from dataclasses import dataclass
from datetime import datetime

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from service.model.arrays import Bools, Columns, Instants, Ints
from service.storage.dialect import Dialect, Subject

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
class StoredValidators(ValidatorColumns):
    """(N,) validators and notes as the store has them, and the doubts about them."""

    doubted: Bools
    """True if the page's next request goes without them, because a request contradicts its 304."""
    false_304_at: Instants
    """Time of the proof that a 304 of the page's host was wrong; NaT: no proof."""


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
    def validators(self, page_id: Ints) -> StoredValidators:
        """Return the validators of those of these pages that have any, by ascending page_id."""

    @abstractmethod
    def save_validators(self, changes: ValidatorChanges) -> None:
        """Change the validators of pages whose states are locked; delete rows without a value.

        A new answer ends the doubt about the page's validators.
        """

    @abstractmethod
    def clear_validators(self, page_id: Ints) -> None:
        """Delete the etags and last modifications of pages whose states are locked; keep notes.

        The statement takes no time for each page while no page of the store has a row.
        """

    @abstractmethod
    def doubt_validators(self, page_id: Ints) -> None:
        """Doubt the validators of pages whose states are locked, until their next answer."""

    @abstractmethod
    def set_false_304(self, host_id: Ints, at: datetime | None) -> None:
        """Write the time of the proof that a 304 of these hosts was wrong; None: no proof."""


DOUBT = "UPDATE page_validators SET doubted = true WHERE page_id IN (SELECT value FROM {ids})"
SET_FALSE_304 = """
UPDATE hosts SET false_304_at = %(at)s WHERE host_id IN (
    SELECT host_id FROM hosts WHERE host_id IN (SELECT value FROM {ids})
    ORDER BY host_id {lock_rows}
)
"""


class ValidatorsSql(Dialect, ValidatorStatements):
    """The statements on doubts that Postgres and SQLite share."""

    @override
    def doubt_validators(self, page_id: Ints) -> None:
        self.run(DOUBT, ids=page_id)

    @override
    def set_false_304(self, host_id: Ints, at: datetime | None) -> None:
        self.run(SET_FALSE_304, ids=host_id, at=at)
