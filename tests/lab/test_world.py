"""Worlds: made up with the right tails, read from recordings, and refused with reasons."""

import gzip
from dataclasses import fields

import numpy as np
import pytest
from support.sim_cases import CHANGES, DAY, PAGES, write_trace

from recrawl_lab.errors import InvalidTrace
from recrawl_lab.worlds.recording import recorded_world
from recrawl_lab.worlds.scenario import scenario
from recrawl_lab.worlds.trace import read_trace
from recrawl_lab.worlds.world import synthetic_world
from service.core.checks import InvalidInput


def rng(seed=0):
    return np.random.default_rng(seed)


def played(trace, **options):
    """The world of a recording."""
    recording = read_trace(trace, weighted=options.get("importance") == "column")
    return recorded_world(recording, rng=rng(), **options)


def test_a_made_up_world_has_the_heavy_tails_of_the_reference_corpus():
    world = synthetic_world(20_000, 1.0, rng=rng())
    for values, mean, deviation in (
        (world.importance, np.log(10), 1.5),
        (world.change_rate, np.log(0.3), 1.2),
    ):
        logs = np.log(values)
        assert logs.mean() == pytest.approx(mean, abs=4 * deviation / np.sqrt(20_000))
        assert logs.std() == pytest.approx(deviation, rel=0.03)
    assert world.announced.sum() == 800


def test_pages_of_a_made_up_world_change_at_poisson_instants():
    world = synthetic_world(2_000, 50.0, rng=rng())
    counts = np.diff(world.first)
    expected = world.change_rate * 50
    assert ((counts - expected) ** 2 / expected).mean() == pytest.approx(1.0, abs=0.2)
    assert world.changed_at.mean() == pytest.approx(25.0, abs=0.5)
    assert ((world.changed_at > 0) & (world.changed_at <= 50)).all()
    within_pages = np.diff(world.changed_page) == 0
    assert (np.diff(world.changed_at)[within_pages] >= 0).all()


def test_a_seed_makes_one_world():
    one, same, other = (synthetic_world(50, 5.0, rng=rng(seed)) for seed in (1, 1, 2))
    assert (one.changed_at == same.changed_at).all()
    assert (one.importance == same.importance).all()
    assert not (one.importance == other.importance).all()


def test_a_version_counts_the_changes_up_to_and_at_an_instant(tmp_path):
    world = played(write_trace(tmp_path), bulk=True)
    old = world.url.index("https://site.example/old")
    times = world.changes_of(old)
    assert len(times) == 3
    assert [world.version(old, at) for at in (0.0, times[0], times[1] - 1e-9, times[2], 99.0)] == [
        0,
        1,
        1,
        3,
        3,
    ]


def test_a_recording_keeps_lives_and_changes_in_days_since_its_start(tmp_path):
    world = played(write_trace(tmp_path))
    assert world.url == tuple(
        f"https://site.example/{name}" for name in ("old", "new", "dead", "gone-before", "once")
    )
    assert world.days == pytest.approx(9_900_000 / DAY)
    assert world.created * DAY == pytest.approx([0, 4_900_000, 0, 0, 0])
    assert world.ended * DAY == pytest.approx([9_900_000, 9_900_000, 5_900_000, 100_000, 9_900_000])
    assert world.first.tolist() == [0, 2, 4, 4, 4, 4]
    assert world.changed_at * DAY == pytest.approx([400_000, 7_900_000, 5_900_000, 9_900_000])
    assert world.change_rate[:2] == pytest.approx([2 / world.days, 2 / world.life[1]])
    assert (world.importance == 1).all()
    assert not world.announced.any()


def test_bulk_revisions_count_only_when_asked_for_and_the_reader_is_told(tmp_path):
    trace = write_trace(tmp_path)
    without, with_bulk = (played(trace, bulk=bulk) for bulk in (False, True))
    assert len(with_bulk.changed_at) == len(without.changed_at) + 1
    assert any("1 change by bulk revisions" in n and "left out" in n for n in without.notes)
    assert any("1 change by bulk revisions" in n and "counted" in n for n in with_bulk.notes)


def test_a_window_keeps_the_last_days_and_the_pages_that_live_then(tmp_path):
    world = played(write_trace(tmp_path), days=4_500_000 / DAY)
    assert world.url == tuple(f"https://site.example/{n}" for n in ("old", "new", "dead", "once"))
    assert (world.created == 0).all()
    assert world.ended * DAY == pytest.approx([4_500_000, 4_500_000, 500_000, 4_500_000])
    assert world.changed_at * DAY == pytest.approx([2_500_000, 500_000, 4_500_000])
    assert any(note.startswith("window 1970-03-05 to 1970-04-26 (52 days)") for note in world.notes)


def test_pages_whose_only_change_was_not_dated_are_told_of(tmp_path):
    world = played(write_trace(tmp_path))
    assert any(note.startswith("1 pages changed once") for note in world.notes)


