"""The keys in memory: what is accepted, how soon a revoked key is not, and when last uses count."""

import threading
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

import pytest
from support.access_cases import COMMAND, new_key
from support.live_server import until
from support.store_cases import T0

from service.access.gate import Gate
from service.access.keyring import MAX_AGE_S, KeyRing
from service.access.keys import PREFIX, digest_of, revoke_key, rotate_key
from service.access.roles import ADMIN, READ
from service.model.access import Role
from service.model.errors import AccessUnavailable, StoreUnavailable, Unauthorized
from service.storage import open_store


class Seconds:
    """A monotonic clock that stands still."""

    def __init__(self):
        self.now = 1_000.0

    def __call__(self):
        return self.now


def ring_of(store, environment=(), **options):
    """Return a key ring that has read the keys."""

    def now():
        return store.clock()

    ring = KeyRing(store, environment, now, n_slots=4, **options)
    ring.refresh()
    return ring


def revoke(store, key_id):
    with store.begin() as tx:
        revoke_key(tx, COMMAND, key_id)


def test_a_key_has_a_public_id_and_192_random_bits_and_only_its_hash_is_stored(sql_store):
    text, key_id = new_key(sql_store)
    prefix, shown, secret = text.split("_")
    assert (f"{prefix}_", shown, len(bytes.fromhex(secret)) * 8) == (PREFIX, key_id, 192)
    with sql_store.begin(write=False) as tx:
        stored = tx.key(key_id)
    assert stored.digest == digest_of(text)
    assert secret not in repr(stored)
    assert stored.digest.hex() not in repr(stored)


def test_a_key_opens_with_its_role_and_any_other_text_does_not(sql_store):
    text, key_id = new_key(sql_store, Role.report)
    ring = ring_of(sql_store)
    caller = ring.caller(text)
    assert (caller.name, caller.role, caller.known) == (key_id, Role.report, True)
    for other in ("", "x", PREFIX, text[:-1], f"{text}0", text.upper(), f" {text}", text[4:]):
        assert ring.caller(other) is None


def test_a_key_of_the_environment_is_an_administrator(sql_store):
    ring = ring_of(sql_store, ["first of them", "second of them"])
    assert ring.caller("second of them").role is Role.admin
    assert ring.caller("second of them").name == "environment-2"
    assert ring.caller("third of them") is None


def test_a_service_is_open_until_it_has_its_first_key_and_never_again(sql_store):
    ring = ring_of(sql_store)
    gate = Gate(ring)
    assert gate.open
    assert gate.admit("", ADMIN, "post_key").name == "anyone"
    _, key_id = new_key(sql_store)
    ring.refresh()
    assert not gate.open
    revoke(sql_store, key_id)
    ring.refresh()
    assert not gate.open
    with pytest.raises(Unauthorized):
        gate.admit("", READ, "get_page")


def test_an_expired_key_is_refused_without_a_look_at_the_database(sql_store):
    now = T0
    sql_store.clock = lambda: now
    text, _ = new_key(sql_store, expires_at=T0 + timedelta(hours=1))
    ring = ring_of(sql_store)
    assert ring.caller(text) is not None
    now = T0 + timedelta(hours=1)
    assert ring.caller(text) is None


def test_both_keys_work_during_the_grace_of_a_rotation_and_then_the_new_one(sql_store):
    now = T0
    sql_store.clock = lambda: now
    old, key_id = new_key(sql_store, Role.crawl, items_per_s=5.0)
    with sql_store.begin() as tx:
        new = rotate_key(tx, COMMAND, key_id, timedelta(hours=1), lambda n: bytes(range(n)))
    ring = ring_of(sql_store)
    assert ring.caller(old).role is ring.caller(new.text).role is Role.crawl
    assert new.key.items_per_s == 5.0
    now = T0 + timedelta(hours=1)
    assert ring.caller(old) is None
    assert ring.caller(new.text) is not None


def test_a_caller_keeps_its_limits_when_the_keys_are_read_again(sql_store):
    text, _ = new_key(sql_store, items_per_s=1.0)
    ring = ring_of(sql_store)
    before = ring.caller(text)
    new_key(sql_store)
    ring.refresh()
    assert ring.caller(text) is before


def test_keys_that_could_not_be_read_for_five_seconds_are_not_accepted(sql_store):
    text, _ = new_key(sql_store)
    seconds = Seconds()
    ring = ring_of(sql_store, ["an environment key"], seconds=seconds)
    seconds.now += MAX_AGE_S
    assert ring.caller(text) is not None
    seconds.now += 0.1
    with pytest.raises(AccessUnavailable, match="could not be read; send this again"):
        ring.caller(text)
    assert ring.caller("an environment key") is not None
    ring.refresh()
    assert ring.caller(text) is not None


