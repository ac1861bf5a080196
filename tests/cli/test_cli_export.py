"""`recrawl export`, and `recrawl import` straight into a database, taken up again if cut short."""

import gzip
import json
import os
import time

import numpy as np
import pytest
from support.live_server import running
from support.polite_cases import Fleet

from service.model.errors import StoreUnavailable
from service.storage import open_store

PAGES = "url,importance,observability\n" + "".join(
    f"https://a.example/{i},{i + 1},incomplete\n" for i in range(30)
)


@pytest.fixture
def learnt_url(sqlite_url):
    """A database that has learnt something."""
    with running(sqlite_url) as live:
        live.clock.advance(days=8)
        for day in range(1, 8):
            live.post(
                "/observations",
                [
                    {
                        "url": f"https://a.example/{i}",
                        "observed_at": f"2026-05-0{day}T00:00:00Z",
                        "digest": f"{day // (i + 1)}",
                    }
                    for i in range(5)
                ],
            )
        live.post("/pings", [{"url": "https://a.example/1", "changed_at": "2026-05-07T12:00:00Z"}])
    return sqlite_url


def contents(url):
    """Give what a database knows of its pages, gaps to the digits that Postgres keeps."""
    store = open_store(url, 3)
    with store.begin(write=False) as tx:
        pages, states = tx.read_pages(0, 1000)
    store.close()
    return {
        page: (importance, *row)
        for page, importance, *row in zip(
            pages.url,
            pages.importance.tolist(),
            states.estimate.tolist(),
            states.last_crawl_at.tolist(),
            np.float32(states.interval_factor).tolist(),
            states.n_pings.tolist(),
            strict=True,
        )
    }


@pytest.mark.dear
@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["all.csv", "all.ndjson.gz", "all.parquet"])
def test_all_that_is_known_moves_to_another_database(
    learnt_url, empty_postgres_url, recrawl, tmp_path, name
):
    recrawl("migrate", database_url=empty_postgres_url)
    out = recrawl("export", tmp_path / name, "--states", "--database-url", learnt_url)
    assert (out.status, out.out) == (0, "")
    assert "5 pages exported, and the settings of 0 hosts and 0 groups to" in out.err
    ended = recrawl("import", tmp_path / name, database_url=empty_postgres_url)
    pages, hosts = ended.out.splitlines()
    assert pages == "5 new pages registered, 5 states restored, 0 lines skipped"
    assert hosts == f"settings of 0 hosts and 0 groups imported from {name}.hosts.ndjson"
    assert contents(empty_postgres_url) == contents(learnt_url)
    assert not list(tmp_path.glob("*.import-progress*"))


def test_pages_are_exported_as_the_service_takes_them(learnt_url, recrawl, tmp_path):
    recrawl("export", tmp_path / "pages.csv", database_url=learnt_url)
    with running(f"sqlite:///{tmp_path / 'other.db'}") as live:
        assert recrawl("import", tmp_path / "pages.csv", "--to", live.url).out.startswith("5 new")
    assert list(contents(f"sqlite:///{tmp_path / 'other.db'}")) == list(contents(learnt_url))


def test_standard_output_is_ndjson_unless_told_otherwise(learnt_url, recrawl):
    ended = recrawl("export", "-", "--database-url", learnt_url)
    assert {json.loads(line)["url"] for line in ended.out.splitlines()} == {
        f"https://a.example/{i}" for i in range(5)
    }
    ended = recrawl("export", "-", "--format", "csv", "--database-url", learnt_url)
    assert (
        ended.out.splitlines()[0]
        == "url,importance,observability,min_crawl_rate,max_crawl_rate,tags,kind"
    )


@pytest.mark.parametrize(
    ("name", "says"), [("all.xls", "must end in .csv"), ("no/all.csv", "No such file")]
)
def test_an_export_that_cannot_be_written_is_refused(learnt_url, recrawl, name, says):
    assert says in recrawl("export", name, database_url=learnt_url).refusal()


def test_a_pipe_is_written_to_and_not_replaced(learnt_url, recrawl, tmp_path):
    pipe = tmp_path / "pages.csv"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    assert recrawl("export", pipe, database_url=learnt_url).status == 0
    assert os.read(reader, 100_000).decode().count("https://a.example/") == 5
    os.close(reader)
    assert pipe.is_fifo()


def test_a_full_disk_is_told_in_a_sentence(learnt_url, recrawl, tmp_path):
    (tmp_path / "pages.csv").symlink_to("/dev/full")
    ended = recrawl("export", "pages.csv", database_url=learnt_url)
    assert ended.status == 2
    assert "No space left on device" in ended.err
    assert "Traceback" not in ended.err


