"""Answers to lease requests with an Idempotency-Key, kept so that a repeated request has them too.

A request inserts its answer in the transaction that writes its leases. Two transactions with the
same key therefore never both commit: the second one fails, and its repetition reads the answer.
Keys and bodies are 64-bit hashes.
"""

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from service.model.arrays import Columns, Instants, Ints
from service.storage.dialect import Dialect, Subject

ANSWERS_KEPT = timedelta(minutes=2)
"""Minimum lifetime of an answer: twice the default patience of the client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseAnswers(Columns):
    """(N,) answers to lease requests, each with another key."""

    key: Ints
    """Hash of the Idempotency-Key."""
    body: Ints
    """Hash of the request's body."""
    expires_at: Instants
    answer: NDArray[np.object_]
    """JSON of the answer."""


class AnswerStatements(Subject):
    """The part of a transaction that works on the answers to lease requests."""

    @abstractmethod
    def lease_answers(self, key: Ints) -> Iterable[tuple[int, int, str]]:
        """Return the key, the body and the answer of those of these keys that have an answer.

        The rows may be read until the next statement that writes answers, so that a store can send
        this statement with a later one.
        """

    @abstractmethod
    def add_lease_answers(self, answers: LeaseAnswers) -> None:
        """Insert answers; the commit fails if another transaction has inserted one of the keys."""

    @abstractmethod
    def drop_lease_answers(self, now: datetime) -> None:
        """Delete the answers that expire until now, except those that another one deletes."""


LEASE_ANSWERS = "SELECT key, body, answer FROM lease_answers WHERE key IN (SELECT value FROM {ids})"
DROP_LEASE_ANSWERS = """
DELETE FROM lease_answers WHERE key IN (
    SELECT key FROM lease_answers WHERE expires_at <= %(now)s ORDER BY key {lock_free_rows}
)
"""


class AnswersSql(Dialect, AnswerStatements):
    """The statements on answers that Postgres and SQLite share."""

    @override
    def drop_lease_answers(self, now: datetime) -> None:
        self.run(DROP_LEASE_ANSWERS, now=now)
