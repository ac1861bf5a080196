"""A polite crawler for asyncio: it leases due pages from Recrawl; tasks fetch and report them.

python examples/async_crawler.py http://127.0.0.1:8000    # and RECRAWL_API_KEY, if there is a key
"""

import asyncio
import os
import signal
import sys
import time
from hashlib import blake2b

import httpx

import recrawl_client as rc

TASKS = 64
"""Largest number of crawls in hand."""
HEADERS = {"User-Agent": "recrawl-example/0.1 (+https://example.com/who-answers-complaints)"}
DEADLINE_S = 20.0
"""Longest time of a request, from its start to the end of the body, seconds."""
MAX_BYTES = 5_000_000
"""Length up to which a body is read, bytes; it may be endless."""
STOP = asyncio.Event()


async def fetched(
    crawl: rc.Crawl, web: httpx.AsyncClient, sent_at: rc.AsyncSentAt
) -> rc.CrawlEvidence:
    """Return the answer to a conditional request; raise an error if there is none in time."""
    start = time.monotonic()
    headers, steps = rc.conditions(crawl), {"trace": sent_at}
    request = web.stream("GET", crawl.url, headers=headers, extensions=steps)
    async with asyncio.timeout(DEADLINE_S), request as response:
        result: rc.CrawlEvidence = {"status": response.status_code}
        result["etag"], result["last_modified"] = rc.etag(response), rc.last_modified(response)
        result["redirect_url"] = response.extensions["redirect_url"]
        result["retry_after_s"], result["price"] = rc.retry_after(response), rc.price(response)
        if response.is_success:
            digest, n_read = blake2b(digest_size=16), 0
            async for part in response.aiter_bytes():  # store the content here
                digest.update(part[: MAX_BYTES - n_read])
                n_read += len(part)
                if n_read >= MAX_BYTES:
                    break
            result["digest"] = digest.hexdigest()
        result["bytes"], result["seconds"] = response.num_bytes_downloaded, time.monotonic() - start
    return result


async def keep_target(response: httpx.Response) -> None:
    """Read where a redirect leads, and drop its Location: httpx raises for an invalid one."""
    response.extensions["redirect_url"] = rc.redirect_url(response)
    response.headers.pop("Location", None)


async def visit(
    crawl: rc.Crawl, web: httpx.AsyncClient, robots: rc.AsyncRobots, reporter: rc.AsyncReporter
) -> None:
    """Fetch one page and report the answer, or that there is none.

    The crawler follows no redirect, because Recrawl schedules the target as a page.
    """
    entry = await robots.enter(crawl)  # robots.txt allows the page, and its delay has passed
    if not entry.allowed:
        print(entry.evidence.get("status", "-"), crawl.url, entry.reason, flush=True)
        return reporter.report(crawl, **entry.evidence) if entry.evidence else None
    sent_at = rc.AsyncSentAt()  # the page is as old as the request, not as the report
    try:
        result = await fetched(crawl, web, sent_at)
    except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, ValueError) as error:
        print(f"0 {crawl.url} {error!r}", flush=True)
        return reporter.report(crawl, observed_at=sent_at.value, status=0)
    print(result["status"], crawl.url, result["redirect_url"] or "", flush=True)
    return reporter.report(crawl, observed_at=sent_at.value, **result)


async def work(web: httpx.AsyncClient, robots: rc.AsyncRobots, reporter: rc.AsyncReporter) -> None:
    """Lease crawls and start a task for each until stopped; finish and report the last ones."""
    in_hand: set[asyncio.Task[None]] = set()
    async with asyncio.TaskGroup() as tasks:
        while not STOP.is_set():
            while len(in_hand) >= TASKS:
                await asyncio.wait(in_hand, return_when=asyncio.FIRST_COMPLETED)
            try:
                leased = await reporter.lease(count=TASKS - len(in_hand), wait_s=2)
            except rc.Unavailable as error:
                print(error, file=sys.stderr)
                continue
            for crawl in leased.items:
                task = tasks.create_task(visit(crawl, web, robots, reporter))
                in_hand.add(task)
                task.add_done_callback(in_hand.discard)


async def stopped(within_s: float) -> bool:
    """Wait for some seconds; return true, at once, when the crawler is to stop."""
    try:
        return await asyncio.wait_for(STOP.wait(), within_s)
    except TimeoutError:
        return False


async def main() -> None:
    """Crawl until SIGINT or SIGTERM."""
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, STOP.set)
    async with (
        rc.AsyncClient(*sys.argv[1:2], api_key=os.environ.get("RECRAWL_API_KEY")) as recrawl,
        httpx.AsyncClient(
            headers=HEADERS, timeout=DEADLINE_S, event_hooks={"response": [keep_target]}
        ) as web,
        recrawl.reporter() as reporter,
    ):
        await work(web, rc.AsyncRobots(HEADERS["User-Agent"], recrawl, wait=stopped), reporter)


if __name__ == "__main__":
    if sys.argv[2:] or sys.argv[1:2] in (["-h"], ["--help"]):
        sys.exit("usage: python async_crawler.py [URL of Recrawl]")
    asyncio.run(main())
