"""`recrawl demo --serve` ends with a console that is full of its data."""

import re
import signal
import subprocess

import pytest
from support.browsing import Browser
from support.processes import command, environment


@pytest.mark.slow
def test_the_demo_ends_with_the_address_of_its_console(tmp_path):
    words = command("demo", "--serve", "--pages", "60", "--days", "3")
    with subprocess.Popen(
        words,
        env=environment(),
        cwd=tmp_path,
        text=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as demo:
        try:
            lines = iter(demo.stderr.readline, "")
            line = next(line for line in lines if "console is at" in line)
            base, path = re.search(r"(http://[^/]+)(/console\S+);", line).groups()
            browser = Browser(base)
            assert "Pages 60 " in browser.open(path).text
            assert "60 selected" in browser.open("/console/pages").text
            assert "changed" in browser.open("/console/changes").text
        finally:
            demo.send_signal(signal.SIGINT)
        assert demo.wait(60) == 0
