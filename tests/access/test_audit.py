"""Entries of the audit: what they hold, and that they commit with their act."""

from contextlib import suppress
from datetime import UTC, datetime

import pytest
from support.store_cases import T0

from service.access.audit import write_audit
from service.model.access import Actor, AuditFilter

ACTOR = Actor("0a1b2c3d4e", "job 7")


def entries(store):
    with store.begin(write=False) as tx:
        return tx.audit(None, 10, AuditFilter())


@pytest.mark.dear
def test_an_entry_names_the_author_the_act_and_the_request(sql_store):
    sql_store.clock = lambda: T0
    with sql_store.begin() as tx:
        write_audit(tx, ACTOR, "page.delete", "https://a.example/", before={"importance": 1.0})
    (entry,) = entries(sql_store)
    assert (entry.at, entry.key, entry.request_id) == (T0, "0a1b2c3d4e", "job 7")
    assert (entry.act, entry.object) == ("page.delete", "https://a.example/")
    assert (entry.before, entry.after) == ({"importance": 1.0}, None)


@pytest.mark.dear
def test_a_change_holds_only_the_fields_that_differ(sql_store):
    until = datetime(2026, 1, 1, tzinfo=UTC)
    before = {"min_delay_s": None, "group": "a", "blocked_until": None}
    after = {"min_delay_s": 2.0, "group": "a", "blocked_until": until}
    with sql_store.begin() as tx:
        write_audit(tx, ACTOR, "host.change", "a.example", before, after)
    (entry,) = entries(sql_store)
    assert entry.before == {"min_delay_s": None, "blocked_until": None}
    assert entry.after == {"min_delay_s": 2.0, "blocked_until": "2026-01-01T00:00:00Z"}


def test_an_act_that_is_rolled_back_leaves_no_entry(sql_store):
    with suppress(ZeroDivisionError), sql_store.begin() as tx:
        write_audit(tx, ACTOR, "host.change", "a.example", after={"group": "a"})
        raise ZeroDivisionError
    assert entries(sql_store) == []
