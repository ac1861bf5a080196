"""`recrawl restored`, and imports that a restore has interrupted."""

import shutil
import sqlite3
from contextlib import closing

import pytest
from support.live_server import running

from service.runtime.bootstrap import opened
from service.runtime.settings import read_settings


def registered(recrawl, folder, url, name):
    (folder / "pages.csv").write_text(f"url\nhttps://{name}.example/\n")
    assert recrawl("import", "pages.csv", "--database-url", url).status == 0


def page_ids(url):
    store = opened(read_settings(database_url=url)).store
    with closing(store), store.begin(write=False) as tx:
        return tx.next_page_ids(0, 100).tolist()


def test_an_operator_says_that_the_database_was_restored(recrawl, database_url, tmp_path):
    with closing(opened(read_settings(database_url=database_url)).store):
        pass
    printed = recrawl("restored", database_url=database_url)
    assert printed.status == 0, printed.err
    first = int(printed.out.partition("the id ")[2].partition(",")[0])
    assert first > 2**32
    registered(recrawl, tmp_path, database_url, "a")
    assert page_ids(database_url) == [first]


def test_webhooks_send_again_once_somebody_confirms(recrawl, database_url):
    with running(database_url) as live:
        hook = {"url": "https://93.184.216.34/hook"}
        assert live.client.post("/webhooks", json=hook).is_success
        assert recrawl("restored", database_url=database_url).status == 0
        (held,) = live.get("/webhooks").json()["items"]
        assert held["status"] == live.get(f"/webhooks/{held['id']}").json()["status"] == "held"
        assert "`recrawl send-webhooks` lets it send" in held["reason"]
        assert "held" in live.client.get(f"/console/webhooks/{held['id']}").text
        (need,) = [
            each
            for each in live.get("/status").json()["needs_you"]
            if each["kind"] == "webhooks_held"
        ]
        assert need["remedy"] == "recrawl send-webhooks"
        printed = recrawl("send-webhooks", database_url=database_url)
        assert printed.out == "webhooks send again\n", printed.err
        again = recrawl("send-webhooks", database_url=database_url)
        assert again.out == "webhooks were not held\n"
        (free,) = live.get("/webhooks").json()["items"]
        assert (free["status"], free["reason"]) == ("active", None)
        assert "webhooks_held" not in live.get("/status").text
        (act, *_) = live.get("/audit").json()["items"]
        assert (act["key"], act["act"]) == ("command-line", "webhooks.release")


def test_a_restore_is_told_beside_the_output_of_a_command(recrawl, tmp_path):
    registered(recrawl, tmp_path, f"sqlite:///{tmp_path / 'recrawl.db'}", "a")
    (tmp_path / "recrawl.db-marks").unlink()
    exported = recrawl("export", "all.ndjson", database_url=f"sqlite:///{tmp_path / 'recrawl.db'}")
    assert exported.status == 0
    assert "the database was restored" in exported.err
    assert "restored" not in exported.out


def test_a_missing_file_is_not_made_by_saying_so(recrawl, tmp_path):
    printed = recrawl("restored", database_url=f"sqlite:///{tmp_path / 'none.db'}")
    assert "there is no database" in printed.refusal()
    assert not (tmp_path / "none.db").exists()


@pytest.mark.parametrize("restored", [False, True])
def test_an_import_goes_on_only_in_the_incarnation_that_has_its_pages(tmp_path, restored):
    """After a restore the first pages of the file are missing again."""
    from service.cli.file_steps import receiver_of

    url = f"sqlite:///{tmp_path / 'recrawl.db'}"

    def receiver():
        base = opened(read_settings(database_url=url))
        with closing(base.store):
            return receiver_of(base, url)

    before = receiver()
    if restored:
        with closing(sqlite3.connect(tmp_path / "recrawl.db")) as source:
            source.execute(f"VACUUM INTO '{tmp_path / 'backup.db'}'")
        assert receiver() == before
        shutil.copy(tmp_path / "backup.db", tmp_path / "recrawl.db")
    assert (receiver() == before) is not restored
