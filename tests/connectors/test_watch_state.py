"""The file of `recrawl watch`: what it keeps, also after an end in the middle of a write."""

import sqlite3

import pytest

from service.connectors import watch_state
from service.connectors.watch_state import Child, Document, FeedSettings, WatchState
from service.model.errors import UnreadableFile

URL, OTHER = "https://a.example/s.xml", "https://a.example/t.xml"
SERVICE = "http://127.0.0.1:8000"
READ = Document("urlset", '"1"', "", "www", (Child(OTHER, 7.5), Child(URL, None)), 8.0, 9.0)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "watch.db"


def test_a_document_comes_out_as_it_went_in(path):
    WatchState(path, SERVICE).remember(URL, READ, ["https://a.example/1"])
    again = WatchState(path, SERVICE)
    assert again.document(URL) == READ
    assert again.document(OTHER) is None


def test_addresses_that_leave_wait_until_they_are_asked_for(path):
    state = WatchState(path, SERVICE)
    state.remember(URL, READ, ["b", "a", "c"])
    state.remember(URL, READ._replace(read_at=10.0), ["b"])
    again = WatchState(path, SERVICE)
    assert again.left(0.0, 10) == ["a", "c"]
    assert again.left(0.0, 1) == ["a"]
    again.forget_left(["a"])
    assert again.left(0.0, 10) == ["c"]


def test_an_address_that_another_document_of_the_round_names_has_not_left(path):
    state = WatchState(path, SERVICE)
    state.remember(URL, READ, ["a", "b"])
    state.remember(OTHER, READ._replace(read_at=5.0), ["b"])
    state.remember(URL, READ._replace(read_at=10.0), ["c"])
    assert state.left(10.0, 10) == ["a", "b"]  # the other was not seen in this round
    state.see(OTHER, 10.0)
    assert state.left(10.0, 10) == ["a"]
    assert state.left(10.0, 10) == ["a"]


def test_a_read_without_addresses_keeps_those_of_the_read_before(path):
    state = WatchState(path, SERVICE)
    state.remember(URL, READ, ["a", "b"])
    state.remember(URL, READ)
    assert state.left(0.0, 10) == []
    state.remember(URL, READ, ["a"])
    assert state.left(0.0, 10) == ["b"]


def test_an_end_in_the_middle_of_a_write_leaves_the_state_before(path, monkeypatch):
    state = WatchState(path, SERVICE)
    state.remember(URL, READ, ["a", "b"])
    monkeypatch.setattr(watch_state, "SAVE", "INSERT INTO nowhere VALUES (1)")
    with pytest.raises(sqlite3.OperationalError):
        state.remember(URL, READ._replace(etag='"2"'), ["a"])
    again = WatchState(path, SERVICE)
    assert again.document(URL) == READ
    assert again.left(0.0, 10) == []


def test_the_number_of_waiting_addresses_is_bounded(path, monkeypatch):
    monkeypatch.setattr(watch_state, "MOST_LEFT", 3)
    state = WatchState(path, SERVICE)
    for begin in (0, 10):
        state.remember(URL, READ, map(str, range(begin, begin + 5)))
        state.remember(URL, READ, ["x"])
    assert len(state.left(0.0, 100)) == 3


def test_a_document_that_nobody_names_is_forgotten_after_some_months(path):
    state = WatchState(path, SERVICE)
    state.remember(URL, READ)
    state.forget_old(9.0 + watch_state.KEPT_S)
    assert state.document(URL) == READ
    state.forget_old(10.0 + watch_state.KEPT_S)
    assert state.document(URL) is None


def test_settings_of_feeds_are_kept_and_summed(path):
    state = WatchState(path, SERVICE)
    assert (state.has_feed(URL), state.feed(URL)) == (False, FeedSettings())
    state.remember_feed(URL, FeedSettings(2.0, 3.0, "hub"))
    state.remember_feed(OTHER, FeedSettings(None, 3.0))
    assert (state.has_feed(URL), state.feed(URL)) == (True, FeedSettings(2.0, 3.0, "hub"))
    assert state.sum_of_minima() == 2.0


def test_another_receiver_knows_nothing(path):
    state = WatchState(path, SERVICE)
    state.remember(URL, READ, ["a"])
    state.remember_feed(URL, FeedSettings())
    other = WatchState(path, "http://other.example")
    assert (other.document(URL), other.has_feed(URL)) == (None, False)


def test_a_state_of_another_version_is_refused(path):
    state = WatchState(path, SERVICE)
    state.db.execute("PRAGMA user_version = 2")
    with pytest.raises(UnreadableFile, match="remove or rename it"):
        WatchState(path, SERVICE)


def test_without_a_folder_the_state_is_in_memory(tmp_path):
    state = WatchState(tmp_path / "nowhere" / "watch.db", SERVICE)
    state.remember(URL, READ)
    assert state.document(URL) == READ


def test_a_restored_receiver_knows_nothing_and_others_know_all(path):
    state = WatchState(path, SERVICE)
    state.remember(URL, READ, ["a"])
    assert not state.recognise("0a1b2c3d")  # the command before did not know it
    assert (state.document(URL), state.recognise("0a1b2c3d")) == (READ, False)
    again = WatchState(path, SERVICE)
    assert (again.recognise("0a1b2c3d"), again.document(URL)) == (False, READ)
    assert (again.recognise("4e5f6071"), again.document(URL)) == (True, None)
    other = WatchState(path, "http://other.example")
    assert not other.recognise("4e5f6071")
