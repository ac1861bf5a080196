"""`recrawl replay`: sources, what is refused, the table, the files."""

import csv
import json
import re
import shlex
import subprocess
import sys
from multiprocessing import active_children
from pathlib import Path

import pytest
from rich.progress import Progress

from recrawl_lab.replay.comparison import MIN_CHANGES, MIN_CRAWLS

pytestmark = pytest.mark.dear

EXAMPLES = Path(__file__).parents[2] / "examples"
HOW_TO = Path(__file__).parents[2] / "docs" / "how-to" / "replay.md"
ENOUGH = ("--pages", 60, "--days", 20, "--policies", "uniform,recrawl,hindsight")
TINY = ("--pages", 40, "--days", 6, "--policies", "uniform,recrawl,hindsight", "--processes", 1)


@pytest.fixture
def crawl_log(tmp_path):
    path = tmp_path / "log.csv"
    rows = [
        f"/{page},{day * 86_400},{(day + page) % 3 == 0:d}"
        for page in range(5)
        for day in range(12)
    ]
    path.write_text("\n".join(["url,t,changed", *rows]) + "\n")
    return path


@pytest.fixture
def clone(tmp_path, git_command):
    folder = tmp_path / "clone"
    folder.mkdir()

    def git(*arguments, day=0):
        stamp = f"{1_600_000_000 + day * 86_400} +0000"
        subprocess.run(
            [git_command, "-c", "user.name=a", "-c", "user.email=a@a.example", *arguments],
            cwd=folder,
            check=True,
            capture_output=True,
            env={"GIT_AUTHOR_DATE": stamp, "GIT_COMMITTER_DATE": stamp},
        )

    git("init", "-q")
    for day in range(6):
        (folder / f"{day % 2}.md").write_text(str(day))
        git("add", ".")
        git("commit", "-q", "-m", "more", day=day)
    return folder


def test_it_prints_the_table_and_what_it_means_and_writes_files(recrawl, tmp_path):
    ended = recrawl("replay", *ENOUGH, "--processes", 1, "--out", "found")
    assert ended.status == 0, ended.err
    for text in ("Staleness, synthetic: 60 pages, 20 days", "hindsight", "than uniform crawling"):
        assert text in ended.out
    names = {"report.html", "results.json", "policies.csv", "curves.csv", "reliability.csv"}
    assert {path.name for path in (tmp_path / "found").iterdir()} == names
    made = json.loads((tmp_path / "found" / "results.json").read_text())
    assert made["command"].startswith("recrawl replay --pages 60")
    assert made["bandwidth"] == pytest.approx(12.0)
    with (tmp_path / "found" / "policies.csv").open() as file:
        rows = {row["policy"]: row for row in csv.DictReader(file)}
    for policy in made["policies"]:
        row = rows[policy["policy"]]
        assert float(row["harmonic"]) == policy["harmonic"]["value"]
        assert policy["harmonic"]["low"] <= policy["harmonic"]["value"]
        assert float(row["gap_closed_high"]) == policy["gap_closed"]["high"]
    assert rows["uniform"]["calibration_log_loss"] == ""
    assert float(rows["recrawl"]["calibration_log_loss"]) > 0


def test_a_made_up_site_may_have_change_hours(recrawl, tmp_path):
    ended = recrawl(
        "replay", *ENOUGH, "--change-hours", "daily", "--processes", 1, "--out", "found"
    )
    assert ended.status == 0, ended.err
    assert "Staleness, hours-daily: 60 pages, 20 days" in ended.out
    made = json.loads((tmp_path / "found" / "results.json").read_text())
    assert made["bandwidth"] == pytest.approx(12.0)
    assert made["command"].startswith("recrawl replay --pages 60 --days 20")


def test_all_policies_crawl_within_the_windows_of_a_site(recrawl, tmp_path):
    always, night = (
        recrawl("replay", *TINY, "--bandwidth-per-page", 1, *windows, "--out", name)
        for name, windows in (("a", ()), ("b", ("--windows", "22:00-06:00 Europe/Berlin")))
    )
    assert (always.status, night.status) == (0, 0), night.err
    made = [json.loads((tmp_path / name / "results.json").read_text()) for name in "ab"]
    always, night = (
        {each["policy"]: each["harmonic"]["value"] for each in one["policies"]} for one in made
    )
    assert "--windows" in made[1]["command"]
    assert all(night[name] != always[name] for name in ("uniform", "recrawl", "hindsight"))


