"""SQLite's error codes: troubles of the file are outages, all others are faults of the service."""

import sqlite3

import pytest

from service.model.errors import StoreFull, StoreUnavailable
from service.storage.sqlite.connections import translated

FULL = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE}
UNAVAILABLE = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_BUSY_SNAPSHOT,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_IOERR_FSYNC,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_READONLY_DBMOVED,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_INTERRUPT,
    sqlite3.SQLITE_PERM,
}
FAULTS = {
    sqlite3.SQLITE_ERROR,
    sqlite3.SQLITE_MISUSE,
    sqlite3.SQLITE_RANGE,
    sqlite3.SQLITE_CONSTRAINT,
    sqlite3.SQLITE_SCHEMA,
    sqlite3.SQLITE_TOOBIG,
    sqlite3.SQLITE_MISMATCH,
    sqlite3.SQLITE_INTERNAL,
}


def fail(code: int) -> None:
    error = sqlite3.OperationalError("as SQLite says")
    error.sqlite_errorcode = code
    with translated():
        raise error


@pytest.mark.parametrize("code", sorted(FULL))
def test_no_room_is_a_full_store(code):
    with pytest.raises(StoreFull):
        fail(code)


@pytest.mark.parametrize("code", sorted(UNAVAILABLE))
def test_a_trouble_of_the_file_or_of_others_is_an_outage(code):
    with pytest.raises(StoreUnavailable):
        fail(code)


@pytest.mark.parametrize("code", sorted(FAULTS))
def test_every_other_code_is_a_fault_and_stays_what_it_is(code):
    with pytest.raises(sqlite3.OperationalError):
        fail(code)


@pytest.mark.parametrize("statement", ["SELEKT 1", "SELECT nothing FROM pages", "SELECT ?"])
def test_a_statement_that_sqlite_rejects_is_no_outage(sqlite_store, statement):
    with pytest.raises(sqlite3.Error), sqlite_store.begin(write=False) as tx:
        tx.run(statement)


def test_a_read_only_file_is_named_as_such():
    with pytest.raises(StoreUnavailable, match="read-only"):
        fail(sqlite3.SQLITE_READONLY)
