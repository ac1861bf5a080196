"""Needs that operators have accepted: the contract, and the SQL that both databases share."""

from abc import abstractmethod
from datetime import datetime

from typing_extensions import override

from service.model.acceptances import Acceptance
from service.storage.dialect import Dialect, Subject


class AcceptanceStatements(Subject):
    """The statements on needs that operators have accepted."""

    @abstractmethod
    def acceptances(self, now: datetime) -> list[Acceptance]:
        """Return the acceptances that have not ended, the oldest first."""

    @abstractmethod
    def accept_need(self, acceptance: Acceptance) -> None:
        """Write an acceptance in place of one of the same need; delete those that have ended."""

    @abstractmethod
    def withdraw_acceptance(self, kind: str, subject: str) -> None:
        """Delete the acceptance of a need, if there is one."""


ACCEPTANCES = """
SELECT kind, subject, accepted_at, until_at, reason FROM accepted_needs WHERE until_at > %(now)s
ORDER BY accepted_at, kind, subject
"""
ACCEPT = """
INSERT INTO accepted_needs (kind, subject, accepted_at, until_at, reason)
VALUES (%(kind)s, %(subject)s, %(accepted_at)s, %(until)s, %(reason)s)
ON CONFLICT (kind, subject) DO UPDATE SET
    accepted_at = excluded.accepted_at, until_at = excluded.until_at, reason = excluded.reason
"""
FORGET = "DELETE FROM accepted_needs WHERE until_at <= %(now)s"
WITHDRAW = "DELETE FROM accepted_needs WHERE kind = %(kind)s AND subject = %(subject)s"


class AcceptancesSql(Dialect, AcceptanceStatements):
    """The statements on acceptances that Postgres and SQLite share."""

    @override
    def acceptances(self, now: datetime) -> list[Acceptance]:
        return [Acceptance(*row.values()) for row in self.read(ACCEPTANCES, now=now)]

    @override
    def accept_need(self, acceptance: Acceptance) -> None:
        self.run(FORGET, now=acceptance.accepted_at)
        self.run(ACCEPT, **acceptance._asdict())

    @override
    def withdraw_acceptance(self, kind: str, subject: str) -> None:
        self.run(WITHDRAW, kind=kind, subject=subject)
