"""The map of shards: a stable hash, ids that name their shard, and files with faults."""

from itertools import pairwise

import numpy as np
import pytest

from recrawl_cluster.store.shard_map import (
    SHIFT,
    Database,
    ShardMap,
    format_shards,
    hashed,
    parse_shards,
    read_map,
)
from service.model.errors import InvalidSettings

GOLDEN = {
    "example.com": 1424565772579972710,
    "xn--bcher-kva.example": 17653785693783144121,
    "127.0.0.1": 12668793064369133196,
}


def a_map(*spans: str, logical: int = 64, **fields) -> ShardMap:
    databases = (
        Database(f"db{n}", f"postgresql://x/{n}", parse_shards(span, logical))
        for n, span in enumerate(spans)
    )
    return ShardMap(logical, tuple(databases), **fields)


@pytest.mark.parametrize("host", GOLDEN)
def test_the_hash_of_a_host_never_changes(host):
    assert hashed(host) == GOLDEN[host]


def test_hosts_spread_evenly_over_the_shards():
    shards = a_map("0-63").shards_of(np.array([f"www{i}.example" for i in range(64_000)], object))
    n = np.bincount(shards, minlength=64)
    assert ((n - 1000) ** 2 / 1000).sum() < 103.4, "chi-squared, 63 degrees, p = 0.001"


def test_an_exception_comes_before_the_hash():
    shard_map = a_map("0-63", exceptions={"big.example": 7})
    hosts = np.array(["big.example", "example.com"], object)
    assert shard_map.shards_of(hosts).tolist() == [7, GOLDEN["example.com"] % 64]


def test_an_id_names_its_database():
    shard_map = a_map("0-9, 20", "10-19, 21-63", coordinator=1)
    ids = [5, (9 << SHIFT) + 1, (10 << SHIFT) + 2**42 - 1, -((20 << SHIFT) + 3), 0, -1, 2**62]
    assert shard_map.databases_of_ids(np.array(ids)).tolist() == [0, 0, 1, 0, 1, 1, 1]


def test_ids_of_all_shards_stay_below_what_json_readers_keep():
    assert 1024 << SHIFT <= 2**53


def test_stretches_cover_every_id_once():
    shard_map = a_map("0-9, 20", "10-19, 21-63")
    stretches = shard_map.stretches
    assert [stretch.database for stretch in stretches] == [0, 1, 0, 1]
    assert stretches[0].after == 0
    assert all(a.last == b.after for a, b in pairwise(stretches))
    assert stretches[-1].last == (64 << SHIFT) - 1
    for stretch in stretches:
        ends = np.array([max(stretch.after, 0) + 1, stretch.last])
        assert shard_map.databases_of_ids(ends).tolist() == [stretch.database] * 2


def test_shards_are_written_as_they_are_read():
    shards = frozenset({0, 1, 5, 7, 8, 9})
    assert parse_shards(format_shards(shards), 64) == shards
    assert format_shards(frozenset()) == ""


GOOD = """
logical = 64
[[databases]]
url = "postgresql://a/one"
shards = "0-31"
[[databases]]
name = "two"
url = "postgresql://a/two"
shards = "32-63"
coordinator = true
[exceptions]
"big.example" = 40
"""


def test_a_file_is_read(tmp_path):
    path = tmp_path / "cluster.toml"
    path.write_text(GOOD)
    shard_map = read_map(path)
    assert [database.name for database in shard_map.databases] == ["1", "two"]
    assert (shard_map.coordinator, shard_map.version) == (1, 1)
    assert shard_map.shard_of("big.example") == 40
    assert "postgresql" not in repr(shard_map), "a URL may have a password"


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("logical = 64", "logical = 32", "logical must be a whole number from 64 to 1024, not 32"),
        ("logical = 64", "logical = true", "logical must be a whole number"),
        ("logical = 64", "", "logical must be a whole number from 64 to 1024, not None"),
        ("logical = 64", "logical = 64\nversion = 0", "version must be a whole number from 1"),
        ("logical = 64", "logical = 64\nshard = 1", "the file has the unknown key shard; known"),
        ('shards = "0-31"', 'shards = "0-30"', "shards 31 are in no database"),
        ('shards = "0-31"', 'shards = "0-32"', "shard 32 is in 1 and in two; keep one of them"),
        ('shards = "0-31"', 'shards = "0-64"', "database 1: '0-64' is no range of logical shards"),
        ('shards = "0-31"', 'shards = "9-3"', "'9-3' is no range"),
        ('shards = "0-31"', "shards = 31", 'must be text such as "0-63, 70", not 31'),
        ('name = "two"', 'name = "1"', "databases 1 and 2 have the same name"),
        ("a/two", "a/one", "databases 1 and 2 have the same url"),
        ("postgresql://a/two", "sqlite:///x", "database 2: url must be postgresql://"),
        ("coordinator = true", "coordinator = 1", "database 2: coordinator must be true or false"),
        ("coordinator = true", "owner = true", "database 2 has the unknown key owner"),
        ('"big.example" = 40', '"big.example" = 64', "big.example = 64 is no logical shard"),
        ('"big.example" = 40', "big.example = 40", "put the host in quotes"),
        ("big.example", "WWW.Big.Example", "write 'www.big.example'"),
        ("big.example", "big.example/a", '"big.example/a" is not a host name'),
        (GOOD, "logical = 64", "databases is missing"),
        (GOOD, "logical = 64\ndatabases = [1]", "write [[databases]] in double brackets"),
        (GOOD, "logical", "is not TOML"),
    ],
)
def test_a_fault_of_a_file_is_named_with_its_place(tmp_path, old, new, sentence):
    path = tmp_path / "cluster.toml"
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(InvalidSettings) as error:
        read_map(path)
    assert sentence in error.value.detail
    assert error.value.detail.startswith(f"RECRAWL_CLUSTER: {path}")


def test_two_coordinators_are_refused(tmp_path):
    path = tmp_path / "cluster.toml"
    path.write_text(GOOD.replace('shards = "0-31"', 'shards = "0-31"\ncoordinator = true'))
    with pytest.raises(InvalidSettings, match="1, two are all coordinator"):
        read_map(path)


def test_a_file_that_is_missing_is_named(tmp_path):
    with pytest.raises(InvalidSettings, match=r"none\.toml cannot be read: No such file"):
        read_map(tmp_path / "none.toml")
