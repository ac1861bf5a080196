"""Crawlers of the pages that a person ends by Ctrl-C: quietly, and with what they have seen."""

import signal
import subprocess
import sys
from datetime import UTC, datetime

import pytest
from support.live_server import PATIENCE_S, running, until
from support.local_site import page, serving
from support.pages import ROOT, blocks

PAGES = {
    "README.md": 0,
    "docs/how-to/crawl-with-your-own-crawler.md": 0,
    "docs/how-to/crawl-with-your-own-crawler.md, asyncio": 1,
}
"""Numbers of the blocks of Python, by page."""
CTRL_C = 130


@pytest.mark.dear
@pytest.mark.parametrize("name", PAGES)
def test_ctrl_c_ends_a_crawler_of_the_pages_quietly(sqlite_url, tmp_path, name):
    text = (ROOT / name.partition(",")[0]).read_text()
    code = blocks(text, "python")[PAGES[name]].text
    paths = ("/", "/news", "/about")
    with (
        running(sqlite_url, clock=lambda: datetime.now(UTC), host_delay_s=0) as live,
        serving({path: page(path) for path in paths}) as site,
    ):
        ids = live.register(*(site.url(path) for path in paths))
        code = code.replace("http://127.0.0.1:8000", live.url)
        (tmp_path / "crawler.py").write_text(code.replace("https://example.com", site.url("")))
        with subprocess.Popen(
            [sys.executable, "crawler.py", live.url],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as crawler:

            def all_reported():
                crawled = [live.get(f"/pages/{n}").json()["last_crawl_at"] for n in ids]
                return all(crawled) or crawler.poll() is not None

            until(all_reported, "all pages are crawled")
            crawler.send_signal(signal.SIGINT)
            output, _ = crawler.communicate(timeout=PATIENCE_S)
        assert (crawler.returncode, "Traceback" in output) == (CTRL_C, False), output
