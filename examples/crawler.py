"""A polite crawler in a hundred lines: it leases due pages from Recrawl, fetches and reports them.

python examples/crawler.py http://127.0.0.1:8000    # and RECRAWL_API_KEY, if there is a key
"""

import os
import signal
import sys
import threading
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from urllib.parse import urlsplit

import httpx
from protego import Protego

import recrawl_client as rc

THREADS = 16
HEADERS = {"User-Agent": "recrawl-example/0.1 (+https://example.com/who-answers-complaints)"}
STOP = threading.Event()
ROBOTS_S = 3600  # time for which a robots.txt is kept


class Robots:
    """The robots.txt of each site, read once an hour."""

    def __init__(self, web: httpx.Client) -> None:
        self.web = web
        self.locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self.rules: dict[str, tuple[float, Protego]] = {}

    def allow(self, url: str) -> bool:
        """Return whether the site permits the request; no robots.txt permits all (RFC 9309).

        A site whose robots.txt cannot be read now raises the error of httpx.
        """
        site = "{0.scheme}://{0.netloc}".format(urlsplit(url))
        with self.locks[site]:  # one request, however many threads wait for it
            until, rules = self.rules.get(site, (0.0, None))
            if rules is None or time.monotonic() > until:
                answer = self.web.get(f"{site}/robots.txt", follow_redirects=True)
                if answer.is_server_error:
                    answer.raise_for_status()
                rules = Protego.parse(answer.text if answer.is_success else "")
                self.rules[site] = time.monotonic() + ROBOTS_S, rules
        return bool(rules.can_fetch(url, HEADERS["User-Agent"]))


def visit(crawl: rc.Crawl, robots: Robots, reporter: rc.Reporter) -> None:
    """Fetch one page by a conditional request, and report the answer.

    The crawler follows no redirect, because Recrawl schedules the target as a page.
    """
    web = robots.web
    try:
        if not robots.allow(crawl.url):
            print(f"403 {crawl.url} robots.txt", flush=True)
            return reporter.report(crawl, status=403)
        response = web.get(crawl.url, headers=rc.conditions(crawl))
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        print(f"0 {crawl.url} {error}", flush=True)
        return reporter.report(crawl, status=0)
    result: rc.CrawlEvidence = {"status": response.status_code}
    if response.is_success:  # store response.content here
        result["digest"] = blake2b(response.content, digest_size=16).hexdigest()
    result["etag"], result["last_modified"] = rc.etag(response), rc.last_modified(response)
    result["redirect_url"] = rc.redirect_url(response)
    result["retry_after_s"] = rc.retry_after(response) or None
    print(response.status_code, crawl.url, result["redirect_url"] or "", flush=True)
    return reporter.report(crawl, **result)


def work(robots: Robots, reporter: rc.Reporter) -> None:
    """Lease and visit one crawl at a time until stopped; finish and report the last one.

    A lease request carries the reports that wait, so each crawl takes one request.
    """
    while not STOP.is_set():
        try:
            for crawl in reporter.lease(count=1, wait_s=2).items:
                visit(crawl, robots, reporter)
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
        robots = Robots(web)
        for thread in [pool.submit(work, robots, reporter) for _ in range(THREADS)]:
            thread.result()
