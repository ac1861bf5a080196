"""Worlds from git histories, read from real repositories by the real command."""

import os
import re
import subprocess
from collections import Counter

import numpy as np
import pytest
from support.sim_cases import DAY

from recrawl_lab.errors import InvalidTrace
from recrawl_lab.worlds import git_history
from recrawl_lab.worlds.git_history import read_git
from recrawl_lab.worlds.recording import recorded_world

pytestmark = pytest.mark.usefixtures("git_command")
RULES = (r"content/index\.md=/", r"content/(.*)/index\.md=/\1/", r"content/(.*)\.mdx?=/\1/")
START = 1_600_000_000


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """Nobody's git settings."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")


def git(folder, *arguments, stdin=b"", day=0.0):
    who = {
        f"GIT_{role}_{what}": "a@b.example"
        for role in ("AUTHOR", "COMMITTER")
        for what in ("NAME", "EMAIL")
    }
    dates = {"GIT_COMMITTER_DATE": f"{START + int(day * DAY)} +0000", "GIT_AUTHOR_DATE": "@1 +0000"}
    done = subprocess.run(
        ["git", *arguments],
        cwd=folder,
        input=stdin,
        env={**os.environ, **who, **dates},
        capture_output=True,
        check=True,
    )
    return done.stdout


def revision(mark, day, files, parents=()):
    """A revision for git fast-import; a file of None is removed."""
    lines = [f"commit refs/heads/main\nmark :{mark}\n".encode()]
    lines += [f"committer a <a@b> {START + int(day * DAY)} +0000\ndata 0\n".encode()]
    lines += [
        f"{'merge' if i else 'from'} :{parent}\n".encode() for i, parent in enumerate(parents)
    ]
    for name, content in files.items():
        path = b'"' + b"".join(b"\\%03o" % byte for byte in os.fsencode(name)) + b'"'
        if content is None:
            lines += [b"D %s\n" % path]
        else:
            lines += [b"M 100644 inline %s\ndata %d\n%s\n" % (path, len(content), content.encode())]
    return b"".join(lines)


def init(folder):
    git(folder, "init", "-q")
    git(folder, "symbolic-ref", "HEAD", "refs/heads/main")


def repository(folder, *revisions):
    """One revision after another, each a day and what it does to files."""
    init(folder)
    stream = [
        revision(mark, day, files, [mark - 1] if mark > 1 else [])
        for mark, (day, files) in enumerate(revisions, 1)
    ]
    git(folder, "fast-import", "--quiet", stdin=b"".join(stream))
    return folder


def read(folder, rules=RULES, **options):
    recording = read_git(folder, rules)
    return recorded_world(recording, rng=np.random.default_rng(0), **options)


def told(world):
    """Each page's life and changes by its path."""
    return {
        url.partition(".example")[2]: (
            world.created[i].round(4),
            world.ended[i].round(4),
            *world.changes_of(i).round(4),
        )
        for i, url in enumerate(world.url)
    }


def test_pages_come_change_move_and_go_with_their_sources(tmp_path):
    site = tmp_path / "My_Site.git"
    site.mkdir()
    init(site)
    content = site / "content"

    def commit(day):
        git(site, "add", "--all")
        git(site, "commit", "-q", "--allow-empty", "-m", "x", day=day)

    (content / "a").mkdir(parents=True)
    for name in ("index.md", "a/index.md", "moving.md", "short.md"):
        (content / name).write_text(name)
    (site / "build.py").write_text("left out")
    commit(0)
    (content / "a" / "index.md").write_text("news")
    (site / "build.py").write_text("left out again")
    commit(1.5)
    commit(2)
    (content / "short.md").unlink()
    git(site, "mv", "content/moving.md", "content/moved.md")
    commit(3)
    (content / "index.md").chmod(0o755)
    commit(4)
    (content / "index.md").write_text("front")
    commit(10)
    world = read(site)
    assert world.name == "My_Site"
    assert world.url[0] == "https://my-site.example/a/"
    assert told(world) == {
        "/": (0, 10, 10),
        "/a/": (0, 10, 1.5),
        "/moving/": (0, 3),
        "/moved/": (3, 10),
        "/short/": (0, 3),
    }
    assert any("6 revisions" in note for note in world.notes)
    assert any("1 files match no rule and are left out, such as build.py" in n for n in world.notes)


