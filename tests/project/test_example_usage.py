"""The examples of crawlers print their usage where their arguments are wrong."""

import subprocess
import sys

import pytest
from support.processes import ROOT, environment


@pytest.mark.parametrize("name", ["crawler.py", "async_crawler.py"])
@pytest.mark.parametrize("arguments", [["--help"], ["http://127.0.0.1:1", "more"]], ids=str)
def test_an_example_prints_its_usage(name, arguments):
    ended = subprocess.run(
        [sys.executable, ROOT / "examples" / name, *arguments],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 1
    assert ended.stderr == f"usage: python {name} [URL of Recrawl]\n"
