"""Worlds from crawl logs: what a log tells, what it leaves open, and what is refused."""

import gzip

import numpy as np
import pytest
from support.sim_cases import DAY

from recrawl_lab.errors import InvalidTrace
from recrawl_lab.worlds.crawl_log import read_crawl_log
from recrawl_lab.worlds.recording import recorded_world
from recrawl_lab.worlds.world import synthetic_world

LOG = """\
url,t,digest
https://a.example/x,0,one
https://a.example/y,0,u
https://a.example/x,100000,one
https://a.example/x,300000,two
https://a.example/y,400000,u
https://a.example/x,864000,three
"""


def rng(seed=0):
    return np.random.default_rng(seed)


def read(folder, text, name="log.csv", **options):
    (folder / name).write_text(text)
    return played(folder / name, **options)


def played(log, seed=0, **options):
    """The world of a log."""
    drawn = rng(seed)
    recording = read_crawl_log(log, rng=drawn, weighted=options.get("importance") == "column")
    return recorded_world(recording, rng=drawn, **options)


def test_a_page_changed_between_the_crawls_that_differ(tmp_path):
    world = read(tmp_path, LOG)
    assert world.name == "log"
    assert world.url == ("https://a.example/x", "https://a.example/y")
    assert world.days == 10
    assert world.created.tolist() == [0, 0]
    assert world.ended * DAY == pytest.approx([864_000, 400_000])
    assert world.first.tolist() == [0, 2, 2]
    first, second = world.changed_at * DAY
    assert 100_000 < first <= 300_000 < second <= 864_000
    assert world.change_rate.tolist() == [0.2, 0]


def test_changed_says_the_same_as_the_digests_it_was_made_of(tmp_path):
    by_digest = read(tmp_path, LOG)
    told = iter(["changed", 1, 0, 0, 1, 0, "True"])
    lines = [f"{line.rpartition(',')[0]},{next(told)}" for line in LOG.splitlines()]
    by_flag = read(tmp_path, "\n".join(lines))
    assert by_flag.changed_at.tolist() == by_digest.changed_at.tolist()
    assert by_flag.first.tolist() == by_digest.first.tolist()
    both = "\n".join(f"{line},same" for line in lines).replace("True,same", "True,digest", 1)
    both = both.replace("changed,same", "changed,digest")
    assert read(tmp_path, both).first.tolist() == by_digest.first.tolist()


def test_instants_may_be_iso_8601_and_lines_in_any_order_and_gzipped(tmp_path):
    header, *lines = LOG.splitlines()
    iso = {"0": "1970-01-01T00:00:00Z", "100000": "1970-01-02T05:46:40+02:00", "400000": "4e5"}
    cells = [line.split(",") for line in lines[::-1]]
    text = "\n".join([header, *(f"{url},{iso.get(t, t)},{d}" for url, t, d in cells)])
    (tmp_path / "log.csv.gz").write_bytes(gzip.compress(text.encode()))
    mixed = played(tmp_path / "log.csv.gz")
    plain = read(tmp_path, LOG)
    assert mixed.name == "log"
    order = [mixed.url.index(url) for url in plain.url]
    assert mixed.ended[order].tolist() == plain.ended.tolist()
    assert np.diff(mixed.first)[order].tolist() == np.diff(plain.first).tolist()


def logged(world, crawled, draw, column):
    """A crawl log of a world: each page at its instants, the lines shuffled."""
    lines = []
    for page, url in enumerate(world.url):
        before = None
        for at in crawled[page].tolist():
            version = world.version(page, at)
            told = version if column == "digest" else int(version != before)
            lines.append(f"{url},{at * DAY!r},{told}")
            before = version
    return "\n".join([f"url,t,{column}", *draw.permutation(lines)])


