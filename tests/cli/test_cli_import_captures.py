"""`recrawl import` of lists of URLs and of indexes of captures."""

import json
import re
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest
from support.live_server import running, until
from support.processes import ROOT, environment

pytestmark = pytest.mark.dear

URL = "https://a.example/"


def line(url, at, digest, status="200"):
    item = {"url": url, "mime": "text/html", "status": status, "digest": digest}
    return f"example,a)/ {at} {json.dumps(item)}\n"


CAPTURES = (
    line(URL, "20250101000000", "A")
    + line(URL, "20250111000000", "B")
    + line(URL, "20250111000000", "C")
    + line(URL, "20250112000000", "-", "404")
    + "broken\n"
)


def states(path):
    """Return key, estimate and last crawl of each page, by key."""
    with closing(sqlite3.connect(path)) as driver:
        return driver.execute(
            "SELECT hex(key), estimate, last_crawl_at "
            "FROM pages JOIN page_states USING (page_id) ORDER BY key"
        ).fetchall()


def test_captures_and_lists_are_imported_together(recrawl, tmp_path):
    captures, listed = tmp_path / "captures.txt", tmp_path / "urls.txt"
    captures.write_text(CAPTURES)
    listed.write_text(f"# mine\n\n{URL}b\n{URL}c\nftp://a.example/\n")
    url = f"sqlite:///{tmp_path}/recrawl.db"
    ended = recrawl("import", captures, listed, "--database-url", url)
    assert ended.status == 1
    assert ended.out == (
        "2 new pages registered, 1 line skipped\n"
        "2 captures learnt for 1 page, 1 new; 1 capture without content; "
        "0 late captures; 1 line skipped\n"
    )
    assert f"{captures}:5: is not `key time {{JSON}}`; remove it" in ended.err
    assert f"{listed}:5: " in ended.err
    assert "importing captures" in ended.err
    assert sorted(any(state[1]) for state in states(tmp_path / "recrawl.db")) == [0, 0, 1]
    with running(url) as live:
        pages = [live.get("/pages", url=each).json() for each in (URL, f"{URL}b")]
        why = recrawl("why", URL, url=live.url).out
    assert [page["estimate"]["assumed"] for page in pages] == [False, True]
    assert "evidence    captures of an archive, 0 intervals" in why
    again = recrawl("import", captures, "--database-url", url, "--have-copies")
    assert again.out.startswith("0 captures learnt for 0 pages, 0 new;")
    assert "2 late captures" in again.out


def test_a_dry_run_counts_and_imports_nothing(recrawl, tmp_path):
    captures, listed = tmp_path / "captures.txt", tmp_path / "urls.txt"
    captures.write_text(CAPTURES)
    listed.write_text(f"{URL}b\nnowhere\n")
    ended = recrawl("import", listed, captures, "--dry-run")
    assert ended.status == 1
    assert ended.out == (
        "1 page could be registered, 1 line skipped; nothing was imported\n"
        "2 captures of 1 page with content; 1 capture without content; 1 line skipped; "
        "nothing was imported\n"
    )
    assert not list(tmp_path.glob("*.db"))
    assert "counts lines of pages and captures only" in recrawl("import", tmp_path, "--dry-run").err


def test_a_list_goes_to_a_running_service(sqlite_url, recrawl, tmp_path):
    listed = tmp_path / "urls"
    listed.write_text(f"{URL}b\n{URL}c\n")
    with running(sqlite_url) as live:
        ended = recrawl("import", listed, "--to", live.url)
        assert ended.out == "2 new pages registered, 0 lines skipped\n"
        assert live.get("/pages", url=f"{URL}c").status_code == 200


def test_a_format_that_is_said_counts(recrawl, tmp_path):
    listed = tmp_path / "urls.csv"
    listed.write_text(f"{URL}b\n")
    url = f"sqlite:///{tmp_path}/recrawl.db"
    assert "one of them `url`" in recrawl("import", listed, "--database-url", url).err
    ended = recrawl("import", listed, "--database-url", url, "--format", "urls")
    assert ended.out == "1 new page registered, 0 lines skipped\n"


@pytest.mark.slow
@pytest.mark.parametrize("resume", [["--resume"], []])
def test_a_killed_import_goes_on_and_teaches_nothing_twice(tmp_path, resume):
    """A process is killed after its first commits; the rest comes later."""
    file = tmp_path / "captures.cdxj"
    with file.open("w") as lines:
        for page in range(60_000):
            for turn in range(3):
                lines.write(line(f"{URL}{page}", f"2025010{1 + turn}000000", f"{page % 7 * turn}"))

    def importing(name, *options):
        command = [sys.executable, "-m", "service", "import", str(file), *options]
        url = f"sqlite:///{tmp_path}/{name}.db"
        return subprocess.Popen(
            command, cwd=ROOT, env=environment(database_url=url), stdout=subprocess.PIPE, text=True
        )

    with importing("whole") as process:
        process.communicate()
    assert process.returncode == 0
    progress = tmp_path / "captures.cdxj.import-progress"
    with importing("killed") as process:
        until(progress.is_file, "a part is committed")
        process.kill()
    n_before = len(states(tmp_path / "killed.db"))
    assert 0 < n_before < 60_000
    with importing("killed", *resume) as process:
        printed, _ = process.communicate()
    assert process.returncode == 0
    learnt, late = map(int, re.search(r"^(\d+) .* (\d+) late", printed.replace(",", "")).groups())
    # a part may be committed, and its position not yet written
    assert learnt == 3 * (60_000 - n_before)
    assert late in ((0, 30_000) if resume else (3 * n_before,))
    assert not progress.exists()
    assert states(tmp_path / "killed.db") == states(tmp_path / "whole.db")
