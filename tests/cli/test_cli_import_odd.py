"""Odd sources of `recrawl import`: empty files, pipes, and files of another kind."""

import gzip
import io
import os
import threading

import pytest

URLS = "".join(f"https://a.example/{n}\n" for n in range(300))


def imported(recrawl, path, *options):
    return recrawl(
        "import", path, *options, "--database-url", f"sqlite:///{path.parent}/recrawl.db"
    )


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("empty.txt", b""),
        ("comments.txt", b"# none yet\r\n\r\n"),
        ("header.csv", b"url,importance\n"),
        ("empty.txt.gz", gzip.compress(b"", mtime=0)),
        ("mark.txt", b"\xef\xbb\xbf"),
        ("header.cdx", b" CDX N b a m s k r M S V g\n"),
    ],
)
@pytest.mark.parametrize("options", [(), ("--dry-run",)])
def test_a_file_without_a_page_is_named_and_ends_with_1(recrawl, tmp_path, name, content, options):
    path = tmp_path / name
    path.write_bytes(content)
    ended = imported(recrawl, path, *options)
    assert (ended.status, ended.out) == (
        1,
        f"{name} has nothing to import: at most a header, comments or blank lines\n",
    )


def test_a_resumed_import_without_further_lines_is_complete(recrawl, tmp_path, monkeypatch):
    path = tmp_path / "urls.txt"
    path.write_text(URLS)
    with monkeypatch.context() as patch:
        patch.setattr("service.transfer.importing.Checkpoint.clear", lambda self: None)
        assert imported(recrawl, path).status == 0
    again = imported(recrawl, path, "--resume")
    assert (again.status, again.out) == (0, "0 new pages registered, 0 lines skipped\n")


def test_a_new_database_and_known_pages_are_named(recrawl, tmp_path):
    path = tmp_path / "urls.txt"
    path.write_text(URLS)
    first = imported(recrawl, path)
    named = f"made a new database {tmp_path}/recrawl.db; a service has these pages only if its"
    assert named in first.err
    again = imported(recrawl, path)
    assert "made a new database" not in again.err
    before = "0 new pages registered, 300 pages registered before, 0 lines skipped\n"
    assert (again.status, again.out) == (0, before)


@pytest.mark.parametrize(
    ("lines", "status"),
    [("a.example/1\n", 2), ("https://a.example/1\na.example/2\n", 1)],
)
def test_a_url_without_a_scheme_is_refused_as_such(recrawl, tmp_path, lines, status):
    path = tmp_path / "urls.txt"
    path.write_text(lines)
    ended = imported(recrawl, path)
    assert ended.status == status
    assert "has no scheme" in ended.err
    assert "urls.txt" in ended.err


def test_a_pipe_keeps_its_first_line(recrawl, tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_text, args=[URLS])
    writer.start()
    ended = imported(recrawl, path)
    writer.join()
    assert (ended.status, ended.out) == (0, "300 new pages registered, 0 lines skipped\n")


def test_a_dash_is_the_standard_input(recrawl, tmp_path, monkeypatch):
    stdin = io.TextIOWrapper(io.BytesIO(gzip.compress(URLS.encode())))
    monkeypatch.setattr("sys.stdin", stdin)
    ended = recrawl("import", "-", "--database-url", f"sqlite:///{tmp_path}/recrawl.db")
    assert (ended.status, ended.out) == (0, "300 new pages registered, 0 lines skipped\n")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"WARC/1.0\r\nWARC-Type: warcinfo\r\n", "by cdxj-indexer"),
        (gzip.compress(b"WARC/1.1\r\n", mtime=0), "by cdxj-indexer"),
        (b'<?xml version="1.0"?><urlset></urlset>', "by `recrawl watch`"),
        (b'[{"url": "https://a.example/"}]', "jq -c '.[]'"),
        ("https://a.example/".encode("utf-16"), "iconv -f UTF-16 -t UTF-8"),
        (b"PK\x03\x04....", "save it as CSV"),
        (b"url;importance\nhttps://a.example/;1\n", "with commas between them"),
    ],
)
def test_files_of_another_kind_are_refused_with_what_to_do(recrawl, tmp_path, content, says):
    path = tmp_path / ("pages.csv" if b";" in content else "pages")
    path.write_bytes(content)
    ended = imported(recrawl, path)
    assert (ended.status, ended.out) == (2, "")
    assert says in " ".join(ended.err.split())


def test_the_first_of_two_files_is_told_though_the_second_breaks_off(recrawl, tmp_path):
    good, broken = tmp_path / "good.txt", tmp_path / "broken.txt"
    good.write_text(URLS)
    broken.write_bytes(URLS.encode() + b"\xff\n")
    ended = recrawl("import", good, broken, "--database-url", f"sqlite:///{tmp_path}/recrawl.db")
    assert ended.status == 2
    assert ended.out == "300 new pages registered, 0 lines skipped\n"
    assert "not UTF-8" in ended.err


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("log.ndjson", '{"url": "https://a.example/", "observed_at": "2026-04-01T06:00:00Z"}\n'),
        ("log.csv", "url,observed_at,status\nhttps://a.example/,2026-04-01T06:00:00Z,200\n"),
    ],
)
def test_a_log_of_crawls_is_no_list_of_pages_and_the_refusal_names_its_place(
    recrawl, tmp_path, name, text
):
    path = tmp_path / name
    path.write_text(text)
    ended = recrawl("import", path, "--database-url", f"sqlite:///{tmp_path}/recrawl.db")
    assert (ended.status, ended.err.count("observed_at")) == (2, 1)
    assert "send its lines to POST /observations, the oldest first" in " ".join(ended.err.split())
