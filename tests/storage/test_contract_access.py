"""What every database promises of keys and of the audit (see `service.storage.access.contract`)."""

import threading
import time
from contextlib import suppress
from dataclasses import replace

import pytest
from support.store_cases import DAY, T0

from service.model.access import ApiKey, AuditEntry, AuditFilter, Role
from service.model.errors import KeyNotFound
from service.storage import open_store

KEY = ApiKey("0a1b2c3d4e", bytes(range(32)), "fleet", Role.crawl, T0)
ENTRY = AuditEntry(T0, "0a1b2c3d4e", "host.change", "a.example", {"x": None}, {"x": 1.5}, "job 7")
ALL = AuditFilter()


def add(store, *keys):
    with store.begin() as tx:
        for key in keys:
            tx.add_key(key)


def append(store, *entries):
    with store.begin() as tx:
        for entry in entries:
            tx.append_audit(entry)


def read(store, statement, *values):
    with store.begin(write=False) as tx:
        return getattr(tx, statement)(*values)


def objects(entries):
    return [entry.object for entry in entries]


def test_a_key_comes_out_as_it_went_in(sql_store):
    whole = replace(
        KEY,
        key_id="f" * 10,
        role=Role.read,
        expires_at=T0 + DAY,
        last_used_at=T0 + DAY / 2,
        revoked_at=T0 + 2 * DAY,
        items_per_s=2.5,
        hosts=("a.example", "b.example"),
        url_prefixes=("https://c.example/d",),
    )
    add(sql_store, KEY, whole)
    assert read(sql_store, "key", KEY.key_id) == KEY
    assert read(sql_store, "key", whole.key_id) == whole
    with sql_store.begin() as tx:
        assert tx.lock_key(KEY.key_id) == KEY


def test_an_unknown_key_is_not_found(sql_store):
    with pytest.raises(KeyNotFound, match="no key has the id nobody; `recrawl keys list` and GET"):
        read(sql_store, "key", "nobody")


def test_keys_are_listed_by_id_in_parts(sql_store):
    add(sql_store, *(replace(KEY, key_id=name) for name in "cab"))
    assert [key.key_id for key in read(sql_store, "keys", "", 2)] == ["a", "b"]
    assert [key.key_id for key in read(sql_store, "keys", "b", 2)] == ["c"]


def test_revoked_and_expired_keys_are_listed_and_not_usable(sql_store):
    add(
        sql_store,
        replace(KEY, key_id="revoked", revoked_at=T0),
        replace(KEY, key_id="expired", expires_at=T0 + DAY),
        replace(KEY, key_id="expiring", expires_at=T0 + 2 * DAY),
        KEY,
    )
    usable = {key.key_id for key in read(sql_store, "usable_keys", T0 + DAY)}
    assert usable == {"expiring", KEY.key_id}
    assert len(read(sql_store, "keys", "", 10)) == 4


def test_a_store_knows_whether_it_has_ever_had_a_key(sql_store):
    assert not read(sql_store, "any_key")
    add(sql_store, replace(KEY, revoked_at=T0))
    assert read(sql_store, "any_key")


def test_every_change_of_keys_draws_a_new_version_and_a_use_does_not(sql_store):
    assert read(sql_store, "keys_version") == ""
    add(sql_store, KEY)
    first = read(sql_store, "keys_version")
    with sql_store.begin() as tx:
        tx.end_key(KEY.key_id, expires_at=T0 + DAY, revoked_at=None)
    second = read(sql_store, "keys_version")
    assert len({"", first, second}) == 3
    with sql_store.begin() as tx:
        tx.mark_used([KEY.key_id, "nobody"], T0 + DAY)
    assert read(sql_store, "keys_version") == second
    used = replace(KEY, expires_at=T0 + DAY, last_used_at=T0 + DAY)
    assert read(sql_store, "key", KEY.key_id) == used


def test_a_change_that_is_rolled_back_changes_nothing(sql_store):
    with suppress(ZeroDivisionError), sql_store.begin() as tx:
        tx.add_key(KEY)
        tx.append_audit(ENTRY)
        raise ZeroDivisionError
    assert read(sql_store, "keys_version") == ""
    assert not read(sql_store, "any_key")
    assert read(sql_store, "audit", None, 10, ALL) == []