def test_pages_go_straight_to_a_database(database_url, recrawl, tmp_path):
    (tmp_path / "pages.csv").write_text(PAGES + "https://a.example/x,0,\nnowhere,1,\n")
    ended = recrawl("import", tmp_path / "pages.csv", "--database-url", database_url)
    assert (ended.status, ended.out) == (1, "30 new pages registered, 2 lines skipped\n")
    for line, reason in ((32, "importance is 0.0; send a positive number"), (33, "absolute http")):
        assert any(
            said.startswith(f"{tmp_path / 'pages.csv'}:{line}:") and reason in said
            for said in ended.err.splitlines()
        )
    assert contents(database_url)["https://a.example/7"][0] == 8.0


def test_states_of_another_estimator_are_refused(learnt_url, recrawl, tmp_path):
    recrawl("export", tmp_path / "all.csv", "--states", database_url=learnt_url)
    new = f"sqlite:///{tmp_path / 'new.db'}"
    ended = recrawl(
        "import",
        tmp_path / "all.csv",
        database_url=new,
        estimator="naive",
        timing="poisson",
        half_life_days="",
    )
    assert ended.status == 2
    assert "holds states of estimator bursty, the settings ask for naive" in ended.err


def cut_short(monkeypatch, after):
    """Let the database fail once `after` blocks have been registered."""
    from service.storage.stores.sqlite import SqliteTransaction

    registered, whole = [], SqliteTransaction.register

    def register(self, pages, now):
        if len(registered) == after:
            raise StoreUnavailable
        registered.append(len(pages))
        return whole(self, pages, now)

    monkeypatch.setattr(SqliteTransaction, "register", register)
    return registered


@pytest.mark.parametrize("name", ["pages.csv", "pages.csv.gz"])
def test_an_import_that_was_cut_short_is_taken_up(sqlite_url, recrawl, tmp_path, monkeypatch, name):
    path = tmp_path / name
    content = "url\n" + "".join(f"https://b.example/{i}\n" for i in range(12_001))
    path.write_bytes(gzip.compress(content.encode()) if name.endswith("gz") else content.encode())
    with monkeypatch.context() as patch:
        cut_short(patch, after=1)
        assert recrawl("import", path, "--database-url", sqlite_url).status == 2
    assert json.loads((tmp_path / f"{name}.import-progress").read_text())["line"] == 5_001
    with monkeypatch.context() as patch:
        registered = cut_short(patch, after=9)
        ended = recrawl("import", path, "--resume", "--database-url", sqlite_url)
    assert ended.out == "7,001 new pages registered, 0 lines skipped\n"
    assert registered == [5_000, 2_001]
    assert not (tmp_path / f"{name}.import-progress").exists()


def test_what_was_cut_short_is_not_taken_up_with_other_content(
    sqlite_url, recrawl, tmp_path, monkeypatch
):
    path = tmp_path / "pages.csv"
    path.write_text("url\n" + "".join(f"https://b.example/{i}\n" for i in range(6_000)))
    with monkeypatch.context() as patch:
        cut_short(patch, after=1)
        recrawl("import", path, "--database-url", sqlite_url)
    path.write_text(PAGES)
    sentence = recrawl("import", path, "--resume", "--database-url", sqlite_url).refusal()
    assert "other content or another receiver" in sentence
    (tmp_path / "pages.csv.import-progress").write_text("[]")
    sentence = recrawl("import", path, "--resume", "--database-url", sqlite_url).refusal()
    assert "other content or another receiver" in sentence
    assert recrawl("import", path, "--database-url", sqlite_url).status == 0


def test_nothing_to_take_up_begins_at_the_beginning(sqlite_url, recrawl, tmp_path):
    (tmp_path / "pages.csv").write_text(PAGES)
    ended = recrawl("import", tmp_path / "pages.csv", "--resume", "--database-url", sqlite_url)
    assert ended.out == "30 new pages registered, 0 lines skipped\n"


def test_the_polite_crawling_data_set_is_one_command(database_url, recrawl, tmp_path):
    folder = tmp_path / "set"
    folder.mkdir()
    Fleet(250).write(folder, ending=".tsv")
    ended = recrawl("import", folder, database_url=database_url)
    assert (ended.status, ended.out) == (
        0,
        "250 new pages registered, 250 states restored, 0 lines skipped\n",
    )
    assert len(contents(database_url)) == 250


def test_thirty_thousand_pages_of_it_are_learnt_fast(tmp_path):
    """Bounds CPU time per page ten times above what was measured, so as to catch only loops."""
    import numpy as np

    from recrawl_lab.datasets.polite_learning import learnt
    from service.core.estimators.gamma import Gamma

    rng = np.random.default_rng(1)
    n_intervals = rng.integers(1, 98, 30_000)
    page = np.repeat(np.arange(30_000), n_intervals)
    start = time.process_time()
    interval, changed = rng.random(len(page)) + 0.5, rng.random(len(page)) < 0.1
    estimate = learnt(Gamma(), 30_000, page, interval, changed)
    assert estimate.shape == (30_000, 2)
    assert time.process_time() - start < 10
