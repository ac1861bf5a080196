"""`recrawl import` brings files of pages to a running service and tells every line it skipped."""

import gzip
import json
from datetime import date
from decimal import Decimal

import pytest
from support.live_server import Live, running

URLS = [f"https://a.example/{i}" for i in range(3)]
CSV = "url,importance,observability\n" + "".join(f"{url},2.5,auto\n" for url in URLS)
TSV = CSV.replace(",", "\t")
LINES = "".join(
    json.dumps({"url": url, "importance": 2.5, "observability": "auto"}) + "\n" for url in URLS
)


@pytest.fixture
def api(sqlite_url) -> Live:
    with running(sqlite_url) as live:
        yield live


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("pages.csv", CSV.encode()),
        ("pages.csv", b"\xef\xbb\xbf" + CSV.replace("\n", "\r\n").encode()),
        ("pages.tsv", TSV.encode()),
        ("pages.ndjson", LINES.encode()),
        ("pages.jsonl", LINES.replace("\n", "\n\n").encode()),
        ("pages.csv", CSV.replace(",", ", ").encode()),
        ("pages.txt", CSV.encode()),
        ("pages.csv.gz", gzip.compress(CSV.encode(), mtime=0)),
        ("pages.ndjson.gz", gzip.compress(LINES.encode(), mtime=0)),
    ],
)
def test_a_file_of_pages_is_registered(api: Live, recrawl, tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    first = recrawl("import", path, "--to", api.url)
    assert (first.status, first.out) == (0, "3 new pages registered, 0 lines skipped\n")
    again = recrawl("import", path, "--to", api.url)
    assert (again.status, again.out) == (
        0,
        "0 new pages registered, 3 pages registered before, 0 lines skipped\n",
    )
    for url in URLS:
        page = api.get("/pages", url=url).json()
        assert (page["importance"], page["observability"]) == (2.5, "auto")


def test_the_progress_is_shown(api: Live, recrawl, tmp_path):
    path = tmp_path / "pages.csv"
    path.write_text(CSV)
    assert "importing pages.csv" in recrawl("import", path, "--to", api.url).err


def test_bad_lines_of_a_csv_are_told_by_their_numbers_and_skipped(api: Live, recrawl, tmp_path):
    path = tmp_path / "pages.csv"
    path.write_text(
        "url,importance\n"
        "https://a.example/1,1\n"
        "ftp://a.example/2,1\n"
        "https://a.example/3,much\n"
        "https://a.example/4,-1\n"
        "https://a.example/5\n"
        '"https://a.example/6",\n'
        ",3\n"
    )
    ended = recrawl("import", path, "--to", api.url)
    assert ended.status == 1
    assert ended.out == "2 new pages registered, 5 lines skipped\n"
    for line, reason in (
        (3, "send http or https"),
        (4, 'importance is "much"; send a positive number up to 1e9'),
        (5, "positive number"),
        (6, "more or fewer cells"),
        (8, "url is missing; send an absolute http or https URL"),
    ):
        (told,) = [said for said in ended.err.splitlines() if said.startswith(f"{path}:{line}:")]
        assert reason in told


def test_a_line_with_words_beside_its_url_is_named_and_skipped(api: Live, recrawl, tmp_path):
    path = tmp_path / "urls.txt"
    path.write_text("http://a.example/1 \nhttp://a.example/2 extra\nhttp://a.example/3\tx\n")
    ended = recrawl("import", path, "--to", api.url)
    assert (ended.status, ended.out) == (1, "1 new page registered, 2 lines skipped\n")
    for line in (2, 3):
        assert f"{path}:{line}: whitespace in a URL; leave one URL in each line" in ended.err


@pytest.mark.parametrize("quote", ["", '"'])
@pytest.mark.parametrize("ending", ["csv", "tsv"])
def test_a_huge_cell_costs_one_line(api: Live, recrawl, tmp_path, ending, quote):
    path = tmp_path / f"pages.{ending}"
    huge = f"{quote}https://a.example/{'x' * 200_000}{quote}"
    lines = ["url", "https://a.example/1", huge, "https://a.example/2", huge, huge]
    path.write_text("\n".join([*lines, '"https://a.example/3"']))
    ended = recrawl("import", path, "--to", api.url)
    assert (ended.status, ended.out) == (1, "3 new pages registered, 3 lines skipped\n")
    for line in (3, 5, 6):
        assert f"{path}:{line}: a cell has over 131,072 characters; shorten it" in ended.err


def test_bad_lines_of_ndjson_are_told_by_their_numbers_and_skipped(api: Live, recrawl, tmp_path):
    path = tmp_path / "pages.ndjson"
    good = json.dumps({"url": URLS[0]})
    deep, long = "[" * 100_000, f'{{"url": "{URLS[2]}", "importance": {"9" * 5_000}}}'
    lines = [good, "", '{"url": ', "[1]", f'{{"url": "{URLS[1]}", "weight": 1}}', deep, long]
    lines.append(f'{{"url": "{URLS[0]}", "url": "{URLS[1]}"}}')
    path.write_text("\n".join(lines))
    ended = recrawl("import", path, "--to", api.url)
    assert (ended.status, ended.out) == (1, "1 new page registered, 6 lines skipped\n")
    for line, reason in (
        (3, "not JSON"),
        (4, "not a JSON object"),
        (5, '"weight" is no field of this; remove it'),
        (6, "nested too deeply"),
        (7, "importance"),
        (8, "url stands twice"),
    ):
        (told,) = [said for said in ended.err.splitlines() if said.startswith(f"{path}:{line}:")]
        assert reason in told


def test_of_many_bad_lines_the_first_are_told_and_all_are_counted(api: Live, recrawl, tmp_path):
    path = tmp_path / "pages.csv"
    path.write_text("url\n" + "nowhere\n" * 30)
    ended = recrawl("import", path, "--to", api.url)
    assert ended.out == "0 new pages registered, 30 lines skipped\n"
    told = [line for line in ended.err.splitlines() if line.startswith(f"{path}:")]
    assert [int(line.split(":")[1]) for line in told] == list(range(2, 22))


@pytest.mark.dear
def test_a_file_longer_than_a_batch_is_sent_in_several(api: Live, recrawl, tmp_path):
    path = tmp_path / "pages.csv"
    path.write_text("url\n" + "".join(f"https://b.example/{i}\n" for i in range(12_001)))
    assert recrawl("import", path, "--to", api.url).out.startswith("12,001 new page")
    assert api.epoch()["n_pages"] == 12_001


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("pages.txt", b"address\n", "say the format with --format"),
        ("pages.csv", b"address\nx\n", "one of them `url`"),
        ("pages.csv", b"", "one of them `url`"),
        ("pages.csv", b"url\nhttps://a.example/\xff\n", "not UTF-8"),
        ("pages.csv.gz", b"url\nhttps://a.example/\n", "gzip is broken"),
        ("pages.csv.gz", gzip.compress(CSV.encode(), mtime=0)[:-9], "gzip is broken"),
        ("pages.csv.gz", gzip.compress(CSV.encode(), mtime=0)[:15] + b"\0" * 20, "gzip is broken"),
        ("pages.csv", b'url\n"' + b"x\n" * 200_000 + b'"\n', "pages.csv:2: not CSV"),
        ("pages.csv", b"url,colour,\nhttps://a.example/,red,\n", "there is no field colour;"),
        ("pages.tsv", b"url\tweight\thue\n", "there is no field weight, hue;"),
        ("pages.csv", b"url,url\nhttps://a.example/,x\n", "two columns are named url; rename"),
    ],
)
def test_files_that_cannot_be_read_are_refused(api: Live, recrawl, tmp_path, name, content, says):
    path = tmp_path / name
    path.write_bytes(content)
    ended = recrawl("import", path, "--to", api.url)
    assert ended.status == 2
    assert says in ended.err
    assert "Traceback" not in ended.err


