"""Keys: their text, and the acts on them, each with its entry in the audit.

A key is `rcr_<id>_<secret>`: an id that lists and the audit show, and 192 random bits. The store
has the SHA-256 of the whole text, which is shown once.
"""

import hashlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from service.access.audit import write_audit
from service.access.boundary import normal_host, normal_prefix
from service.model.access import Actor, ApiKey, Role
from service.model.arrays import LATEST
from service.model.errors import InvalidField, KeyEnded
from service.storage import Transaction

PREFIX = "rcr_"
ID_BYTES, SECRET_BYTES = 5, 24
HEAD = len(PREFIX) + 2 * ID_BYTES + 1
"""Length of the part of a key before its secret, characters."""
MAX_LIMITS = 1_000
"""Maximum number of hosts and URL prefixes of a key."""

RandomBytes = Callable[[int], bytes]
"""Source of random bytes, such as `secrets.token_bytes`."""


@dataclass(frozen=True, slots=True)
class KeySettings:
    """Settings of a new key."""

    name: str
    role: Role
    expires_at: datetime | None = None
    items_per_s: float | None = None
    hosts: tuple[str, ...] = ()
    url_prefixes: tuple[str, ...] = ()


class NewKey(NamedTuple):
    """A key with its text, which is not stored."""

    text: str
    key: ApiKey


def digest_of(text: str) -> bytes:
    """Return the SHA-256 of a key, the only form that is stored and compared."""
    return hashlib.sha256(text.encode()).digest()


def create_key(tx: Transaction, actor: Actor, settings: KeySettings, random: RandomBytes) -> NewKey:
    """Store a new key.

    Raises
    ------
    InvalidField
        An administrator's key is limited, a limit is malformed, or the expiry has passed.
    """
    now = tx.now()
    new = _made(_checked(settings, now), now, random)
    tx.add_key(new.key)
    write_audit(tx, actor, "key.create", new.key.key_id, after=shown(new.key))
    return new


def revoke_key(tx: Transaction, actor: Actor, key_id: str) -> None:
    """Revoke a key for good; a revoked key stays as it is. Raise `KeyNotFound`."""
    key = tx.lock_key(key_id)
    if key.revoked_at is not None:
        return
    _end(tx, actor, "key.revoke", key, replace(key, revoked_at=tx.now()))


def rotate_key(
    tx: Transaction, actor: Actor, key_id: str, grace: timedelta, random: RandomBytes
) -> NewKey:
    """Store a new key with the settings of an old one, which expires after the grace.

    A key with an expiry passes its lifetime on: the new key lives as long as the old one was meant
    to.

    Raises
    ------
    KeyNotFound
        There is no such key.
    KeyEnded
        The key is revoked or has expired.
    """
    now, old = tx.now(), tx.lock_key(key_id)
    if old.revoked_at is not None or (old.expires_at is not None and old.expires_at <= now):
        raise KeyEnded(f"the key {key_id} has been revoked or has expired; create another")
    lifetime = None if old.expires_at is None else old.expires_at - old.created_at
    settings = KeySettings(
        name=old.name,
        role=old.role,
        expires_at=None if lifetime is None else now + min(lifetime, LATEST - now),
        items_per_s=old.items_per_s,
        hosts=old.hosts,
        url_prefixes=old.url_prefixes,
    )
    new = _made(settings, now, random)
    tx.add_key(new.key)
    write_audit(tx, actor, "key.create", new.key.key_id, after=shown(new.key))
    expires_at = now + grace if old.expires_at is None else min(old.expires_at, now + grace)
    _end(tx, actor, "key.rotate", old, replace(old, expires_at=expires_at))
    return new


def _end(tx: Transaction, actor: Actor, act: str, before: ApiKey, after: ApiKey) -> None:
    tx.end_key(before.key_id, expires_at=after.expires_at, revoked_at=after.revoked_at)
    write_audit(tx, actor, act, before.key_id, shown(before), shown(after))


def _made(settings: KeySettings, now: datetime, random: RandomBytes) -> NewKey:
    key_id = random(ID_BYTES).hex()
    text = f"{PREFIX}{key_id}_{random(SECRET_BYTES).hex()}"
    key = ApiKey(key_id=key_id, digest=digest_of(text), created_at=now, **asdict(settings))
    return NewKey(text, key)


def _checked(settings: KeySettings, now: datetime) -> KeySettings:
    """Return the settings with normal limits."""
    n_limits = len(settings.hosts) + len(settings.url_prefixes)
    if n_limits and settings.role is Role.admin:
        raise InvalidField("hosts", "a key of role admin cannot be limited; choose another role")
    if n_limits > MAX_LIMITS:
        detail = f"the key has {n_limits} hosts and url_prefixes; name at most {MAX_LIMITS}"
        raise InvalidField("hosts", detail)
    if settings.expires_at is not None and settings.expires_at <= now:
        detail = f"expires_at {settings.expires_at.isoformat()} has passed; name a later instant"
        raise InvalidField("expires_at", detail)
    if settings.expires_at is not None and settings.expires_at > LATEST:
        detail = "expires_at lies after the year 9000; leave it out for a key without an expiry"
        raise InvalidField("expires_at", detail)
    return replace(
        settings,
        hosts=tuple(sorted({normal_host(host) for host in settings.hosts})),
        url_prefixes=tuple(sorted({normal_prefix(url) for url in settings.url_prefixes})),
    )


def shown(key: ApiKey) -> dict[str, Any]:
    """Return the fields of a key that may be shown."""
    return {
        "name": key.name,
        "role": key.role.name,
        "expires_at": key.expires_at,
        "revoked_at": key.revoked_at,
        "items_per_s": key.items_per_s,
        "hosts": list(key.hosts),
        "url_prefixes": list(key.url_prefixes),
    }
