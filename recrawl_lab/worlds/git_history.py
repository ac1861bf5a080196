r"""Recordings of a site from the git history of its sources.

Rules REGEX=PAGE map source files to pages, as content/(.*)\.md=/\1/ does. A rule must match the
whole path from the top of the repository. The first matching rule counts. Files without a matching
rule are left out. Several files may make one page.

The recording has these rules:

- The history is that of the branch that is checked out, along first parents. Because the site shows
  a branch only after its merge, its changes count at the merge. Each revision counts at its
  committer's date; a revision out of order counts with the one before.
- A page exists from the revision that adds its first file to the one that removes its last one. A
  page that came back existed all along and changed when it came back.
- A page changes when the contents of its files change. A renamed file is the end of one page and
  the creation of another, as a crawler sees it. If the rules map both names to one page, that page
  changes only if the content does.
- A revision that touches more than 200 pages is a bulk revision.
"""

import os
import re
import shutil
import subprocess
import tempfile
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, NamedTuple, cast
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from recrawl_lab.errors import InvalidTrace
from recrawl_lab.worlds.recording import BULK, Recording, made_up_host
from service.model.arrays import Floats, Ints

RULE = re.compile("(.+)=(/.*)", re.DOTALL)
"""Pattern of a rule, divided at its last =/ because the regex may contain others."""
LOG = (
    "-c",
    "log.showRoot=true",
    "-c",
    "log.showSignature=false",
    "-c",
    "diff.relative=false",
    "log",
    "--first-parent",
    "--diff-merges=first-parent",
    "--reverse",
    "--format=%ct",
    "--raw",
    "-z",
    "--no-abbrev",
    "--no-renames",
)
POINTS_ELSEWHERE = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")
"""Environment variables of git hooks, which would hide the named repository."""
HASH_DIGITS = 16
"""Length of a content's hash, hexadecimal digits; all 0 where there is no file."""
CHUNK = 1 << 20
SHOWN = 3
"""Maximum number of files in a message."""


def read_git(path: str | Path, rules: Sequence[str]) -> Recording:
    """Return the history of a repository, read by the git command.

    Parameters
    ----------
    path
        Folder of a clone, or of a bare repository.
    rules
        Rules REGEX=PAGE; PAGE has a leading / and may refer to the groups of REGEX.

    Raises
    ------
    InvalidTrace
        There is no git command, no repository or no history, a rule is malformed, or no file
        matches any rule.
    """
    folder, pages = Path(path), FileLog(rules)
    touched = _touched(folder, pages)
    if not pages.name:
        there = ", ".join(pages.left_out[:SHOWN]) or "no file"
        raise InvalidTrace(
            f"{path}: no file matches any rule; its history has {there}; a rule must match the "
            "whole path from the top of the repository"
        )
    recording = _recording(folder.resolve().name.removesuffix(".git"), pages, touched)
    if not (recording.ended > recording.started).any():
        raise InvalidTrace(
            f"{path}: the history of these pages is one instant; if the clone is shallow, get the "
            "rest with git fetch --unshallow"
        )
    return recording


class FileLog:
    """Map from files to pages by the rules; pages are numbered in the order of their appearance."""

    def __init__(self, rules: Sequence[str]) -> None:
        self._rules = [_rule(text) for text in rules]
        self._number: dict[bytes, int | None] = {}
        self.name: dict[bytes, int] = {}
        self.left_out: list[str] = []
        """Files without a matching rule."""

    def number(self, file: bytes) -> int | None:
        """Return the page of a file, or None if it is left out."""
        if file not in self._number:
            self._number[file] = self._match(file)
        return self._number[file]

    def _match(self, file: bytes) -> int | None:
        name = file.decode(errors="surrogateescape")
        for regex, page in self._rules:
            if match := regex.fullmatch(name):
                made = match.expand(page).encode(errors="surrogateescape")
                return self.name.setdefault(made, len(self.name))
        self.left_out.append(file.decode(errors="backslashreplace"))
        return None


def _rule(text: str) -> tuple[re.Pattern[str], str]:
    parts = RULE.fullmatch(text)
    if parts is None:
        raise InvalidTrace(
            f"rule {text!r} is not REGEX=PAGE, PAGE with a leading /; write for example "
            r"content/(.*)\.md=/\1/"
        )
    regex, page = parts.groups()
    try:
        compiled = re.compile(regex)
        compiled.sub(page, "")  # checks the references, also where nothing matches
    except (re.error, IndexError) as error:
        raise InvalidTrace(f"rule {text!r} is not a valid regex: {error}; correct it") from error
    return compiled, page


# -- from revisions to pages


class Touched(NamedTuple):
    """(R,) revisions from the first to the last, and the (E,) files that they changed."""

    revised_at: Floats
    """Committer's date of each revision, seconds since 1970."""
    revision: Ints
    page: Ints
    old: NDArray[np.uint64]
    """Hash of the file's content before the revision, 0 where there was no file."""
    new: NDArray[np.uint64]