def test_what_a_merge_brings_changes_pages_at_the_merge(tmp_path):
    init(tmp_path)
    stream = [
        revision(1, 0, {"content/a.md": "a", "content/b.md": "b"}),
        revision(2, 1, {"content/a.md": "a2", "content/c.md": "c"}, [1]),
        revision(3, 2, {"content/a.md": "a3"}, [2]),
        revision(4, 3, {"content/b.md": "b2"}, [1]),
        revision(5, 4, {"content/a.md": "a3", "content/c.md": "c"}, [4, 3]),
        revision(6, 5, {"x": ""}, [5]),
    ]
    git(tmp_path, "fast-import", "--quiet", "--force", stdin=b"".join(stream))
    assert told(read(tmp_path)) == {"/a/": (0, 5, 4), "/b/": (0, 5, 3), "/c/": (4, 5)}


def test_a_page_is_all_the_files_that_make_it(tmp_path):
    rules = (r"(.*)\.(md|mdx|txt)=/\1",)
    site = repository(
        tmp_path,
        (0, {"a.md": "text", "keep.md": ""}),
        (1, {"a.md": None, "a.mdx": "text"}),
        (2, {"a.txt": "notes"}),
        (3, {"a.mdx": None}),
        (4, {"a.txt": None, "a.md": "other"}),
        (5, {"a.md": None}),
        (9, {"x": ""}),
    )
    assert told(read(site, rules)) == {"/a": (0, 5, 2, 3, 4), "/keep": (0, 9)}


def test_a_page_that_came_back_was_there_all_along_and_changed_when_it_did(tmp_path):
    site = repository(
        tmp_path,
        (0, {"content/a.md": "a"}),
        (2, {"content/a.md": None}),
        (4, {"content/a.md": "a"}),
        (6, {"x": ""}),
    )
    assert told(read(site)) == {"/a/": (0, 6, 4)}


def test_a_clock_that_was_wrong_puts_no_revision_before_the_one_it_follows(tmp_path):
    site = repository(
        tmp_path,
        (0, {"content/a.md": "a"}),
        (5, {"content/b.md": "b"}),
        (3, {"content/a.md": "a2", "content/b.md": "b2"}),
        (8, {"x": ""}),
    )
    world = read(site)
    assert told(world) == {"/a/": (0, 8, 5), "/b/": (5, 8)}
    assert any(note.startswith("1 revisions are dated out of order") for note in world.notes)


@pytest.mark.parametrize("day", [40_000, -2_000])
def test_one_revision_of_a_broken_clock_moves_no_other(tmp_path, day):
    site = repository(
        tmp_path,
        (0, {"content/a.md": "a"}),
        (1, {"content/a.md": "b"}),
        (day, {"content/a.md": "c"}),
        (5, {"content/a.md": "d"}),
        (7, {"x": ""}),
    )
    assert told(read(site)) == {"/a/": (0, 7, 1, 1, 5)}


def test_a_revision_whose_date_cannot_be_read_counts_with_the_one_before(tmp_path):
    site = repository(
        tmp_path,
        (0, {"content/a.md": "a"}),
        (2, {"content/a.md": "b"}),
        (4, {"x": ""}),
        (6, {"content/a.md": "c"}),
    )
    last = git(site, "cat-file", "commit", "main")
    at = f"{START + 6 * round(DAY)} +0000".encode()
    broken = last.replace(b"committer a <a@b> " + at, b"committer a <a@b> noon")
    assert broken != last
    command = ("hash-object", "-t", "commit", "-w", "--literally", "--stdin")
    head = git(site, *command, stdin=broken).strip()
    git(site, "update-ref", "refs/heads/main", head)
    assert told(read(site)) == {"/a/": (0, 4, 2, 4)}