def test_change_hours_are_refused_beside_a_recorded_site(recrawl, crawl_log):
    ended = recrawl("replay", "--crawl-log", crawl_log, "--change-hours", "cron")
    assert ended.status == 2
    assert "--change-hours makes up a site" in ended.err
    assert recrawl("replay", "--change-hours", "weekly").status == 2


@pytest.mark.dear
def test_the_same_command_gives_the_same_bytes(recrawl, tmp_path):
    files = []
    for _ in range(2):
        assert recrawl("replay", *TINY, "--pings", "noisy").status == 0
        files.append({path.name: path.read_bytes() for path in (tmp_path / "replay").iterdir()})
    assert files[0] == files[1]


@pytest.mark.slow
def test_processes_side_by_side_find_what_one_finds(recrawl, tmp_path):
    for processes in (1, 2):
        ended = recrawl("replay", *TINY[:-1], processes, "--out", processes)
        assert ended.status == 0, ended.err
    one, two = (json.loads((tmp_path / n / "results.json").read_text()) for n in "12")
    assert one["policies"] == two["policies"]


@pytest.mark.slow
def test_a_process_that_is_killed_ends_it_with_a_remedy(recrawl, tmp_path, monkeypatch):
    """As the kernel kills one when memory runs out."""

    def kill_the_players(*_):
        for child in active_children():
            child.kill()

    monkeypatch.setattr(Progress, "start_task", kill_the_players)  # they have begun to play
    ended = recrawl("replay", *TINY[:-1], 2, "--policies", "recrawl,change-rate", "--days", 100)
    assert "processes that played policies was killed" in ended.refusal()
    assert "--processes 1" in ended.refusal()
    assert not list((tmp_path / "replay").iterdir())
    assert not active_children()


@pytest.mark.dear
def test_a_crawl_log_is_played(recrawl, crawl_log):
    ended = recrawl("replay", "--crawl-log", crawl_log, "--processes", 1, "--bandwidth", 3)
    assert ended.status == 0, ended.err
    assert "Staleness, log: 5 pages, 11 days" in ended.out


def test_the_format_of_the_how_to_page_is_read_and_too_short_for_a_verdict(recrawl, tmp_path):
    text = re.search(r"```csv\n(.*?)```", HOW_TO.read_text(), re.DOTALL).group(1)
    (tmp_path / "log.csv").write_text(text)
    ended = recrawl("replay", "--crawl-log", "log.csv", "--processes", 1, "--bandwidth", 2)
    assert ended.status == 0, ended.err
    said = " ".join(ended.out.split())
    assert "No verdict: 4 crawls and 3 changes are too few to compare policies." in said
    assert f"at least {MIN_CRAWLS} crawls and {MIN_CHANGES} changes" in said
    assert "than uniform" not in said
    results = json.loads((tmp_path / "replay" / "results.json").read_text())
    for policy in results["policies"]:
        assert policy["saving_over_uniform"] is policy["gap_closed"] is None


def test_the_sample_log_is_what_its_script_writes():
    script = [sys.executable, EXAMPLES / "crawl_log.py"]
    written = subprocess.run(script, check=True, capture_output=True).stdout
    assert (EXAMPLES / "crawl-log.csv").read_bytes() == written


def test_a_git_history_is_played(recrawl, clone):
    ended = recrawl(
        "replay", "--git", clone, "--map", r"(.*)\.md=/\1", "--processes", 1, "--bandwidth", 1
    )
    assert ended.status == 0, ended.err
    assert "Staleness, clone: 2 pages, 5 days" in ended.out


