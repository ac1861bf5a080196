"""The trial of captures: the world after them, the file, and two fleets."""

import json
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.captures import __main__ as command
from benchmarks.captures.warm import Trial, archive, line_of, since, until
from recrawl_lab.worlds.world import offsets, synthetic_world


def world_of(days, n=40):
    rng = np.random.default_rng(1)
    return synthetic_world(n, days, rng=rng, importance="equal", complete_share=0.0)


def test_the_world_after_a_day_has_its_later_changes():
    whole = world_of(20.0)
    later = since(whole, 12.5)
    assert later.days == 7.5
    for page in range(len(whole)):
        changes = whole.changes_of(page)
        assert later.changes_of(page) == pytest.approx(changes[changes > 12.5] - 12.5)


def test_the_world_until_a_day_has_its_earlier_changes_and_pages():
    whole = world_of(20.0)
    born = np.where(np.arange(len(whole)) % 4 == 0, 15.0, 0.0)
    earlier = until(replace(whole, created=born), 12.5)
    assert (earlier.days, len(earlier), earlier.ended.max()) == (12.5, 30, 12.5)
    for page, before in enumerate(np.flatnonzero(born < 12.5).tolist()):
        changes = whole.changes_of(before)
        assert earlier.changes_of(page).tolist() == changes[changes <= 12.5].tolist()


def test_the_archive_crawls_each_page_at_its_rate():
    captures = archive(world_of(20.0), 10.0, 0.5, np.random.default_rng(1))
    assert np.bincount(captures.page).tolist() == [5] * 40
    assert (captures.at < 10.0).all()


def test_captures_lower_the_staleness_of_a_new_fleet():
    """One page in five changes, and the archive knows which."""
    whole = world_of(50.0, 100)
    lives = np.arange(100) % 5 == 0
    kept = lives[whole.changed_page]
    counts = np.where(lives, np.diff(whole.first), 0)
    whole = replace(whole, changed_at=whole.changed_at[kept], first=offsets(counts))
    line = line_of(whole, Trial(known=40.0, days=10.0, rate=0.3), 1)
    assert line["captures"] == 4 * 100
    assert line["of_crawls"] == pytest.approx(1.0, abs=0.05)
    assert line["ratio"] < 0.9


def test_the_speed_of_an_import_is_measured(monkeypatch, tmp_path):
    path = tmp_path / "captures.json"
    monkeypatch.setattr("sys.argv", ["captures", "speed", "--lines", "200", "--json", str(path)])
    command.main()
    (line,) = json.loads(path.read_text())
    assert (line["captures"], line["pages"]) == (200, 20)