@pytest.mark.parametrize("column", ["changed", "digest"])
def test_every_interval_with_a_change_shows_one_within_it_and_no_other(tmp_path, column):
    draw = rng(5)
    truth = synthetic_world(60, 50.0, rng=draw)
    crawled = [np.sort(draw.random(draw.integers(2, 40))) * 50 for _ in range(60)]
    world = read(tmp_path, logged(truth, crawled, draw, column))
    assert sorted(world.url) == sorted(truth.url)
    start = min(times[0] for times in crawled)
    for i, url in enumerate(world.url):
        page = truth.url.index(url)
        n_seen = np.searchsorted(truth.changes_of(page), crawled[page], side="right")
        told = np.histogram(world.changes_of(i), np.nextafter(crawled[page] - start, np.inf))[0]
        assert told.tolist() == (np.diff(n_seen) > 0).astype(int).tolist()
        assert (world.created[i], world.ended[i]) == pytest.approx(
            (crawled[page][0] - start, crawled[page][-1] - start)
        )


def test_changes_are_spread_uniformly_over_their_interval_by_the_seed(tmp_path):
    lines = [f"/p{i},{t},{t}" for i in range(2_000) for t in (0, 86_400, 864_000)]
    world = read(tmp_path, "url,t,digest\n" + "\n".join(lines))
    assert world.first.tolist() == list(range(0, 4_001, 2))
    early, late = world.changed_at.reshape(-1, 2).T
    for share in (early, (late - 1) / 9):
        assert 0 < share.min() < share.max() <= 1
        tenths = np.histogram(share, 10, (0, 1))[0]
        assert ((tenths - 200) ** 2 / 200).sum() < 27.9  # one in a thousand of chi-squared(9)
    again = played(tmp_path / "log.csv")
    other = played(tmp_path / "log.csv", seed=1)
    assert (again.changed_at == world.changed_at).all()
    assert (other.changed_at != world.changed_at).any()


def test_a_change_comes_after_the_crawl_before_however_short_the_interval(tmp_path):
    lines = [f"/p{i},{t},{t}" for i in range(500) for t in ("1.7e9", "1700000000.000001")]
    world = read(tmp_path, "url,t,digest\n" + "\n".join(lines))
    assert len(world.changed_at) == 500
    assert (world.changed_at > 0).all()


STATUS = """\
url,t,status,digest
/kept,0,200,a
/kept,100000,304,
/kept,200000,500,error
/kept,300000,,b
/kept,400000,301,
/kept,500000,0,
/kept,600000,200,b
/lost,0,200,a
/lost,200000,200,a
/lost,300000,503,a
/lost,400000,404,nothing
/lost,500000,410,nothing
/back,0,200,a
/back,200000,404,
/back,600000,200,a
/never,0,404,
/never,1000000,410,
/once,0,200,a
"""


def test_failures_say_nothing_304_unchanged_and_404_that_the_page_ended(tmp_path):
    world = read(tmp_path, STATUS)
    assert world.url == tuple(f"https://log.example/{name}" for name in ("kept", "lost", "back"))
    assert world.first.tolist() == [0, 1, 1, 1]
    assert 100_000 < world.changed_at[0] * DAY <= 300_000
    kept, lost, back = world.ended * DAY
    assert kept == back == world.days * DAY == 600_000
    assert 200_000 < lost <= 400_000
    assert world.gone(np.array([0, 1]), np.array([6.0, 6.0])).tolist() == [False, True]
    assert any(note.startswith("9 crawls of 4 pages, 2.3 days apart") for note in world.notes)
    assert any("1 page has only one crawl" in note for note in world.notes)
    assert any("4 crawls failed" in note for note in world.notes)
    assert any("several count as one" in note for note in world.notes)


def test_a_first_304_tells_nothing_of_what_came_before(tmp_path):
    text = "url,t,status,digest\n/a,0,304,\n/a,100000,200,x\n/a,200000,200,y\n"
    assert (read(tmp_path, text).changed_at * DAY > 100_000).tolist() == [True]


def test_spellings_of_one_url_are_one_page_and_paths_stand_under_one_host(tmp_path):
    urls = ("HTTPS://A.example/b/../x#top", "https://a.example/x", "/a b?q=1%20", "/a%20b?q=1%20")
    text = "url,t,changed\n" + "".join(f"{u},{i * DAY},1\n" for i, u in enumerate(urls))
    world = read(tmp_path, text)
    assert world.url == ("https://a.example/x", "https://log.example/a%20b?q=1%20")
    assert np.diff(world.first).tolist() == [1, 1]