def test_without_git_its_absence_is_told(recrawl, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    told = recrawl("replay", "--git", tmp_path, "--map", r"(.*)\.md=/\1").refusal()
    assert "no git command; install git" in told


@pytest.mark.sampled(2)
@pytest.mark.parametrize("pings", ["none", "true", "delayed", "noisy", "sitemap", "lying-sitemap"])
def test_every_kind_of_notice_is_heard(recrawl, tmp_path, pings):
    ended = recrawl("replay", *TINY, "--pings", pings, "--ping-share", 0.5)
    assert ended.status == 0, ended.err
    told = json.loads((tmp_path / "replay" / "results.json").read_text())["notices"]
    assert told == "none" if pings == "none" else "of 50% of the pages" in told


def test_policies_are_listed(recrawl):
    ended = recrawl("replay", "--list")
    assert ended.status == 0
    assert "uniform                          every page equally often" in ended.out
    assert "lambdacrawl-sa                   not played: assumes exponentially" in ended.out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--policies", "best"), "no policy 'best'"),
        (("--trace", "nowhere/site"), "no file nowhere/pages/site.pages.csv.gz"),
    ],
)
def test_what_cannot_be_played_is_refused_in_a_sentence(recrawl, tmp_path, arguments, told):
    assert told in recrawl("replay", *arguments).refusal()
    assert not list(tmp_path.iterdir())


def test_a_log_with_an_instant_that_is_not_meant_is_refused_before_anybody_plays(recrawl, tmp_path):
    log = tmp_path / "crawls.csv"
    log.write_text("url,t,changed\n/a,0,1\n/a,86400,0\n/a,86400000000,1\n")
    ended = recrawl("replay", "--crawl-log", log)
    assert ended.status == 2
    told = " ".join(ended.err.replace("│", " ").split())
    assert "1,000,000 days are" in told
    assert "check the instants for errors" in told


@pytest.mark.parametrize("out", ["taken", "taken/below"])
def test_a_folder_that_cannot_be_made_is_refused_before_anybody_plays(recrawl, tmp_path, out):
    (tmp_path / "taken").write_text("a file")
    assert f"{out}: " in recrawl("replay", *TINY, "--out", out).refusal()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--bandwidth", 3, "--bandwidth-per-page", 1), "page exclude each other; use only one"),
        (("--trace", "a", "--crawl-log", "b"), "--git and --database exclude each other"),
        (("--git", "a"), "--git and --map belong together"),
        (("--map", "a=/a"), "--git and --map belong together"),
        (("--importance", "column"), "a synthetic site has no such column"),
        (("--bandwidth", 1e9), "are more than the 50,000,000"),
        (("--pages", 10**9), "page-days that fit in memory; choose fewer --pages"),
        (("--days", 1e300), "page-days that fit in memory"),
        (("--windows", "Mo 22-6"), "--windows[0] 'Mo 22-6' has not the form"),
        (("--windows", "22:00-22:00 UTC; Mon 9:00-9:00 UTC"), "--windows"),
        (("--windows", "22:00-06:00 UTC", "--freshness"), "without --windows; leave one out"),
    ],
)
def test_options_that_contradict_each_other_are_refused(recrawl, tmp_path, arguments, told):
    ended = recrawl("replay", *arguments)
    assert ended.status == 2
    assert told in " ".join(ended.err.replace("│", " ").split())
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_commands_of_the_how_to_page_do_what_it_says(recrawl, clone, tmp_path):
    text = HOW_TO.read_text()
    (tmp_path / "examples").symlink_to(EXAMPLES)
    commands = re.findall(r"```sh\nrecrawl (.*?)\n```", text)
    assert len(commands) == 4
    for command in commands:
        played = command.replace("path/to/clone", str(clone)).replace("docs/(", "(")
        ended = recrawl(*shlex.split(played), "--processes", 1)
        assert ended.status == 0, ended.err
    assert (tmp_path / "replay" / "git" / "report.html").is_file()
    results = json.loads((tmp_path / "replay" / "log" / "results.json").read_text())
    assert "less staleness than uniform crawling" in results["findings"][0]
    options = re.findall(r"^\| (`--.*?) \|", text, re.MULTILINE)
    said = " ".join(recrawl("replay", "--help").out.split())
    for option in re.findall(r"--[a-z-]+", " ".join(options)):
        assert option in said