def test_importance_and_announcing_pages_of_a_recording_can_be_drawn(tmp_path):
    world = played(write_trace(tmp_path), importance="lognormal", complete_share=0.4)
    assert len(set(world.importance)) == 5
    assert world.announced.sum() == 2


def test_paths_with_odd_characters_become_urls(tmp_path):
    pages = PAGES.replace("/once", "/O'Reilly/a b?c#d")
    world = played(write_trace(tmp_path, pages))
    assert world.url[-1] == "https://site.example/O%27Reilly/a%20b%3Fc%23d"


def edited(text, line, old, new):
    lines = text.splitlines(keepends=True)
    assert old in lines[line - 1]
    lines[line - 1] = lines[line - 1].replace(old, new)
    return "".join(lines)


@pytest.mark.parametrize(
    ("pages", "changes", "where", "remedy"),
    [
        (
            edited(PAGES, 1, "obs_end", "until"),
            CHANGES,
            "pages.csv.gz, line 1",
            "no column obs_end",
        ),
        (edited(PAGES, 3, ",,", ","), CHANGES, "pages.csv.gz, line 3", "6 fields, expected 7"),
        (edited(PAGES, 3, "10000000", "soon"), CHANGES, "pages.csv.gz, line 3", "seconds since"),
        (edited(PAGES, 3, "10000000", "inf"), CHANGES, "pages.csv.gz, line 3", "obs_end is 'inf'"),
        (edited(PAGES, 2, "100000,", "20000000,"), CHANGES, "pages.csv.gz, line 2", "later than"),
        (edited(PAGES, 3, "/new", "/old"), CHANGES, "pages.csv.gz, line 3", "listed twice"),
        (edited(PAGES, 3, "/new", "/x/../old"), CHANGES, "pages.csv.gz, line 3", "dot segments"),
        (edited(PAGES, 3, "/new", "new"), CHANGES, "pages.csv.gz, line 3", "leading /"),
        (edited(PAGES, 2, ",3,1", ",x,1"), CHANGES, "pages.csv.gz, line 2", "n_changes is 'x'"),
        (PAGES.splitlines()[0], CHANGES, "pages.csv.gz", "no line after the header"),
        ("", CHANGES, "pages.csv.gz, line 1", "no column page"),
        (
            PAGES,
            edited(CHANGES, 2, "/old", "/what"),
            "site.csv.gz, line 2",
            "not in the pages file",
        ),
        (PAGES, edited(CHANGES, 2, "500000", "nan"), "site.csv.gz, line 2", "t is 'nan'"),
        (PAGES, edited(CHANGES, 2, "500000", "100000"), "site.csv.gz, line 2", "creation is no"),
        (PAGES, edited(CHANGES, 6, "10000000", "10000001"), "site.csv.gz, line 6", "outside"),
        (PAGES, edited(CHANGES, 3, ",1,", ",yes,"), "site.csv.gz, line 3", "write 0 or 1"),
        (PAGES, CHANGES + '"/old', "site.csv.gz, after line 6", "CSV in UTF-8, plain or gzipped"),
        (PAGES, CHANGES.splitlines()[0], "site.csv.gz", "no line after the header"),
        (edited(PAGES, 1, "n_bulk", "page"), CHANGES, "pages.csv.gz, line 1", "two columns page"),
        (edited(PAGES, 3, "/new", "/old"), CHANGES, "pages.csv.gz, line 3", "first in line 2;"),
        (edited(PAGES, 2, ",3,1", ",2.5,1"), CHANGES, "pages.csv.gz, line 2", "a whole number"),
        (
            PAGES,
            edited(CHANGES, 4, "8000000", "500000"),
            "site.csv.gz, line 4",
            "already in line 2;",
        ),
        (PAGES, edited(CHANGES, 2, "500000", "-5"), "site.csv.gz, line 2", "not negative"),
        (
            edited(PAGES, 3, "10000000", "1740463297000"),
            CHANGES,
            "pages.csv.gz, line 3",
            "look like milliseconds: divide them by 1e3",
        ),
        (
            PAGES,
            edited(CHANGES, 5, "6000000", "1740463297000000"),
            "site.csv.gz, line 5",
            "look like microseconds: divide them by 1e6",
        ),
        (
            PAGES,
            edited(CHANGES, 5, "6000000", "1.7e18"),
            "site.csv.gz, line 5",
            "look like nanoseconds: divide them by 1e9",
        ),
    ],
)
def test_a_bad_recording_is_refused_by_file_line_and_remedy(
    tmp_path, pages, changes, where, remedy
):
    with pytest.raises(InvalidTrace) as refused:
        played(write_trace(tmp_path, pages, changes))
    assert where in refused.value.detail
    assert remedy in refused.value.detail


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (gzip.compress(CHANGES.encode())[:40], "after line 1: .* must be CSV in UTF-8"),
        (gzip.compress(CHANGES.encode())[:-8], "after line 6: .* must be CSV in UTF-8"),
        (b"PK\x03\x04 a zip", "line 1: no column page, t, bulk; the first line must name"),
        (CHANGES.encode() + b"\xff,1,0,0,0\n", "line 7: invalid start byte; save .* in UTF-8"),
        (gzip.compress(CHANGES.encode() + b"/\xe9\n"), "line 7: .*; save .* in UTF-8"),
        (gzip.compress(CHANGES.encode() + b"/\xe9\n")[:-8], "line 7: .*; save .* in UTF-8"),
    ],
    ids=["cut off", "without its end", "a zip", "not UTF-8", "Latin-1", "both"],
)
def test_an_unreadable_file_is_refused_by_name(tmp_path, content, said):
    trace = write_trace(tmp_path)
    (tmp_path / "site.csv.gz").write_bytes(content)
    with pytest.raises(InvalidTrace, match=r"site\.csv\.gz, " + said):
        played(trace)


