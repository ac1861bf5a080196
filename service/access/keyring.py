"""The keys that a process accepts, in memory: a request asks no database.

A thread reads the keys again when the database reports a change, and once a second. If no reading
has succeeded for `MAX_AGE_S`, keys of the database are not accepted. So a revoked key is refused by
every process within `MAX_AGE_S`, and so is a session of the console after its sign-out.
"""

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hmac import compare_digest
from threading import Event, Lock
from typing import NamedTuple

from service.access.boundary import boundary_of
from service.access.callers import Caller
from service.access.keys import HEAD, PREFIX, digest_of
from service.access.limits import Slots, TokenBucket
from service.model.access import ApiKey, Role
from service.model.arrays import UNIX_ZERO
from service.model.errors import OUTAGES, AccessUnavailable
from service.storage import Store

POLL_S = 1.0
"""Time between two readings of the keys, seconds, if no notification comes."""
MAX_AGE_S = 5.0
"""Maximum age of the last reading of the keys, seconds."""
MARK_EVERY = timedelta(minutes=1)
"""Time between two writings of the instant at which a key was last used."""
NO_DIGEST = bytes(32)


class Mark(NamedTuple):
    """A last use of a key, as written."""

    used_at: datetime
    written_at: datetime


NO_MARK = Mark(UNIX_ZERO, UNIX_ZERO)


@dataclass(frozen=True, slots=True)
class RingEntry:
    """A key in memory."""

    digest: bytes = field(repr=False)
    caller: Caller | None
    expires_at: datetime | None = None


NOBODY = RingEntry(NO_DIGEST, None)

NewBucket = Callable[[str, float, float], TokenBucket]
"""Function of the id of a key, its rate and the time that returns the bucket of the key."""


def full_bucket(_key_id: str, per_s: float, now: float) -> TokenBucket:
    """Return a full bucket of this process."""
    return TokenBucket.full(per_s, now)


class KeyRing:
    """The keys of the database and of the environment."""

    def __init__(
        self,
        store: Store,
        environment: Iterable[str],
        now: Callable[[], datetime],
        *,
        n_slots: int,
        seconds: Callable[[], float] = time.monotonic,
        new_bucket: NewBucket = full_bucket,
    ) -> None:
        self.store = store
        self.now = now
        self.n_slots = n_slots
        self.seconds = seconds
        self.new_bucket = new_bucket
        callers = [
            (text, Caller(f"environment-{i}", Role.admin, known=True, slots=Slots(n_slots)))
            for i, text in enumerate(dict.fromkeys(environment), 1)
        ]
        self.environment = [RingEntry(digest_of(text), caller) for text, caller in callers]
        self.entries: dict[str, RingEntry] = {}
        self.closed = bool(self.environment)
        """False while there is no key, so that everybody is admitted."""
        self.ended_sessions: frozenset[bytes] = frozenset()
        """Digests of the console's sessions that were signed out."""
        self.version: str | None = None
        """Version of the keys in memory; None: not read yet."""
        self.read_at = -MAX_AGE_S
        self.used: dict[str, datetime] = {}
        """Instants of the last uses, by id of the key."""
        self.marked: dict[str, Mark] = {}
        self.reading = Lock()

    # -- requests

    def caller(self, text: str) -> Caller | None:
        """Return the caller who shows a key; None for a wrong or ended key.

        Raises
        ------
        AccessUnavailable
            The keys of the database have not been read for `MAX_AGE_S`.
        """
        entry = self.find(text)
        if not text.startswith(PREFIX):
            return entry.caller
        self._check_age()
        now = self.now()
        expired = entry.expires_at is not None and now >= entry.expires_at
        if entry.caller is None or expired:
            return None
        self.used[entry.caller.name] = now
        return entry.caller

    def has_ended(self, session: bytes) -> bool:
        """Return whether a session of the console was signed out; raise `AccessUnavailable`."""
        self._check_age()
        return session in self.ended_sessions

    def _check_age(self) -> None:
        if self.seconds() - self.read_at > MAX_AGE_S:
            raise AccessUnavailable

    def find(self, text: str) -> RingEntry:
        """Return the entry of a key, `NOBODY` for a wrong one."""
        for entry, same in self.compared(text):
            if same:
                return entry
        return NOBODY

    def compared(self, text: str) -> list[tuple[RingEntry, bool]]:
        """Return the entries that a text may belong to, and whether it does.

        Right and wrong secrets take the same time. The next steps depend only on the result, which
        the answer shows anyway.
        """
        digest = digest_of(text)
        if text.startswith(PREFIX):
            entry = self.entries.get(text[:HEAD], NOBODY)
            return [(entry, compare_digest(entry.digest, digest))]
        return [(entry, compare_digest(entry.digest, digest)) for entry in self.environment]

    # -- the thread

    def follow(self, stopping: Event) -> None:
        """Read the keys again and again until the event is set."""
        while not stopping.is_set():
            with suppress(*OUTAGES):
                self.refresh()
                self.mark_used()
            self.store.wait_for_keys(POLL_S, stopping)
        with suppress(*OUTAGES):
            self.mark_used(last=True)

    def refresh(self) -> None:
        """Read the keys if they have changed; raise the errors of the store."""
        with self.reading:
            began = self.seconds()
            with self.store.begin(write=False) as tx:
                version = tx.keys_version()
                if version != self.version:
                    usable, any_key = tx.usable_keys(tx.now()), tx.any_key()
                    self.entries = {f"{PREFIX}{key.key_id}_": self._entry(key) for key in usable}
                    self.ended_sessions = tx.ended_sessions()
                    self.closed = bool(self.environment) or any_key
                    self.version = version
            # the time before the reading: the keys may be that old
            self.read_at = began

    def _entry(self, key: ApiKey) -> RingEntry:
        """Return the entry of a key, with the bucket and the places of its former entry."""
        before = self.entries.get(f"{PREFIX}{key.key_id}_", NOBODY)
        # a new bucket would be full again, and new places free
        slots = Slots(self.n_slots) if before.caller is None else before.caller.slots
        bucket = None if before.caller is None else before.caller.bucket
        if key.items_per_s is None:
            bucket = None
        elif bucket is None or bucket.per_s != key.items_per_s:
            bucket = self.new_bucket(key.key_id, key.items_per_s, self.seconds())
        caller = Caller(
            name=key.key_id,
            role=key.role,
            known=True,
            boundary=boundary_of(key.hosts, key.url_prefixes),
            bucket=bucket,
            slots=slots,
        )
        same = caller == before.caller and before.caller is not None
        return RingEntry(key.digest, before.caller if same else caller, key.expires_at)

    def mark_used(self, *, last: bool = False) -> None:
        """Write when keys were used: each key at once, then once a minute, and at the end."""
        now = self.now()
        used = {
            key_id: at
            for key_id, at in self.used.copy().items()
            if self._differs(self.marked.get(key_id, NO_MARK), at, None if last else now)
        }
        if not used:
            return
        with self.store.begin() as tx:
            for key_id, at in used.items():
                tx.mark_used([key_id], at)
        self.marked |= {key_id: Mark(at, now) for key_id, at in used.items()}

    @staticmethod
    def _differs(mark: Mark, at: datetime, now: datetime | None) -> bool:
        """Return whether a last use is to be written; `now` is None at the end of the process."""
        # abs: a clock that was set back stops no writing
        return mark.used_at != at and (now is None or abs(now - mark.written_at) >= MARK_EVERY)
