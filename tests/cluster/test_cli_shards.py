"""`recrawl shards`: join databases, and show them."""

import psycopg
import pytest
from support.shard_cases import map_file

pytestmark = pytest.mark.slow


def test_databases_are_migrated_joined_and_shown(recrawl, shard_urls, tmp_path):
    settings = {"cluster": map_file(tmp_path / "cluster.toml", shard_urls)}
    assert "is at revision" in recrawl("migrate", **settings).out
    before = recrawl("shards", "status", **settings)
    assert before.status == 1
    assert "has no shards yet" in " ".join(before.err.split())
    assert recrawl("shards", "add", **settings).out == "joined: db0, db1, db2\n"
    assert recrawl("shards", "add", **settings).out == "no database is new\n"
    after = recrawl("shards", "status", **settings)
    assert after.status == 0, after.err
    assert "db1 (coordinator)" in after.err
    assert after.err.count(" ok") == 3
    created = recrawl("keys", "create", "crawler", "--role", "crawl", **settings)
    assert created.out.startswith("rcr_"), created.err
    with psycopg.connect(shard_urls[1]) as coordinator:
        assert coordinator.execute("SELECT count(*) FROM api_keys").fetchone() == (1,)


def test_status_names_a_database_that_is_away(recrawl, shard_urls, tmp_path):
    urls = [*shard_urls[:2], "postgresql://nobody@127.0.0.1:1/none"]
    shown = recrawl("shards", "status", cluster=map_file(tmp_path / "cluster.toml", urls))
    assert shown.status == 1
    assert "db2" in shown.err


def test_adopt_reports_the_hosts(recrawl, shard_urls, tmp_path):
    path = map_file(tmp_path / "cluster.toml", [shard_urls[1], shard_urls[0], shard_urls[2]])
    text = path.read_text()
    path.write_text(text.replace("true", "false").replace("false", "true", 1))
    assert "adopted: 0 hosts" in recrawl("shards", "adopt", cluster=path).out
    assert recrawl("shards", "add", cluster=path).out == "joined: db1, db2\n"


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({}, "RECRAWL_CLUSTER is not set"),
        ({"cluster": "none.toml"}, "none.toml cannot be read"),
        ({"cluster": "a.toml", "database_url": "sqlite:///b.db"}, "are both set; unset one"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(recrawl, settings, sentence):
    assert sentence in recrawl("shards", "status", **settings).refusal()


def test_a_shard_moves_and_status_shows_its_new_place(recrawl, shard_urls, tmp_path):
    settings = {"cluster": map_file(tmp_path / "cluster.toml", shard_urls)}
    recrawl("shards", "add", **settings)
    dry = recrawl("shards", "move", "20", "--to", "db2", "--dry-run", **settings)
    assert dry.out.startswith("shard 20 would move from db0 to db2: 0 hosts, 0 pages"), dry.err
    moved = recrawl("shards", "move", "20", "--to", "db2", "--grace-s", "0", **settings)
    assert moved.status == 0, moved.err
    assert moved.out.splitlines()[-1] == "shard 20 has moved to db2"
    shown = " ".join(recrawl("shards", "status", **settings).err.split())
    assert "db0 0-19" in shown
    assert "db2 20, 43-63" in shown
    assert (
        "is in db2 already" in recrawl("shards", "move", "20", "--to", "db2", **settings).refusal()
    )
    assert "has no database x" in recrawl("shards", "move", "20", "--to", "x", **settings).refusal()
    nothing = recrawl("shards", "move", "3", "--to", "db2", "--cancel", **settings)
    assert "no move of shard 3" in nothing.refusal()
