"""The contract of keys and of the audit.

**Keys.** A row of a key is never deleted. So the audit can name its key, and a service whose keys
have all ended does not open. Statements that change keys, or end a session of the console, raise
the number of `keys_version`. Processes that wait in `Store.wait_for_keys` notice the change within
a second.
**Audit.** An entry is written in the transaction of its act: both commit or none. No statement
changes an entry.
"""

from abc import abstractmethod
from collections.abc import Collection
from datetime import datetime

from service.model.access import ApiKey, AuditEntry, AuditFilter
from service.storage.dialect import Subject


class AccessStatements(Subject):
    """The statements on keys and on the audit."""

    # -- keys

    @abstractmethod
    def add_key(self, key: ApiKey) -> None:
        """Insert a key."""

    @abstractmethod
    def key(self, key_id: str) -> ApiKey:
        """Return one key; raise `KeyNotFound`."""

    @abstractmethod
    def lock_key(self, key_id: str) -> ApiKey:
        """Lock and return one key; raise `KeyNotFound`."""

    @abstractmethod
    def keys(self, after: str, limit: int) -> list[ApiKey]:
        """Return keys with key_id > after, ascending, at most `limit`; ended keys too."""

    @abstractmethod
    def usable_keys(self, now: datetime) -> list[ApiKey]:
        """Return the keys that are neither revoked nor expired."""

    @abstractmethod
    def any_key(self) -> bool:
        """Return whether there is a key, ended or not."""

    @abstractmethod
    def keys_version(self) -> int:
        """Return a number that changes of keys and ends of sessions raise, 0 in a new store."""

    @abstractmethod
    def end_key(
        self, key_id: str, *, expires_at: datetime | None, revoked_at: datetime | None
    ) -> None:
        """Write the instants at which a key expires and was revoked; None: never."""

    @abstractmethod
    def mark_used(self, key_ids: Collection[str], now: datetime) -> None:
        """Write the instant of the last use of these keys; this does not change the version."""

    # -- console

    @abstractmethod
    def console_secret(self) -> str:
        """Return the secret that seals the sessions of the console; "" before the first."""

    @abstractmethod
    def keep_console_secret(self, secret: str) -> None:
        """Write the secret that seals the sessions of the console, unless there is one."""

    @abstractmethod
    def end_session(self, session: bytes, now: datetime) -> None:
        """Keep the digest of a session that has ended, and the instant; once for a session."""

    @abstractmethod
    def forget_sessions(self, before: datetime) -> None:
        """Delete the sessions that ended before an instant; this does not change the version."""

    @abstractmethod
    def ended_sessions(self) -> frozenset[bytes]:
        """Return the digests of the sessions that have ended."""

    # -- audit

    @abstractmethod
    def append_audit(self, entry: AuditEntry) -> None:
        """Append an entry to the audit; the store numbers the entry."""

    @abstractmethod
    def audit(self, before: int | None, limit: int, only: AuditFilter) -> list[AuditEntry]:
        """Return entries with a number below `before`, newest first; None: the newest entries."""

    @abstractmethod
    def cut_audit(self, since: datetime, limit: int) -> int:
        """Delete at most `limit` entries from before `since`; return their number.

        On Postgres a role without the right to delete entries deletes none.
        """
