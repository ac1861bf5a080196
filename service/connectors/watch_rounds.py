"""Rounds of a watch: sitemaps at every interval, and between them the feeds that are due."""

from collections.abc import Iterator

from recrawl_client import Unavailable
from service.connectors.feed_watch import FeedReader
from service.connectors.watching import Watcher, WatchStep

RESTORED = "the database of the service was restored: all documents are read again"


def rounds(
    watcher: Watcher, reader: FeedReader, urls: list[str], interval_s: float, n: int | None = None
) -> Iterator[WatchStep]:
    """Yield the steps of `n` rounds, or of endless ones.

    The interval runs from start to start. A round ends with all feeds that are due. Without `n`, a
    service that is away ends only the round, except the first one.
    """
    done = 0
    while True:
        started = watcher.clock()
        try:
            if watcher.recognise():
                yield WatchStep(watcher.client.base_url, "listed", reason=RESTORED)
            if not done:
                reader.keep(urls)
                yield from reader.due()  # shows whether this key may lease feeds at all
            yield from watcher.look(urls)
            yield from reader.due()
            done += 1
            if done == n:
                return
            end = started + interval_s
            for opens_at, closed in watcher.hours.openings(end):
                yield from reader.until(opens_at)
                yield from watcher.look(closed)
            yield from reader.until(end)
        except Unavailable as error:
            if n is not None or not done:
                raise
            yield WatchStep(watcher.client.base_url, "failed", reason=str(error))
            done += 1
            watcher.sleep(max(started + interval_s - watcher.clock(), 0.0))
