"""A polite crawler in sixty lines: it crawls what Recrawl says, when it says.

python examples/crawler.py http://127.0.0.1:8000    # and RECRAWL_API_KEY, if there is a key
"""

import hashlib
import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx

from recrawl_client import Client, Crawl, Reporter, Unavailable, last_modified, retry_after

THREADS = 16
HEADERS = {"User-Agent": "recrawl-example/0.1 (+https://example.com/who-answers-complaints)"}
STOP = threading.Event()
ASKS = {"If-None-Match": "ETag", "If-Modified-Since": "Last-Modified"}
validators: dict[int, dict[str, str]] = {}


def visit(crawl: Crawl, web: httpx.Client, reporter: Reporter) -> None:
    """Fetch one page, unless it is as it was, and report what was seen."""
    try:
        response = web.get(crawl.url, headers=validators.get(crawl.page_id))
    except (httpx.HTTPError, httpx.InvalidURL):
        return reporter.report(crawl, status=0)
    result: dict[str, object] = {"status": response.status_code}
    if response.is_success:  # here you keep response.content
        result["digest"] = hashlib.blake2b(response.content, digest_size=16).hexdigest()
        result["last_modified"] = last_modified(response)
        headers = {ask: response.headers.get(name) for ask, name in ASKS.items()}
        validators[crawl.page_id] = {ask: v for ask, v in headers.items() if v and v.isascii()}
    result["retry_after_s"] = retry_after(response) or None
    return reporter.report(crawl, **result)


def work(recrawl: Client, web: httpx.Client, reporter: Reporter) -> None:
    """Take crawls one by one until told to stop; what was begun is finished and reported."""
    while not STOP.is_set():
        try:
            for crawl in recrawl.lease(count=1, wait_s=2).items:
                visit(crawl, web, reporter)
        except Unavailable as error:
            print(error, file=sys.stderr)


if __name__ == "__main__":
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, lambda *_: STOP.set())
    with (
        Client(*sys.argv[1:2], api_key=os.environ.get("RECRAWL_API_KEY")) as recrawl,
        httpx.Client(headers=HEADERS, follow_redirects=True, timeout=20) as web,
        recrawl.reporter(every_s=0.2) as reporter,
        ThreadPoolExecutor(THREADS) as pool,
    ):
        for thread in [pool.submit(work, recrawl, web, reporter) for _ in range(THREADS)]:
            thread.result()
