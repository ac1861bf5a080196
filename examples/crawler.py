"""A polite crawler in a hundred lines: it leases due pages from Recrawl, fetches and reports them.

python examples/crawler.py http://127.0.0.1:8000    # and RECRAWL_API_KEY, if there is a key
"""

import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from hashlib import blake2b

import httpx

import recrawl_client as rc

THREADS = 16
HEADERS = {"User-Agent": "recrawl-example/0.1 (+https://example.com/who-answers-complaints)"}
STOP = threading.Event()


def visit(crawl: rc.Crawl, web: httpx.Client, robots: rc.Robots, reporter: rc.Reporter) -> None:
    """Fetch one page by a conditional request, and report the answer.

    The crawler follows no redirect, because Recrawl schedules the target as a page.
    """
    entry = robots.enter(crawl)  # robots.txt allows the page, and its delay has passed
    if not entry.allowed:
        print(entry.evidence.get("status", "-"), crawl.url, entry.reason, flush=True)
        return reporter.report(crawl, **entry.evidence) if entry.evidence else None
    sent_at = datetime.now(UTC)  # a ping that is newer leads to another crawl
    try:
        response = web.get(crawl.url, headers=rc.conditions(crawl))
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        print(f"0 {crawl.url} {error}", flush=True)
        return reporter.report(crawl, status=0, observed_at=sent_at)
    result: rc.CrawlEvidence = {"status": response.status_code, "observed_at": sent_at}
    if response.is_success:  # store response.content here
        result["digest"] = blake2b(response.content, digest_size=16).hexdigest()
    result["etag"], result["last_modified"] = rc.etag(response), rc.last_modified(response)
    result["redirect_url"] = rc.redirect_url(response)
    result["retry_after_s"] = rc.retry_after(response) or None
    print(response.status_code, crawl.url, result["redirect_url"] or "", flush=True)
    return reporter.report(crawl, **result)


def work(web: httpx.Client, robots: rc.Robots, reporter: rc.Reporter) -> None:
    """Lease and visit one crawl at a time until stopped; finish and report the last one.

    A lease request carries the reports that wait, so each crawl takes one request.
    """
    while not STOP.is_set():
        try:
            for crawl in reporter.lease(count=1, wait_s=2).items:
                visit(crawl, web, robots, reporter)
        except rc.Unavailable as error:
            print(error, file=sys.stderr)


if __name__ == "__main__":
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, lambda *_: STOP.set())
    with (
        rc.Client(*sys.argv[1:2], api_key=os.environ.get("RECRAWL_API_KEY")) as recrawl,
        httpx.Client(headers=HEADERS, timeout=20) as web,
        recrawl.reporter() as reporter,
        ThreadPoolExecutor(THREADS) as pool,
    ):
        robots = rc.Robots(HEADERS["User-Agent"], recrawl, wait=STOP.wait)
        for thread in [pool.submit(work, web, robots, reporter) for _ in range(THREADS)]:
            thread.result()
