"""Pages of the documentation: their fenced blocks, run as they stand, and the answers they show."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from support.live_server import PATIENCE_S
from support.processes import ENDS_WITHIN_S, ROOT, environment

DOCS = ROOT / "docs"
FENCE = re.compile(r'^```(\w+)(?: title="([^"]*)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
NUMBER = re.compile(r"\d+(?:\.\d+)?")
CLOSE = 0.05
"""Maximum relative difference between a number on a page and the real one."""
PRELUDE = 'set -euo pipefail\nrecrawl() { "$PYTHON" -m service "$@"; }\n'
"""The command of this checkout, wherever another one is installed."""


class Block(NamedTuple):
    """A fenced block: its language, its title and its text."""

    language: str
    title: str
    text: str


def blocks(page: str, language: str = "") -> list[Block]:
    """Return the fenced blocks of a page's text, or those in one language."""
    fenced = [Block(*match) for match in FENCE.findall(page.replace("\r\n", "\n"))]
    return [block for block in fenced if not language or block.language == language]


def block(page: str, title: str) -> Block:
    """Return the block of this title."""
    (one,) = [block for block in blocks(page) if block.title == title]
    return one


def variables(**settings: Any) -> dict[str, str]:
    """Return the environment of a reader's shell, with these settings of the service."""
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    return environment(**settings) | {"PYTHON": sys.executable, "PYTHONPATH": paths}


def shell(script: str, directory: Path, **settings: Any) -> str:
    """Run a block in bash to its end; return what it printed."""
    done = subprocess.run(
        ["bash", "-c", PRELUDE + script],
        env=variables(**settings),
        cwd=directory,
        text=True,
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@contextmanager
def terminal(script: str, directory: Path, **settings: Any) -> Iterator[Path]:
    """Run a block in bash until the context ends; yield the file that has its output."""
    log = directory / f"terminal-{len(list(directory.glob('terminal-*')))}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["bash", "-c", PRELUDE + script],
            env=variables(**settings) | {"PYTHONUNBUFFERED": "1"},
            cwd=directory,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield log
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(ENDS_WITHIN_S)


def documents(output: str) -> list[Any]:
    """Return the JSON documents that stand one after the other."""
    decoder, values = json.JSONDecoder(), []
    while output := output.lstrip():
        value, end = decoder.raw_decode(output)
        values.append(value)
        output = output[end:]
    return values


def assert_agrees(answer: Any, shown: Any) -> None:
    """Compare an answer with the one on a page: numbers nearly, instants by their form."""
    if isinstance(shown, dict):
        assert answer.keys() == shown.keys()
        for name, value in shown.items():
            assert_agrees(answer[name], value)
    elif isinstance(shown, list):
        assert len(answer) == len(shown)
        for one, value in zip(answer, shown, strict=True):
            assert_agrees(one, value)
    elif isinstance(shown, str):
        assert_same_text(answer, shown)
    else:
        assert type(answer) is type(shown)
        assert answer == (shown if shown is None else pytest.approx(shown, rel=CLOSE))


def assert_same_text(answer: str, shown: str) -> None:
    """Compare texts: the same words, numbers nearly, instants by their form."""
    if INSTANT.fullmatch(shown):
        assert INSTANT.fullmatch(answer)
        return
    assert NUMBER.sub("#", answer) == NUMBER.sub("#", shown)
    numbers = [float(number) for number in NUMBER.findall(answer)]
    assert numbers == pytest.approx([float(n) for n in NUMBER.findall(shown)], rel=CLOSE)
