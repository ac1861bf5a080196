"""Programs from npm: those of tools/openapi, run by the node of PyPI."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from support.processes import ROOT

NODE = Path(sys.executable).parent / "node"
"""Node from PyPI, beside this Python."""
ENVIRONMENT = {
    **os.environ,
    "PATH": f"{NODE.parent}{os.pathsep}{os.environ['PATH']}",
    "REDOCLY_TELEMETRY": "off",
    "REDOCLY_SUPPRESS_UPDATE_NOTICE": "true",
    "npm_config_update_notifier": "false",
}

Tool = Callable[..., subprocess.CompletedProcess[str]]


def install(folder: Path) -> Tool:
    """Return a function that runs one of the tools of tools/openapi in a folder of its own."""
    shutil.copytree(
        ROOT / "tools" / "openapi",
        folder,
        ignore=shutil.ignore_patterns("node_modules", "out", "schema.ts"),
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