def same(one, other):
    return all(
        np.array_equal(getattr(one, field.name), getattr(other, field.name))
        for field in fields(one)
    )


def test_lines_may_come_in_any_order_and_blank_ones_are_skipped(tmp_path):
    header, *lines = CHANGES.splitlines(keepends=True)
    (tmp_path / "mixed").mkdir()
    mixed = write_trace(tmp_path / "mixed", changes=header + "\n" + "".join(lines[::-1]) + "\n\n")
    one, other = (played(t) for t in (write_trace(tmp_path), mixed))
    assert same(one, other)


def test_files_may_be_plain_csv_whatever_their_name_with_the_marks_of_a_spreadsheet(tmp_path):
    packed = played(write_trace(tmp_path))
    (tmp_path / "site.csv.gz").write_text(CHANGES)
    assert same(packed, played(tmp_path / "site"))
    for name, text in (("site", CHANGES), ("pages/site.pages", PAGES)):
        (tmp_path / f"{name}.csv.gz").unlink()
        (tmp_path / f"{name}.csv").write_bytes(
            b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode()
        )
    assert same(packed, played(tmp_path / "site"))


def test_importance_can_be_a_column_of_the_pages(tmp_path):
    weights = ["importance", "3", "0.5", "1e3", "1", "2"]
    pages = "".join(f"{w},{p}" for w, p in zip(weights, PAGES.splitlines(True), strict=True))
    world = played(write_trace(tmp_path, pages), importance="column")
    assert world.importance.tolist() == [3, 0.5, 1000, 1, 2]
    late = played(tmp_path / "site", importance="column", days=30)
    assert dict(zip(late.url, late.importance, strict=True))["https://site.example/once"] == 2
    for cell in ("0", "nan", "much", "-1", "1e10"):
        write_trace(tmp_path, pages.replace("0.5,", f"{cell},"))
        with pytest.raises(InvalidTrace, match=f"line 3: importance is '{cell}'; write a number"):
            played(tmp_path / "site", importance="column")


def test_importance_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InvalidTrace, match=r"pages\.csv\.gz, line 1: no column importance"):
        played(write_trace(tmp_path), importance="column")


def test_a_window_must_have_days(tmp_path):
    with pytest.raises(InvalidInput, match="days must be positive"):
        played(write_trace(tmp_path), days=0)


def test_a_page_seen_only_at_the_end_does_not_push_the_window_past_all_others(tmp_path):
    pages = PAGES + "/glimpse,0,,90000000,90000000,0,0\n"
    world = played(write_trace(tmp_path, pages), days=10)
    assert len(world) == 3
    assert world.days == pytest.approx(10)


def test_a_missing_recording_is_refused_with_those_that_are_there(tmp_path):
    write_trace(tmp_path)
    with pytest.raises(InvalidTrace, match=r"no file .*other\.pages\.csv\.gz.* has site"):
        played(tmp_path / "other")


def test_a_recording_without_any_observed_time_is_refused(tmp_path):
    pages = PAGES.splitlines()[0] + "\n/old,0,,500,500,0,0\n"
    with pytest.raises(InvalidTrace, match="no page is observed for any time"):
        played(write_trace(tmp_path, pages))


def test_a_scenario_counts_its_budget_by_the_pages_that_exist(tmp_path):
    chosen = scenario(write_trace(tmp_path), bandwidth_per_page=0.5)
    existing = (3 * 9_900_000 - 4_900_000 + 5_900_000 + 100_000 - 0) / 9_900_000
    assert chosen.bandwidth == pytest.approx(0.5 * existing)
    assert chosen.step == 7.0
    synthetic = scenario(n_pages=10, days=3, step=0.5)
    assert (synthetic.world.days, synthetic.bandwidth, synthetic.step) == (3, 2.0, 0.5)
