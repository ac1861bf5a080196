"""Keys and the audit: the contract, and the SQL that both databases share.

**Keys.** A row of a key is never deleted. So the audit can name its key, and a service whose keys
have all ended does not open. Statements that change keys, or end a session of the console, draw a
new `keys_version`. Processes that wait in `Store.wait_for_keys` notice the change within a second.
**Audit.** An entry is written in the transaction of its act: both commit or none. No statement
changes an entry.
"""

import secrets
from abc import abstractmethod
from collections.abc import Collection
from dataclasses import asdict, fields
from datetime import datetime
from typing import Any

import numpy as np
from typing_extensions import override

from service.model.access import ApiKey, AuditEntry, AuditFilter, Role
from service.model.errors import KeyNotFound
from service.storage.dialect import Dialect, Subject, all_of
from service.storage.topics import Topic


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
    def keys_version(self) -> str:
        """Return a text that each change of keys and end of a session replaces, "" in a new store.

        The texts are drawn by chance: a number would come again after a restore, with other keys.
        """

    @abstractmethod
    def end_key(
        self, key_id: str, *, expires_at: datetime | None, revoked_at: datetime | None
    ) -> None:
        """Write the instants at which a key expires and was revoked; None: never."""

    @abstractmethod
    def mark_used(self, key_ids: Collection[str], now: datetime) -> None:
        """Write the instant of the last use of these keys, unless a later one is written.

        This does not change the version.
        """

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


OF_KEYS = ", ".join(f.name for f in fields(ApiKey))
ADD_KEY = f"""
INSERT INTO api_keys ({OF_KEYS}) VALUES ({", ".join(f"%({f.name})s" for f in fields(ApiKey))})
"""
KEY = f"SELECT {OF_KEYS} FROM api_keys WHERE key_id = %(key_id)s"
LOCK_KEY = f"{KEY} {{lock_rows}}"
NEXT_KEYS = (
    f"SELECT {OF_KEYS} FROM api_keys WHERE key_id > %(after)s ORDER BY key_id LIMIT %(limit)s"
)
USABLE_KEYS = f"""
SELECT {OF_KEYS} FROM api_keys
WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > %(now)s)
"""
ANY_KEY = "SELECT 1 FROM api_keys LIMIT 1"
END_KEY = """
UPDATE api_keys SET expires_at = %(expires_at)s, revoked_at = %(revoked_at)s
WHERE key_id = %(key_id)s
"""
MARK_USED = """
UPDATE api_keys SET last_used_at = %(now)s WHERE key_id IN (SELECT value FROM {names})
    AND (last_used_at IS NULL OR last_used_at < %(now)s)
"""
VERSION = "keys_version"
"""Name of the entry of `meta` with the version of the keys."""

CONSOLE_SECRET = "console_secret"  # noqa: S105 - the name of an entry
"""Name of the entry of `meta` with the secret of the console's sessions."""

END_SESSION = """
INSERT INTO ended_sessions (session, ended_at) VALUES (%(session)s, %(now)s)
ON CONFLICT (session) DO NOTHING
"""
FORGET_SESSIONS = "DELETE FROM ended_sessions WHERE ended_at < %(before)s"
ENDED_SESSIONS = "SELECT session FROM ended_sessions"

OF_AUDIT = ", ".join(f.name for f in fields(AuditEntry))
WRITTEN = [f.name for f in fields(AuditEntry) if f.name != "entry"]
APPEND = f"""
INSERT INTO audit ({", ".join(WRITTEN)}) VALUES ({", ".join(f"%({name})s" for name in WRITTEN)})
"""
CONDITIONS = {
    "number": "entry < %(number)s",
    "key": "key = %(key)s",
    "act": "act = %(act)s",
    "object": "object = %(object)s",
    "since": "at >= %(since)s",
    "until": "at < %(until)s",
}
"""Condition of each field of `AuditFilter`; `number` is the end of the part before."""
AUDIT = f"SELECT {OF_AUDIT} FROM audit WHERE {{conditions}} ORDER BY entry DESC LIMIT %(limit)s"
CUT = """
DELETE FROM audit WHERE entry IN (
    SELECT entry FROM audit WHERE at < %(since)s ORDER BY at LIMIT %(limit)s)
"""


