"""The PoliteCrawling layout is read as its README describes it; broken rows are named."""

import gzip

import numpy as np
import pytest
from support.polite_cases import Fleet

from recrawl_lab.datasets.polite import (
    find_table,
    read_histories,
    read_numbers,
    read_urls,
)
from service.model.errors import UnreadableFile

README_ROW = "5\t5.5143055555555556\t[[1.10396990740741, 0], [1.47311342592593, 1]]\n"


def written(tmp_path, content, name="table.txt"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def the_block(blocks):
    (block,) = blocks
    return block


def test_the_row_that_the_readme_explains(tmp_path):
    block = the_block(read_histories(written(tmp_path, README_ROW)))
    histories = block.columns
    assert histories.url_id.tolist() == [5]
    assert histories.first.tolist() == [5.5143055555555556]
    assert histories.n_crawls.tolist() == [2]
    assert histories.interval.tolist() == [1.10396990740741, 1.47311342592593]
    assert histories.changed.tolist() == [False, True]
    assert block.skipped == []


def test_histories_of_any_length_are_laid_end_to_end(tmp_path):
    fleet = Fleet(300)
    path = fleet.write(tmp_path) / "urlid_offset_history.txt"
    parts = [block.columns for block in read_histories(path, block=70)]
    assert [len(part.url_id) for part in parts] == [70, 70, 70, 70, 20]
    read = {}
    for part in parts:
        ends = np.cumsum(part.n_crawls)[:-1]
        split = zip(np.split(part.interval, ends), np.split(part.changed, ends), strict=True)
        read |= dict(zip(part.url_id.tolist(), split, strict=True))
    for url_id, (interval, changed) in zip(fleet.url_id.tolist(), fleet.histories, strict=True):
        np.testing.assert_array_equal(read[url_id][0], interval)
        np.testing.assert_array_equal(read[url_id][1], changed)


@pytest.mark.parametrize("as_written", [lambda text: text, lambda text: text.replace("\n", "\r\n")])
@pytest.mark.parametrize("header", ["", "URL_ID\tImportance_score\n"])
@pytest.mark.parametrize("packed", [False, True])
def test_numbers_are_found_by_their_id(tmp_path, as_written, header, packed):
    content = as_written(header + "7\t3\n1\t0\n400\t2.5").encode()
    content = gzip.compress(content) if packed else content
    path = written(tmp_path, content, f"urlid_imp.txt{'.gz' * packed}")
    numbers, skipped = read_numbers(path)
    assert skipped == []
    assert numbers.get(np.array([400, 1, 7, 8, 9999]), -1.0).tolist() == [2.5, 0.0, 3.0, -1.0, -1.0]


def test_the_change_rates_are_arrays_for_experiments(tmp_path):
    fleet = Fleet(200)
    rates, _ = read_numbers(fleet.write(tmp_path) / "urlid_chrate_compl_obs_hist.txt")
    order = np.argsort(fleet.url_id[fleet.complete])
    np.testing.assert_array_equal(rates.url_id, fleet.url_id[fleet.complete][order])
    np.testing.assert_array_equal(rates.value, fleet.rate[fleet.complete][order])


def test_no_numbers_at_all_are_no_numbers(tmp_path):
    numbers, skipped = read_numbers(written(tmp_path, ""))
    assert (len(numbers.url_id), skipped) == (0, [])
    assert numbers.get(np.array([1, 2]), -1.0).tolist() == [-1.0, -1.0]


def test_urls_may_hold_what_only_looks_like_a_separator(tmp_path):
    block = the_block(read_urls(written(tmp_path, "https://a.example/?q=1 2\t5\t9\n")))
    assert (block.columns.url_id.tolist(), block.columns.url) == ([5], ["https://a.example/?q=1 2"])


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("5\t1.0\n", "not URL_ID, an offset and a history"),
        ("5\t1.0\t[[1, 0]]\t7\n", "not URL_ID, an offset and a history"),
        ("x\t1.0\t[[1, 0]]\n", "URL_ID is not a whole number"),
        ("-5\t1.0\t[[1, 0]]\n", "URL_ID is not a whole number"),
        ("5\tsoon\t[[1, 0]]\n", "not a number of at least 0"),
        ("5\tnan\t[[1, 0]]\n", "not a number of at least 0"),
        ("5\t-1\t[[1, 0]]\n", "not a number of at least 0"),
        ("5\t1.0\t[[1, 0], [1\n", "truncated"),
        ("5\t1.0\t[[1, 0, 2], [1]]\n", "length 2"),
        ("5\t1.0\t[[1, 2]]\n", "Invalid enum value 2"),
        ("5\t1.0\t[[1, 0.5]]\n", "Expected `int`"),
        ("5\t1.0\t[[-1, 0]]\n", "back in time"),
        ("5\t1.0\t1, 0\n", "Expected `array`"),
    ],
)
def test_a_broken_history_is_named_by_its_line_and_the_rest_is_read(tmp_path, row, says):
    path = written(tmp_path, f"{README_ROW}{row}\n8\t0.5\t[]\n")
    block = the_block(read_histories(path))
    assert block.columns.url_id.tolist() == [5, 8]
    ((line, reason),) = block.skipped
    assert line == 2
    assert says in reason


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("https://a.example/\t5\n", "not URL, URL_ID and Host_ID"),
        ("https://a.example/\t5\tx\n", "not URL, URL_ID and Host_ID"),
        ("https://a.example/\tx\t5\n", "URL_ID is not a whole number"),
        ("https://a.example/\t1234567890123456789\t5\n", "URL_ID is not a whole number"),
        (b"https://a.example/\xff\t5\t5\n", "utf-8"),
    ],
)
def test_a_broken_url_is_named_by_its_line(tmp_path, row, says):
    row = row if isinstance(row, bytes) else row.encode()
    path = written(tmp_path, b"https://a.example/1\t1\t1\n" + row)
    ((line, reason),) = the_block(read_urls(path)).skipped
    assert line == 2
    assert says in reason


def test_an_id_with_two_numbers_is_refused(tmp_path):
    with pytest.raises(UnreadableFile, match="URL_ID 7 appears twice"):
        read_numbers(written(tmp_path, "7\t1\n8\t1\n7\t2\n"))


def test_a_cut_off_gzip_is_refused(tmp_path):
    content = gzip.compress(README_ROW.encode() * 1000)[:-20]
    path = written(tmp_path, content, "urlid_offset_history.txt.gz")
    with pytest.raises(UnreadableFile, match="broken or cut off"):
        list(read_histories(path))


def test_a_table_must_be_there_exactly_once(tmp_path):
    with pytest.raises(UnreadableFile, match=r"no urlid_imp.txt"):
        find_table(tmp_path, "urlid_imp")
    first = written(tmp_path, "", "urlid_imp.tsv.gz")
    assert find_table(tmp_path, "urlid_imp") == first
    written(tmp_path, "", "urlid_imp")
    with pytest.raises(UnreadableFile, match="keep only one of"):
        find_table(tmp_path, "urlid_imp")


@pytest.mark.parametrize("row", ["7\t1],[8\t2", "7\t1e999", "07\t1"])
def test_what_only_looks_like_json_is_read_as_a_line(tmp_path, row):
    numbers, skipped = read_numbers(written(tmp_path, f"5\t1\n{row}\n"))
    alone, refused = read_numbers(written(tmp_path, f"x\t1\n{row}\n", "alone.txt"))
    assert skipped == [what for what in refused if what[0] != 1]
    assert len(numbers.url_id) == 1 + len(alone.url_id) == 2 - len(skipped)
