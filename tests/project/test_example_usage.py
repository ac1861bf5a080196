"""The examples of crawlers print their usage where their arguments are wrong."""

import runpy
import subprocess
import sys
from types import SimpleNamespace

import httpx
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


class Writes(list):
    """A stream that keeps what each write has."""

    def write(self, text):
        self.append(text)

    def flush(self):
        """Do nothing."""


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        (httpx.Response(200, content=b"x", extensions={"redirect_url": None}), "200 {url} "),
        (httpx.Response(302, extensions={"redirect_url": "https://b/"}), "302 {url} https://b/"),
        (httpx.ConnectError("no way"), "0 {url} ConnectError('no way')"),
        (None, "- {url} forbidden"),
    ],
)
def test_threads_of_the_example_print_a_line_in_one_write(monkeypatch, answer, line):
    example = runpy.run_path(str(ROOT / "examples" / "crawler.py"))
    url = "https://a.example/"
    entry = SimpleNamespace(allowed=answer is not None, reason="forbidden", evidence={})
    reporter = SimpleNamespace(report=lambda *_, **__: None)

    def asked(request):
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(sys, "stdout", writes := Writes())
    with httpx.Client(transport=httpx.MockTransport(asked)) as web:
        crawl = SimpleNamespace(url=url, etag=None, last_modified=None, max_price=None)
        example["visit"](crawl, web, SimpleNamespace(enter=lambda _: entry), reporter)
    assert [text for text in writes if text] == [f"{line.format(url=url)}\n"]