def test_lines_that_stand_there_twice_count_once(tmp_path):
    twice = LOG + LOG.partition("\n")[2]
    assert (read(tmp_path, twice).changed_at == read(tmp_path, LOG).changed_at).all()


def test_the_newest_importance_of_a_page_counts(tmp_path):
    weights = iter(["importance", 1, 7, 2, 3, 8, 0.5])
    text = "\n".join(f"{line},{next(weights)}" for line in LOG.splitlines())
    assert read(tmp_path, text, importance="column").importance.tolist() == [0.5, 8]
    assert read(tmp_path, text).importance.tolist() == [1, 1]
    with pytest.raises(InvalidTrace, match=r"log\.csv, line 1: no column importance"):
        read(tmp_path, LOG, importance="column")


def test_a_window_and_announcing_pages_are_those_of_any_recording(tmp_path):
    world = read(tmp_path, LOG, days=3, complete_share=1.0)
    assert world.days == 3
    assert world.url == ("https://a.example/x",)
    assert world.announced.all()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("digest", "content", "line 1: no column changed or digest; add one to show"),
        ("url,t", "page,t", "line 1: no column url"),
        (
            "url,t,digest",
            "url;t;digest",
            "line 1: .*with commas between them, and is 'url;t;digest'",
        ),
        ("300000,two", "300000", "line 5: 2 fields, expected 3"),
        ("300000", "noon", "line 5: t is 'noon'; write seconds since 1970, or an ISO 8601"),
        ("300000", "2026-01-31T12:00:00", "line 5: t is .*with its zone"),
        ("300000", "nan", "line 5: t is 'nan'"),
        ("300000", "-1", "line 5: t is '-1'"),
        ("300000", "1e400", "line 5: t is '1e400'"),
        ("300000", "1740463297000", "line 5: .*look like milliseconds: divide them by 1e3"),
        ("https://a.example/x,3", "ftp://a.example/x,3", "line 5: url 'ftp.*the scheme ftp:"),
        ("https://a.example/x,3", "a.html,3", "line 5: url 'a.html'.*path with a leading /"),
        ("https://a.example/x,3", ",3", "line 5: url ''"),
        ("two", "", "line 5: digest is ''; write the content's digest, or status 304"),
        ("300000", "100000", r"line 5: https://a\.example/x was crawled at 100000 in line 4 too"),
    ],
)
def test_a_bad_line_is_refused_by_file_line_and_remedy(tmp_path, old, new, said):
    assert LOG.count(old) == 1 or old in ("url,t", "digest")
    with pytest.raises(InvalidTrace, match=r"log\.csv, " + said):
        read(tmp_path, LOG.replace(old, new, 1))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("url,t,changed\n/a,0,1\n/a,9,perhaps\n", "line 3: changed is 'perhaps'; write 1 or 0"),
        ("url,t,changed\n/a,0,1\n/a,9,\n", "line 3: changed is ''; write 1 or 0"),
        ("url,t,changed,status\n/a,0,1,OK\n", "line 2: status is 'OK'; write the HTTP status"),
        ("url,t,changed,status\n/a,0,1,200.5\n", "line 2: status is '200.5'"),
        ("url,t,changed,status\n/a,0,1,500\n/a,9,1,404\n", "no crawl found its page"),
        ("url,t,changed\n/a,0,1\n/b,9,1\n", "no page has two successful crawls"),
        ("url,t,changed\n", "no line after the header"),
        ('url,t,changed\n/a,0,1\n"/b', "after line 2: .*CSV in UTF-8"),
    ],
)
def test_a_log_that_tells_nothing_is_refused(tmp_path, text, said):
    with pytest.raises(InvalidTrace, match=r"log\.csv.*: .*" + said.partition(": ")[2]) as refused:
        read(tmp_path, text)
    assert said.partition(": ")[0] in refused.value.detail


def test_a_log_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InvalidTrace, match=r"no file .*nothing\.csv; name a CSV file"):
        played(tmp_path / "nothing.csv")