def test_bulk_revisions_count_only_when_asked_for(tmp_path):
    def all_of(n_pages, content):
        return {f"content/{i}.md": content for i in range(n_pages)}

    site = repository(
        tmp_path,
        (0, all_of(201, "a")),
        (1, all_of(200, "b")),
        (2, all_of(201, "c")),
        (3, {**all_of(200, "c"), "content/new.md": "", "content/200.md": "d"}),
        (4, {"x": ""}),
    )
    world = read(site)
    assert np.unique(world.changed_at, return_counts=True)[1].tolist() == [200, 1]
    assert any(
        "201 changes by bulk revisions (> 200 pages at once) left out" in n for n in world.notes
    )
    assert len(read(site, bulk=True).changed_at) == 200 + 201 + 1


def test_a_window_keeps_the_last_days(tmp_path):
    site = repository(
        tmp_path,
        (0, {"content/a.md": "a", "content/b.md": "b"}),
        (5, {"content/a.md": "a2"}),
        (20, {"content/b.md": None, "content/a.md": "a3"}),
        (25, {"x": ""}),
    )
    assert told(read(site, days=10)) == {"/a/": (0, 10, 5), "/b/": (0, 5)}


def test_file_names_of_any_kind_become_urls(tmp_path):
    names = ("ü ?#%", ':a"b\\', "line\nbreak", "latin-\udce9", "-x=y")
    site = repository(
        tmp_path,
        (0, {f"content/{name}.md": "1" for name in names}),
        (1, {**{f"content/{name}.md": "2" for name in names}, "bad-\udce9": ""}),
    )
    world = read(site, (r"(?s)content/(.*)\.md=/\1",))
    assert told(world) == {
        f"/{name}": (0, 1, 1)
        for name in ("%C3%BC%20%3F%23%25", "%3Aa%22b%5C", "line%0Abreak", "latin-%E9", "-x%3Dy")
    }
    assert any(note.endswith(r"such as bad-\xe9") for note in world.notes)


def by_snapshots(folder, rules):
    """The same from the whole tree at each revision, one after another in plain Python."""
    lives, changes, before, was, now = {}, {}, {}, {}, 0.0
    compiled = [(re.compile(rule.rpartition("=/")[0]), rule.rpartition("=/")[2]) for rule in rules]
    for line in git(folder, "log", "--first-parent", "--reverse", "--format=%H %ct").split(b"\n")[
        :-1
    ]:
        commit, at = line.decode().split()
        now = max(now, (int(at) - START) / DAY)
        pages = {}
        for entry in git(folder, "ls-tree", "-r", "-z", commit).decode().split("\0")[:-1]:
            (_, _, blob), name = entry.split("\t")[0].split(), entry.split("\t")[1]
            for regex, page in compiled:
                if found := regex.fullmatch(name):
                    pages.setdefault("/" + found.expand(page), Counter())[blob] += 1
                    break
        for page, content in pages.items():
            if page not in lives:
                lives[page] = now
            elif content != before.get(page) and now > lives[page]:
                changes.setdefault(page, []).append(now)
        for page in before:
            if page not in pages:
                was[page] = now
        before = pages
    return {
        page: (born, now if page in before else was[page], *changes.get(page, []))
        for page, born in lives.items()
        if (now if page in before else was[page]) > born
    }


@pytest.mark.dear
@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", range(3))
def test_any_history_is_read_as_its_snapshots_show_it(tmp_path, seed):
    draw = np.random.default_rng(seed)
    names = [
        f"content/{folder}{name}"
        for folder in ("", "a/", "b/")
        for name in ("index.md", "x.md", "x.mdx", "y.md")
    ]
    names += ["other/x.md", "README.md"]
    there, revisions = set(), []
    for day in range(25):
        files = {}
        for name in draw.choice(names, draw.integers(1, 6), replace=False).tolist():
            gone = name in there and draw.random() < 0.4
            files[name] = None if gone else str(draw.integers(3))
            (there.discard if gone else there.add)(name)
        revisions.append((day + draw.integers(3) * 0.5, files))
    site = repository(tmp_path, *revisions)
    world = read(site, bulk=True)
    started = min(life[0] for life in by_snapshots(site, RULES).values())
    expected = {
        page: tuple(round(at - started, 4) for at in life)
        for page, life in by_snapshots(site, RULES).items()
    }
    assert told(world) == expected


