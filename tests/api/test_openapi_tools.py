"""Linters find nothing in openapi/openapi.json; TypeScript generated from it drives the server."""

import json
import re
import subprocess
from pathlib import Path

import pytest
from support.live_server import running
from support.npm import NODE

pytestmark = [pytest.mark.slow, pytest.mark.external]

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "openapi" / "openapi.json"


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
