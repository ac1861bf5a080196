"""Each of several databases archives its own days; one that is away holds up no other."""

from urllib.parse import unquote

import pytest
from support.archive_cases import KEPT, Log, rebuilt
from support.command import recrawl  # noqa: F401 - a fixture
from support.shard_cases import N_DATABASES, host_in, map_file
from support.store_cases import DAY, T0, log_columns, same

from recrawl_cluster.sharded import ShardedStore
from recrawl_cluster.store.claims import add
from recrawl_cluster.store.shard_map import read_map
from service.model.errors import ArchiveRunning
from service.storage import CLUSTER
from service.storage.clock import system_clock
from service.transfer.archiving import Archivist, Retention

pytestmark = pytest.mark.slow

HOSTS = tuple(host_in(position) for position in range(N_DATABASES))
FOLDERS = {f"database=db{n}" for n in range(N_DATABASES)}


def sharded_log(shard_urls, tmp_path, **options):
    file = map_file(tmp_path / "cluster.toml", shard_urls)
    store = ShardedStore(read_map(file), 2)
    add(store.databases, store.shard_map)
    store.close()
    return Log(f"{CLUSTER}:///{file}", tmp_path / "archive", hosts=HOSTS, **options)


@pytest.fixture
def log(shard_urls, tmp_path):
    one = sharded_log(shard_urls, tmp_path)
    yield one
    one.store.close()


def folders(files):
    return {unquote(file.name.split("/")[0]) for file in files}


def histories(log):
    with log.store.begin(write=False) as tx:
        return [tx.whole_log(page, 1000) for page in log.ids.tolist()]


def test_each_database_has_its_folder_and_all_readers_see_one_log(log):
    history, states = histories(log), rebuilt(log)
    steps = log.run()
    assert {step.kept for step in steps} == {None}
    assert folders(log.files()) == FOLDERS
    assert all((log.address / file.name).is_file() for file in log.files())
    log.assert_done()
    log.assert_once()
    same(log.read(), log.whole)
    assert histories(log) == history
    same(rebuilt(log), states)
    assert log.run() == []


def test_a_database_that_is_away_is_left_out_and_archives_later(log):
    away = log.again()
    away.databases[0].abort()
    steps = log.run(away)
    (left_out,) = [step for step in steps if step.away]
    assert left_out.name == "database db0"
    assert "db0 of the shards is away" in left_out.kept
    assert folders(log.files()) == FOLDERS - {"database=db0"}
    same(log.read(), log.whole)
    away.close()
    log.run()
    assert folders(log.files()) == FOLDERS
    log.assert_done()
    log.assert_once()


def test_a_database_that_another_process_archives_is_left_out(log):
    other = log.again()
    with other.databases[2].archiving():
        steps = log.run()
    other.close()
    assert [step.name for step in steps if step.away] == ["database db2"]
    assert folders(log.files()) == FOLDERS - {"database=db2"}


def test_one_database_says_that_another_process_archives(log):
    part = log.store.parts[0]
    with part.archiving(), pytest.raises(ArchiveRunning):
        log.run(part)


def test_a_worker_archives_all_databases(log):
    n_rows = Archivist(log.store, Retention(KEPT, KEPT)).run_once()
    assert n_rows == sum(file.n_rows for file in log.files()) > 0
    log.assert_done()
    log.assert_once()


def test_late_entries_go_to_the_folder_of_their_database(log):
    log.run()
    names = {file.name for file in log.files()}
    log.append(log_columns(log.ids[:3], [T0 + 2 * DAY] * 3, interval=1.5, changed=1))
    log.whole = log.read()
    log.run()
    assert folders(file for file in log.files() if file.name not in names) == {"database=db0"}
    log.assert_done()
    log.assert_once()


def test_the_command_archives_and_checks_all_databases(shard_urls, tmp_path, recrawl):  # noqa: F811
    log = sharded_log(shard_urls, tmp_path, clock=system_clock)
    file = tmp_path / "cluster.toml"
    settings = {"cluster": file, "archive": log.address, "retention_days": "10"}
    shown = recrawl("archive", "--dry-run", **settings)
    assert shown.status == 0, shown.err
    assert log.files() == []
    moved = recrawl("archive", **settings)
    assert moved.status == 0
    assert moved.out.startswith(f"{len(log.whole):,} entries archived in {len(log.files())} files")
    log.assert_once()
    n_files = len(log.files())
    checked = recrawl("archive", "--check", **settings)
    assert (checked.status, checked.out) == (
        0,
        f"{n_files} of {n_files} files are as they were written\n",
    )
    file.write_text(file.read_text().replace(shard_urls[0], shard_urls[0] + "_away"))
    left_out = recrawl("archive", **settings)
    assert left_out.status == 1
    assert "database db0 stays: " in left_out.err.replace("\n", " ")
    log.store.close()
