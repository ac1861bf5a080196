"""The page on lists and captures: its commands run, on files as archives give them."""

import base64
import gzip
import hashlib
import json
import sqlite3
import sys
import threading
import uuid
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from support.pages import DOCS, block, shell

PAGE = (DOCS / "how-to" / "start-from-history.md").read_text()
URL = "https://example.com/news"


def run(title, directory, replaced=""):
    text = block(PAGE, title).text
    return shell(text.replace("https://index.commoncrawl.org", replaced), directory)


def pages(directory):
    """Return changes and days of the evidence, and whether there is a copy, of each URL."""
    with closing(sqlite3.connect(directory / "recrawl.db")) as driver:
        rows = driver.execute(
            "SELECT url, estimate, last_crawl_at IS NOT NULL "
            "FROM pages JOIN page_states USING (page_id)"
        )
        return {url: (*np.frombuffer(estimate)[:2].round(), copy) for url, estimate, copy in rows}


@contextmanager
def index_server():
    """Serve Common Crawl's index: one capture in each crawl."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self):
            crawl = self.path[1:].partition("-index?")[0]
            given = {"urlkey": "com,example)/news", "timestamp": "20251201000000", "url": URL}
            given |= {"mime": "text/html", "status": "200", "digest": "A", "filename": "a.warc.gz"}
            given |= {"timestamp": "20260115000000"} if "2026" in crawl else {}
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(given).encode() + b"\n")

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.slow
def test_a_list_and_captures_are_imported_as_the_page_says(tmp_path):
    (tmp_path / "urls.txt").write_text(block(PAGE, "urls.txt").text)
    (tmp_path / "captures.cdxj").write_text(block(PAGE, "captures.cdxj").text)
    assert run("import a list", tmp_path) == "2 new pages registered, 0 lines skipped\n"
    told = block(PAGE, "counts").text.replace("1 new", "0 new")
    assert run("import captures", tmp_path) == told
    assert pages(tmp_path) == {"https://example.com/": (0, 0, 0), URL: (1, 10, 0)}


@pytest.mark.slow
def test_an_answer_of_common_crawl_is_imported_as_the_page_says(tmp_path):
    with index_server() as server:
        run("ask Common Crawl", tmp_path, server)
    assert run("import Common Crawl", tmp_path).startswith("2 captures learnt for 1 page")
    assert pages(tmp_path) == {URL: (0, 45, 0)}


def response(day, body):
    """Return a record of a WARC, compressed by itself as crawlers write it."""
    http = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n" + body
    head = {
        "WARC-Type": "response",
        "WARC-Record-ID": f"<urn:uuid:{uuid.uuid4()}>",
        "WARC-Target-URI": URL,
        "WARC-Date": f"2026-01-{day:02}T00:00:00Z",
        "WARC-Payload-Digest": "sha1:" + base64.b32encode(hashlib.sha1(body).digest()).decode(),
        "Content-Type": "application/http; msgtype=response",
        "Content-Length": str(len(http)),
    }
    lines = ["WARC/1.0", *(f"{name}: {value}" for name, value in head.items()), "", ""]
    return gzip.compress("\r\n".join(lines).encode() + http + b"\r\n\r\n", mtime=0)


@pytest.mark.slow
def test_a_warc_is_imported_as_the_page_says(tmp_path, monkeypatch):
    records = [response(day, body) for day, body in enumerate([b"a", b"a", b"b"], 1)]
    (tmp_path / "crawl.warc.gz").write_bytes(b"".join(records))
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    assert run("import a WARC", tmp_path).startswith("3 captures learnt for 1 page, 1 new")
    assert pages(tmp_path) == {URL: (1, 1, 1)}
