"""Linters find nothing in openapi/openapi.json; TypeScript generated from it drives the server."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.live_server import running

pytestmark = [pytest.mark.slow, pytest.mark.external]

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "openapi" / "openapi.json"
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


@pytest.fixture(scope="module")
def tool(tmp_path_factory) -> Tool:
    """Return a function that runs one of the tools of tools/openapi in a folder of its own."""
    folder = tmp_path_factory.mktemp("tools") / "openapi"
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


def test_redocly_finds_neither_errors_nor_warnings(tool):
    ended = tool("redocly", "lint", DOCUMENT, "--extends", "recommended", "--format", "json")
    report = json.loads(ended.stdout)
    assert report["totals"] == {"errors": 0, "warnings": 0, "ignored": 0}, report["problems"]
    assert ended.returncode == 0


def test_redocly_would_find_a_fault(tool, tmp_path):
    broken = json.loads(DOCUMENT.read_text())
    del broken["servers"]
    path = tmp_path / "broken.json"
    path.write_text(json.dumps(broken))
    assert tool("redocly", "lint", path, "--extends", "recommended").returncode == 1


def test_spectral_finds_neither_errors_nor_warnings(tool):
    ended = tool("spectral", "lint", DOCUMENT, "--format", "text", "--fail-severity", "hint")
    assert ended.returncode == 0, ended.stdout
    assert "No results with a severity of 'hint' or higher found" in ended.stdout


def test_typescript_that_is_generated_compiles_and_drives_the_server(tool, sqlite_url):
    generated = tool("openapi-typescript", DOCUMENT, "--output", "schema.ts")
    assert generated.returncode == 0, generated.stderr
    compiled = tool("tsc", "--project", ".")
    assert compiled.returncode == 0, compiled.stdout
    folder = Path(compiled.args[0]).parents[2]
    assert operations_of(folder / "schema.ts") == operation_ids()
    with running(sqlite_url) as live:
        ended = subprocess.run(
            [NODE, folder / "out" / "drive.js", live.url],
            capture_output=True,
            text=True,
            check=False,
        )
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == {
        "registered": 2,
        "worker_got": 2,
        "lease_goes_on": True,
        "leases_ended": 1,
        "decision": "not_trusted",
        "created": 1,
        "delay_s": 2.5,
        "hosts": ["example.com", "example.org"],
        "epoch": 1,
        "epochs": 1,
        "scheduled": 0,
        "max_crawl_rate": None,
        "missing": 404,
    }


def operation_ids() -> set[str]:
    """Return the names of all operations of the document, those of webhooks too."""
    document = json.loads(DOCUMENT.read_text())
    paths = [*document["paths"].values(), *document["webhooks"].values()]
    return {operation["operationId"] for methods in paths for operation in methods.values()}


def operations_of(schema: Path) -> set[str]:
    """Return the names of the operations that the TypeScript declares."""
    _, _, declared = schema.read_text().partition("export interface operations {")
    return set(re.findall(r"^    (\w+): \{$", declared, re.MULTILINE))