# -- refusals


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        (["content/(.*).md"], r"rule 'content.*' is not REGEX=PAGE, PAGE with a leading /; write"),
        (["(.*)=page"], "is not REGEX=PAGE"),
        (["(.*=/x"], r"rule '\(\.\*=/x' is not a valid regex: missing \), .*; correct it"),
        ([r"(.*)=/\2"], "invalid group reference 2"),
        ([r"(.*)=/\g<name>"], "unknown group name"),
        ([r"content/.*\.html=/x"], r"no file matches any rule; its history has b, content/a\.md;"),
        ([], "no file matches any rule"),
    ],
)
def test_bad_rules_are_refused_with_a_remedy(tmp_path, rules, said):
    site = repository(tmp_path, (0, {"content/a.md": "", "b": ""}), (1, {"b": "b"}))
    with pytest.raises(InvalidTrace, match=said):
        read(site, rules)


def test_the_last_equals_sign_before_a_page_parts_a_rule(tmp_path):
    site = repository(tmp_path, (0, {"lang=/a.md": ""}), (1, {"b": "b"}))
    assert [*told(read(site, [r"lang=/(.*)\.md=/\1"]))] == ["/a"]


def test_what_is_no_repository_or_has_no_history_is_refused(tmp_path, monkeypatch):
    with pytest.raises(InvalidTrace, match=r"no folder .*nowhere; name the folder of a git"):
        read(tmp_path / "nowhere")
    with pytest.raises(InvalidTrace, match="not a git repository; name the folder of a clone"):
        read(tmp_path)
    init(tmp_path)
    with pytest.raises(InvalidTrace, match="the repository has no revision yet"):
        read(tmp_path)
    (tmp_path / ".git" / "HEAD").write_text("0123456789" * 4)
    with pytest.raises(InvalidTrace, match="git log failed: fatal: bad object HEAD"):
        read(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InvalidTrace, match="no git command; install git"):
        read(tmp_path)


def test_a_history_of_one_instant_is_refused(tmp_path):
    with pytest.raises(InvalidTrace, match=r"one instant; if the clone is shallow, .*--unshallow"):
        read(repository(tmp_path, (0, {"content/a.md": ""})))


def test_importance_is_not_in_a_history(tmp_path):
    site = repository(tmp_path, (0, {"content/a.md": ""}), (1, {"b": "b"}))
    with pytest.raises(InvalidTrace, match="has no importance of its pages; choose equal"):
        read(site, importance="column")


def test_a_hook_s_environment_and_the_owner_s_settings_change_nothing(tmp_path, monkeypatch):
    site, other = tmp_path / "site", tmp_path / "other"
    site.mkdir()
    other.mkdir()
    repository(other, (0, {"content/other.md": ""}), (1, {"b": ""}))
    repository(site, (0, {"content/a.md": "a"}), (1, {"content/a.md": "b"}))
    signed = git(site, "cat-file", "commit", "main").replace(b"\n\n", b"\ngpgsig none\n\n", 1)
    head = git(site, "hash-object", "-t", "commit", "-w", "--stdin", stdin=signed).strip()
    git(site, "update-ref", "refs/heads/main", head)
    expected = told(read(site))
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    settings = tmp_path / "settings"
    settings.write_text(
        "[log]\nshowRoot=false\nshowSignature=true\ndecorate=full\n"
        "[diff]\nrenames=copies\nrelative=true\n"
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    assert told(read(site)) == expected
    (site / "content").mkdir()
    assert told(read(site / "content")) == expected


def test_a_stream_is_cut_at_its_zeros_wherever_its_chunks_end(monkeypatch, tmp_path):
    site = repository(tmp_path, *((day, {"content/a.md": str(day)}) for day in range(5)))
    expected = told(read(site))
    monkeypatch.setattr(git_history, "CHUNK", 7)
    assert told(read(site)) == expected
    assert len(expected["/a/"]) == 6