def _recording(site: str, pages: FileLog, touched: Touched) -> Recording:
    """Return the recording from each page's number of files and the hashes of their contents."""
    at = in_order(touched.revised_at)
    order = np.lexsort((touched.revision, touched.page))
    page, revision = touched.page[order], touched.revision[order]
    step = np.flatnonzero((np.diff(page, prepend=-1) != 0) | (np.diff(revision, prepend=-1) != 0))
    more_files = (touched.new > 0).astype(np.int64) - (touched.old > 0)
    n_files = np.cumsum(np.add.reduceat(more_files[order], step))
    differs = np.add.reduceat((touched.new - touched.old)[order], step) != 0
    page, revision = page[step], revision[step]
    first = np.flatnonzero(np.diff(page, prepend=-1))
    last = np.append(first[1:], len(page)) - 1
    there = n_files > np.append(0, n_files[last[:-1]])[page]
    bulk = np.bincount(revision[differs], minlength=len(at)) > BULK
    started = at[revision[first]]
    later = at[revision] > started[page]
    changed = there & differs & later
    host = made_up_host(site)
    return Recording(
        site=site,
        url=tuple(f"{host}{quote(name)}" for name in pages.name),
        started=started,
        ended=np.where(there[last], at[-1], at[revision[last]]),
        changed_page=page[changed],
        changed_at=at[revision[changed]],
        bulk=bulk[revision[changed]],
        notes=_notes(pages, touched.revised_at, at),
    )


def in_order(told_at: Floats) -> Floats:
    """Return dates at which no revision is earlier than the one it follows.

    The longest ascending sequence of dates counts. Other dates, and 1970, are due to wrong clocks;
    they become the last date of the sequence before them. This avoids that one revision dated 2099
    moves all later ones there.

    >>> in_order(np.array([0.0, 1.0, 2.0, 99.0, 3.0, 0.0, 5.0])).tolist()
    [1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 5.0]
    """
    starts: list[float] = []
    """Negated latest possible start of an ascending sequence of each length."""
    n_after = np.full(len(told_at), -1)
    for i in np.flatnonzero(told_at > 0)[::-1].tolist():
        n_after[i] = bisect_right(starts, -told_at[i])
        starts[n_after[i] : n_after[i] + 1] = [-told_at[i]]
    believed = np.full(len(told_at), np.nan)
    wanted, last = len(starts) - 1, 0.0
    for i, at in enumerate(told_at.tolist()):
        if n_after[i] == wanted >= 0 and at >= last:
            believed[i] = last = at
            wanted -= 1
    first = np.fmin.reduce(believed, initial=np.inf)
    return np.fmax.accumulate(np.fmax(believed, first))


def _notes(pages: FileLog, told_at: Floats, at: Floats) -> tuple[str, ...]:
    n_left_out, n_late = len(pages.left_out), int((at != told_at).sum())
    such = ", ".join(pages.left_out[:SHOWN])
    notes = (
        (1, f"{len(at):,} revisions of the branch that is checked out, merges as one revision"),
        (n_left_out, f"{n_left_out:,} files match no rule and are left out, such as {such}"),
        (
            n_late,
            f"{n_late:,} revisions are dated out of order; they count with the one before",
        ),
    )
    return tuple(note for condition, note in notes if condition)


# -- the git command


def _touched(path: Path, pages: FileLog) -> Touched:
    at: list[float] = []
    revision: list[int] = []
    page: list[int] = []
    old: list[bytes] = []
    new: list[bytes] = []
    parts = _log(path)
    for part in parts:
        if not part.startswith((b":", b"\n:")):
            at.append(float(part or 0))  # git prints no date if a revision's date is broken
        elif (number := pages.number(next(parts))) is not None:
            _, _, before, after, _ = part.split(b" ")
            revision.append(len(at) - 1)
            page.append(number)
            old.append(before[:HASH_DIGITS])
            new.append(after[:HASH_DIGITS])
    return Touched(
        np.array(at, np.float64),
        np.array(revision, np.int64),
        np.array(page, np.int64),
        _hashes(old),
        _hashes(new),
    )


def _hashes(digits: list[bytes]) -> NDArray[np.uint64]:
    return np.frombuffer(bytes.fromhex(b"".join(digits).decode()), ">u8").astype(np.uint64)


def _log(path: Path) -> Iterator[bytes]:
    """Yield git's log by parts: a revision's instant, then entry and path of each file."""
    if not path.is_dir():
        raise InvalidTrace(f"no folder {path}; name the folder of a git repository")
    command = shutil.which("git")
    if command is None:
        raise InvalidTrace("no git command; install git to read histories")
    environment = {k: v for k, v in os.environ.items() if k not in POINTS_ELSEWHERE}
    with tempfile.TemporaryFile() as errors:
        git = subprocess.Popen(  # noqa: S603  no shell, and the path follows -C
            (command, "-C", path, *LOG),
            stdout=subprocess.PIPE,
            stderr=errors,
            env={**environment, "LC_ALL": "C"},
        )
        with git:
            yield from _parts(cast("IO[bytes]", git.stdout))
        if git.returncode != 0:
            errors.seek(0)
            raise InvalidTrace(f"{path}: {_reason(errors.read().decode(errors='replace'))}")


def _parts(stream: IO[bytes]) -> Iterator[bytes]:
    rest = b""
    while chunk := stream.read(CHUNK):
        *whole, rest = (rest + chunk).split(b"\0")
        yield from whole


def _reason(message: str) -> str:
    if "not a git repository" in message:
        return "not a git repository; name the folder of a clone"
    if "does not have any commits" in message:
        return "the repository has no revision yet; check out a branch that has"
    return f"git log failed: {message.partition(chr(10))[0]}"