class AccessSql(Dialect, AccessStatements):
    """The statements on keys and on the audit that Postgres and SQLite share."""

    @override
    def add_key(self, key: ApiKey) -> None:
        self.run(ADD_KEY, **{**asdict(key), "role": key.role.name})
        self.changed_keys()

    @override
    def key(self, key_id: str) -> ApiKey:
        return self._one_key(KEY, key_id)

    @override
    def lock_key(self, key_id: str) -> ApiKey:
        return self._one_key(LOCK_KEY, key_id)

    def _one_key(self, statement: str, key_id: str) -> ApiKey:
        for row in self.read(statement, key_id=key_id):
            return _key(row)
        raise KeyNotFound(
            f"no key has the id {key_id[:100]}; `recrawl keys list` and GET /keys list them"
        )

    @override
    def keys(self, after: str, limit: int) -> list[ApiKey]:
        return [_key(row) for row in self.read(NEXT_KEYS, after=after, limit=limit)]

    @override
    def usable_keys(self, now: datetime) -> list[ApiKey]:
        return [_key(row) for row in self.read(USABLE_KEYS, now=now)]

    @override
    def any_key(self) -> bool:
        return self.scalar(ANY_KEY) is not None

    @override
    def keys_version(self) -> str:
        return self.get_meta(VERSION)

    @override
    def end_key(
        self, key_id: str, *, expires_at: datetime | None, revoked_at: datetime | None
    ) -> None:
        self.run(END_KEY, key_id=key_id, expires_at=expires_at, revoked_at=revoked_at)
        self.changed_keys()

    def changed_keys(self) -> None:
        """Draw a new version of the keys, and wake those who wait for a change."""
        self.put_meta(VERSION, secrets.token_hex(8))
        self.ring(Topic.keys)

    @override
    def mark_used(self, key_ids: Collection[str], now: datetime) -> None:
        self.run(MARK_USED, names=np.array(sorted(key_ids), object), now=now)

    @override
    def console_secret(self) -> str:
        return self.get_meta(CONSOLE_SECRET)

    @override
    def keep_console_secret(self, secret: str) -> None:
        self.add_meta(CONSOLE_SECRET, secret)

    @override
    def end_session(self, session: bytes, now: datetime) -> None:
        self.run(END_SESSION, session=session, now=now)
        self.changed_keys()

    @override
    def forget_sessions(self, before: datetime) -> None:
        self.run(FORGET_SESSIONS, before=before)

    @override
    def ended_sessions(self) -> frozenset[bytes]:
        return frozenset(bytes(row["session"]) for row in self.read(ENDED_SESSIONS))

    @override
    def append_audit(self, entry: AuditEntry) -> None:
        self.run(APPEND, **{name: getattr(entry, name) for name in WRITTEN})

    @override
    def audit(self, before: int | None, limit: int, only: AuditFilter) -> list[AuditEntry]:
        values = {"number": before, **asdict(only)}
        values = {name: value for name, value in values.items() if value is not None}
        conditions = all_of(CONDITIONS[name] for name in values)
        statement = AUDIT.replace("{conditions}", conditions)
        return [AuditEntry(**row) for row in self.read(statement, limit=limit, **values)]

    @override
    def cut_audit(self, since: datetime, limit: int) -> int:
        if not self.may_cut_audit():
            return 0
        return self.run(CUT, since=since, limit=limit).rowcount

    @abstractmethod
    def may_cut_audit(self) -> bool:
        """Return whether this role may delete entries of the audit."""


def _key(row: dict[str, Any]) -> ApiKey:
    lists = {name: tuple(row[name]) for name in ("hosts", "url_prefixes")}
    return ApiKey(**{**row, **lists, "role": Role[row["role"]]})
