"""A polite crawler in a hundred lines: it leases due pages from Recrawl, fetches and reports them.

python examples/crawler.py http://127.0.0.1:8000    # and RECRAWL_API_KEY, if there is a key
"""

import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b

import httpx

import recrawl_client as rc

THREADS = 32  # slow sites hold some of them
HEADERS = {"User-Agent": "recrawl-example/0.1 (+https://example.com/who-answers-complaints)"}
TIMEOUT_S, DEADLINE_S = 20.0, 30.0
"""Longest silence within an answer, and longest time to the end of its body, seconds."""
MAX_BYTES = 5_000_000
"""Length up to which a body is read, bytes; it may be endless."""
STOP = threading.Event()


def fetched(crawl: rc.Crawl, web: httpx.Client, sent_at: rc.SentAt) -> rc.CrawlEvidence:
    """Return the answer to a conditional request; raise an error if there is none in time."""
    start = time.monotonic()
    headers, steps = rc.conditions(crawl), {"trace": sent_at}
    with web.stream("GET", crawl.url, headers=headers, extensions=steps) as response:
        result: rc.CrawlEvidence = {"status": response.status_code}
        result["etag"], result["last_modified"] = rc.etag(response), rc.last_modified(response)
        result["redirect_url"] = response.extensions["redirect_url"]
        result["retry_after_s"], result["price"] = rc.retry_after(response), rc.price(response)
        if response.is_success:
            digest, n_read = blake2b(digest_size=16), 0
            for part in response.iter_bytes():  # store the content here
                digest.update(part[: MAX_BYTES - n_read])
                n_read += len(part)
                if n_read >= MAX_BYTES:
                    break
                if time.monotonic() > start + DEADLINE_S:
                    raise TimeoutError(f"no end within {DEADLINE_S:.0f} s")
            result["digest"] = digest.hexdigest()
        result["bytes"], result["seconds"] = response.num_bytes_downloaded, time.monotonic() - start
    return result


def keep_target(response: httpx.Response) -> None:
    """Read where a redirect leads, and drop its Location: httpx raises for an invalid one."""
    response.extensions["redirect_url"] = rc.redirect_url(response)
    response.headers.pop("Location", None)


def visit(crawl: rc.Crawl, web: httpx.Client, robots: rc.Robots, reporter: rc.Reporter) -> None:
    """Fetch a page and report the answer; follow no redirect, because its target is a page too."""
    entry = robots.enter(crawl)  # robots.txt allows the page, and its delay has passed
    if not entry.allowed:
        status = entry.evidence.get("status", "-")
        print(f"{status} {crawl.url} {entry.reason}\n", end="", flush=True)  # in one write
        return reporter.report(crawl, **entry.evidence) if entry.evidence else None
    sent_at = rc.SentAt()  # a ping that is newer leads to another crawl
    try:
        result = fetched(crawl, web, sent_at)
    except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, ValueError) as error:
        print(f"0 {crawl.url} {error!r}\n", end="", flush=True)
        return reporter.report(crawl, observed_at=sent_at.value, status=0)
    shown = f"{result['status']} {crawl.url} {result['redirect_url'] or ''}"
    print(f"{shown}\n", end="", flush=True)
    return reporter.report(crawl, observed_at=sent_at.value, **result)


def work(web: httpx.Client, robots: rc.Robots, reporter: rc.Reporter) -> None:
    """Lease and visit one crawl at a time; a lease request carries the reports that wait."""
    while not STOP.is_set():
        try:
            for crawl in reporter.lease(count=1, wait_s=2).items:
                visit(crawl, web, robots, reporter)
        except rc.Unavailable as error:
            print(f"{error}\n", end="", file=sys.stderr)


if __name__ == "__main__":
    if sys.argv[2:] or sys.argv[1:2] in (["-h"], ["--help"]):
        sys.exit("usage: python crawler.py [URL of Recrawl]")
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, lambda *_: STOP.set())
    with (
        rc.Client(*sys.argv[1:2], api_key=os.environ.get("RECRAWL_API_KEY")) as recrawl,
        httpx.Client(
            headers=HEADERS, timeout=TIMEOUT_S, event_hooks={"response": [keep_target]}
        ) as web,
        recrawl.reporter() as reporter,
        ThreadPoolExecutor(THREADS) as pool,
    ):
        robots = rc.Robots(HEADERS["User-Agent"], recrawl, wait=STOP.wait)
        for thread in [pool.submit(work, web, robots, reporter) for _ in range(THREADS)]:
            thread.result()