@contextmanager
def following(store):
    """Run a key ring with its thread, as every replica does."""
    gate = Gate(ring_of(store))
    threads = gate.start()
    try:
        yield gate.ring
    finally:
        gate.stop()
        for thread in threads:
            thread.join()


@pytest.mark.dear
def test_a_revoked_key_is_refused_by_every_replica(postgres_store, postgres_url):
    """Each replica has a store of its own; the revocation comes from a third process."""
    text, key_id = new_key(postgres_store)
    replicas = [open_store(postgres_url, 2) for _ in range(2)]
    with following(replicas[0]) as one, following(replicas[1]) as other:
        assert one.caller(text)
        assert other.caller(text)
        revoke(postgres_store, key_id)
        until(lambda: one.caller(text) is None, "the first replica refuses", MAX_AGE_S)
        until(lambda: other.caller(text) is None, "the second replica refuses", MAX_AGE_S)
    for replica in replicas:
        replica.close()


def test_a_revoked_key_is_refused_though_no_notification_arrives(sqlite_store, monkeypatch):
    monkeypatch.setattr("service.access.keyring.POLL_S", 0.01)
    text, key_id = new_key(sqlite_store)
    with following(sqlite_store) as ring:
        assert ring.caller(text)
        revoke(sqlite_store, key_id)
        until(lambda: ring.caller(text) is None, "the key is refused", MAX_AGE_S)


def test_the_last_use_is_written_at_most_once_a_minute(sql_store):
    now = T0
    sql_store.clock = lambda: now
    text, key_id = new_key(sql_store)
    new_key(sql_store)
    ring = ring_of(sql_store)

    def last_used():
        with sql_store.begin(write=False) as tx:
            return tx.key(key_id).last_used_at

    ring.mark_used()
    assert last_used() is None
    for _ in range(3):
        ring.caller(text)
    ring.mark_used()
    assert last_used() == T0
    now = T0 + timedelta(seconds=7)
    ring.caller(text)
    now = T0 + timedelta(seconds=59)
    ring.mark_used()
    assert last_used() == T0
    now = T0 + timedelta(seconds=60)
    ring.mark_used()
    assert last_used() == T0 + timedelta(seconds=7)
    with sql_store.begin(write=False) as tx:
        assert sum(key.last_used_at is None for key in tx.keys("", 10)) == 1


def test_a_last_use_is_never_shown_later_than_it_was(sql_store):
    now = T0
    sql_store.clock = lambda: now
    text, key_id = new_key(sql_store)
    other, other_id = new_key(sql_store)
    ring, second = ring_of(sql_store), ring_of(sql_store)

    def last_used(name):
        with sql_store.begin(write=False) as tx:
            return tx.key(name).last_used_at

    ring.caller(text)
    ring.mark_used()
    now = T0 + timedelta(seconds=5)
    ring.caller(text)
    ring.caller(other)
    now = T0 + timedelta(seconds=6)
    ring.mark_used()
    assert last_used(other_id) == T0 + timedelta(seconds=5)  # its first use waits for no minute
    now = T0 + timedelta(minutes=30)
    ring.mark_used()
    assert last_used(key_id) == T0 + timedelta(seconds=5)
    second.caller(text)
    now = T0 + timedelta(minutes=31)
    ring.caller(text)
    ring.mark_used()
    second.mark_used()  # of an earlier use, by another server
    assert last_used(key_id) == T0 + timedelta(minutes=31)


def test_an_outage_of_the_database_ends_neither_the_thread_nor_the_marks(sqlite_store):
    text, key_id = new_key(sqlite_store)
    ring, failures = ring_of(sqlite_store), threading.Event()
    begin = sqlite_store.begin

    def failing(*, write=True):
        if failures.is_set():
            raise StoreUnavailable
        return begin(write=write)

    sqlite_store.begin = failing
    ring.caller(text)
    failures.set()
    with pytest.raises(StoreUnavailable):
        ring.mark_used()
    failures.clear()
    ring.mark_used()
    with sqlite_store.begin(write=False) as tx:
        assert tx.key(key_id).last_used_at is not None


def test_the_repr_of_an_entry_shows_no_hash(sql_store):
    text, key_id = new_key(sql_store)
    ring = ring_of(sql_store, ["an environment key"])
    entry = ring.find(text)
    assert key_id in repr(entry)
    assert repr(digest_of(text)) not in repr(entry)
    assert replace(entry) == entry
