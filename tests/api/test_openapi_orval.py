"""The client that orval generates from openapi/openapi.json compiles and drives the server."""

import json
import re
import subprocess
from pathlib import Path

import pytest
from support.live_server import lease_freely, running
from support.npm import NODE, install
from support.processes import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.external]

DOCUMENT = ROOT / "openapi" / "openapi.json"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory) -> Path:
    """Return a folder with orval's client and the program of tools/orval, compiled."""
    folder = tmp_path_factory.mktemp("orval") / "tools"
    tool = install(folder, "orval")
    options = ("--output", "client.ts", "--client", "fetch", "--mode", "single")
    generated = tool("orval", "--input", DOCUMENT, *options)
    assert generated.returncode == 0, generated.stdout + generated.stderr
    assert not re.search("error|warn", generated.stdout + generated.stderr, re.IGNORECASE)
    made = tool("tsc", "--project", ".")
    assert made.returncode == 0, made.stdout
    return folder


def test_every_operation_is_a_function(compiled):
    paths = json.loads(DOCUMENT.read_text())["paths"].values()
    names = {each["operationId"].replace("_", "") for methods in paths for each in methods.values()}
    source = (compiled / "client.ts").read_text()
    functions = {
        name.lower() for name in re.findall(r"^export const (\w+) = async", source, re.MULTILINE)
    }
    assert names <= functions


def test_the_client_drives_the_server(compiled, sqlite_url):
    with running(sqlite_url) as live:
        lease_freely(live)
        ended = subprocess.run(
            [NODE, compiled / "out" / "drive.js", live.url],
            capture_output=True,
            text=True,
            check=False,
        )
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == {
        "page_ids": [1],
        "leases_ended": 1,
        "url": "https://example.com/news",
        "importance": 3.5,
        "max_crawl_rate": None,
        "missing": 404,
        "detail": 404,
    }
