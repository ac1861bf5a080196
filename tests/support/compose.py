"""Compose files without an engine: variables, and commands as processes of this machine."""

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.live_server import PATIENCE_S
from support.processes import free_port


def substituted(value: str, variables: dict[str, str]) -> str:
    """${NAME}, ${NAME:-default} and ${NAME:?error} as compose replaces them."""

    def replace(match: re.Match[str]) -> str:
        name, operator, text = match.groups()
        if operator == ":?" and not variables.get(name):
            raise ValueError(f"{name}: {text}")
        return variables.get(name) or text or ""

    return re.sub(r"\$\{(\w+)(:[-?])?([^}]*)\}", replace, value)


@contextmanager
def running(
    command: list[str], env: dict[str, str], cwd: Path
) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, env=env, cwd=cwd, stderr=subprocess.PIPE)
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE_S)


def eventually(check: Any, process: subprocess.Popen[bytes]) -> Any:
    """Ask until it holds; the process must live meanwhile."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        assert process.poll() is None, process.stderr and process.stderr.read()
        try:
            if found := check():
                return found
        except httpx.HTTPError:
            pass
        time.sleep(0.05)
    pytest.fail("not in time")


def check_health(written: list[str], port: int, env: dict[str, str]) -> None:
    command = [re.sub(r":8[07]\d\d/", f":{port}/", word) for word in written]
    assert command != written
    command[0] = sys.executable if command[0] == "python" else command[0]
    assert subprocess.run(command, env=env, check=False, timeout=PATIENCE_S).returncode == 0
    command = [word.replace(str(port), str(free_port())) for word in command]
    dead = subprocess.run(
        command, env=env, check=False, timeout=PATIENCE_S, stderr=subprocess.DEVNULL
    )
    assert dead.returncode != 0
