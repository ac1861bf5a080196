"""Keys of every role, and calls with them."""

import secrets
from datetime import timedelta

from service.access.keys import KeySettings, create_key, revoke_key
from service.model.access import Actor, Role

ADMIN = "an administrator of the environment"
"""Key of the environment."""
COMMAND = Actor("command-line")


def new_key(store, role=Role.admin, name="test", **settings):
    """Create a key in the store; return its text and its id."""
    with store.begin() as tx:
        wish = KeySettings(name, role, **settings)
        new = create_key(tx, COMMAND, wish, secrets.token_bytes)
    return new.text, new.key.key_id


def expired_key(live, role):
    """Return a key that has expired by the clock of a live service."""
    text, _ = new_key(live.service.store, role, expires_at=live.clock() + timedelta(hours=1))
    live.service.gate.ring.refresh()
    live.clock.advance(hours=2)
    return text


def revoked_key(live, role):
    """Return a key that has been revoked."""
    text, key_id = new_key(live.service.store, role)
    with live.service.store.begin() as tx:
        revoke_key(tx, COMMAND, key_id)
    live.service.gate.ring.refresh()
    return text


def bearer(key):
    """Return the header of a key; without a key, none."""
    return {} if key is None else {"Authorization": f"Bearer {key}"}