def test_a_change_of_keys_wakes_another_process_on_postgres(postgres_store, postgres_url):
    other, woken = open_store(postgres_url, 2), threading.Event()

    def wait():
        while not woken.is_set():
            started = time.monotonic()
            other.wait_for_keys(60, threading.Event())
            if time.monotonic() - started < 50:
                woken.set()

    waiting = threading.Thread(target=wait)
    waiting.start()
    number = 0
    while not woken.wait(0.05):  # the first notices may come before the other listens
        add(postgres_store, replace(KEY, key_id=f"key {number}"))
        number += 1
        assert number < 1_000
    waiting.join()
    other.close()


def test_an_event_ends_a_wait_for_keys(sql_store):
    ended = threading.Event()
    waiting = threading.Thread(target=sql_store.wait_for_keys, args=(60, ended))
    waiting.start()
    ended.set()
    waiting.join(30)
    assert not waiting.is_alive()


def test_a_wait_for_keys_lasts_as_long_while_the_database_is_away():
    store = open_store("postgresql://nobody@127.0.0.1:1/nothing", 2)
    started = time.monotonic()
    store.wait_for_keys(0.1, threading.Event())
    assert 0.1 <= time.monotonic() - started < 10
    store.close()


def test_an_entry_of_the_audit_comes_out_as_it_went_in(sql_store):
    append(sql_store, ENTRY, replace(ENTRY, before=None, after=None, request_id=None))
    second, first = read(sql_store, "audit", None, 10, ALL)
    assert replace(first, entry=0) == ENTRY
    assert replace(second, entry=0) == replace(ENTRY, before=None, after=None, request_id=None)
    assert second.entry > first.entry > 0


def test_the_audit_is_read_newest_first_in_parts(sql_store):
    append(sql_store, *(replace(ENTRY, object=name) for name in "abcde"))
    newest = read(sql_store, "audit", None, 2, ALL)
    assert objects(newest) == ["e", "d"]
    assert objects(read(sql_store, "audit", newest[-1].entry, 10, ALL)) == ["c", "b", "a"]


@pytest.mark.parametrize(
    ("only", "expected"),
    [
        (AuditFilter(key="k"), ["b"]),
        (AuditFilter(act="key.revoke"), ["c"]),
        (AuditFilter(object="d"), ["d"]),
        (AuditFilter(since=T0 + DAY), ["d", "c", "b"]),
        (AuditFilter(until=T0 + DAY), ["a"]),
        (AuditFilter(since=T0 + DAY, until=T0 + 2 * DAY), ["b"]),
        (AuditFilter(key="k", act="key.revoke"), []),
    ],
)
def test_the_audit_is_filtered(sql_store, only, expected):
    append(
        sql_store,
        replace(ENTRY, object="a"),
        replace(ENTRY, object="b", key="k", at=T0 + DAY),
        replace(ENTRY, object="c", act="key.revoke", at=T0 + 2 * DAY),
        replace(ENTRY, object="d", at=T0 + 3 * DAY),
    )
    assert objects(read(sql_store, "audit", None, 10, only)) == expected


def test_retention_cuts_the_oldest_entries_in_blocks(sql_store):
    append(sql_store, *(replace(ENTRY, object=str(i), at=T0 + i * DAY) for i in range(5)))
    for expected in (2, 1, 0):
        with sql_store.begin() as tx:
            assert tx.cut_audit(T0 + 3 * DAY, 2) == expected
    assert objects(read(sql_store, "audit", None, 10, ALL)) == ["4", "3"]


def test_the_first_secret_of_the_console_stays(sql_store):
    assert read(sql_store, "console_secret") == ""
    for secret in ("first", "second"):
        with sql_store.begin() as tx:
            tx.keep_console_secret(secret)
    assert read(sql_store, "console_secret") == "first"


def test_ends_of_sessions_are_kept_once_until_they_are_forgotten(sql_store):
    assert read(sql_store, "ended_sessions") == frozenset()
    with sql_store.begin() as tx:
        before = tx.keys_version()
        for session, at in ((b"a" * 32, T0), (b"b" * 32, T0 + DAY), (b"a" * 32, T0 + 2 * DAY)):
            tx.end_session(session, at)
        assert tx.keys_version() != before
    assert read(sql_store, "ended_sessions") == {b"a" * 32, b"b" * 32}
    with sql_store.begin() as tx:
        tx.forget_sessions(T0 + DAY)
    assert read(sql_store, "ended_sessions") == {b"b" * 32}