def test_a_missing_file_and_a_directory_are_refused(recrawl, tmp_path):
    for path in (tmp_path / "none.csv", tmp_path):
        ended = recrawl("import", path)
        assert ended.status == 2
        assert "Traceback" not in ended.err


def test_a_key_is_asked_for_and_taken_from_the_environment(sqlite_url, recrawl, tmp_path):
    path = tmp_path / "pages.csv"
    path.write_text(CSV)
    with running(sqlite_url, api_keys=("secret",)) as live:
        refused = recrawl("import", path, "--to", live.url)
        assert refused.status == 2
        assert "401" in refused.err
        assert recrawl("import", path, "--to", live.url, "--api-key", "secret").status == 0
        assert recrawl("import", path, "--to", live.url, api_key="secret").status == 0


def test_a_service_that_does_not_answer_is_waited_for_and_then_told(recrawl, tmp_path, monkeypatch):
    monkeypatch.setattr("service.cli.options.PATIENCE_S", 0.2)
    path = tmp_path / "pages.csv"
    path.write_text(CSV)
    ended = recrawl("import", path, "--to", "http://127.0.0.1:1")
    assert ended.status == 2
    assert "refused; is it running?" in ended.err


def test_parquet_of_other_tools_is_read(api: Live, recrawl, tmp_path):
    """Texts as bytes, numbers as decimals; a date is refused by name."""
    parquet, pa = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    urls = pa.array([b"https://b.example/1", b"https://b.example/2"])
    importance = pa.array([Decimal("2.5"), None])
    parquet.write_table(pa.table({"url": urls, "importance": importance}), tmp_path / "a.parquet")
    assert recrawl("import", tmp_path / "a.parquet", "--to", api.url).status == 0
    assert api.get("/pages", url="https://b.example/1").json()["importance"] == 2.5
    parquet.write_table(pa.table({"url": pa.array([b"", None])}), tmp_path / "c.parquet")
    ended = recrawl("import", tmp_path / "c.parquet", "--to", api.url)
    assert ended.out == "0 new pages registered, 2 lines skipped\n"
    assert 'c.parquet:1: url is ""; send an absolute http or https URL' in ended.err
    dates = pa.array([date(2026, 5, 1)] * 2)
    parquet.write_table(pa.table({"url": urls, "importance": dates}), tmp_path / "b.parquet")
    ended = recrawl("import", tmp_path / "b.parquet", "--to", api.url)
    assert "Traceback" not in ended.err
    assert 'b.parquet:1: importance is "2026-05-01"; send a positive number' in ended.err
