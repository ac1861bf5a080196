"""Recordings from the log of a Recrawl service, archived or not.

The log shows between which two crawls a page changed, but not when. A recording makes these
assumptions:

- The instant of a change is drawn uniformly from the stretch between the two crawls. Several
  changes in a stretch count as one.
- A page exists from its first crawl with content to its last one. If the last crawl found it gone,
  its end is drawn from the last stretch. A page that came back was never gone.
- A crawl that did not show its page is ignored.
"""

from datetime import UTC, datetime

import numpy as np

from recrawl_lab.errors import InvalidTrace
from recrawl_lab.worlds.crawl_log import UNSEEN, between
from recrawl_lab.worlds.recording import Recording
from service.model.arrays import Floats, Ints
from service.model.log_stretches import LoggedStretches, logged_stretches
from service.model.words import counted, span
from service.storage import Store

TOGETHER = 10_000
"""Pages whose log is read at a time."""
BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
SITE = "the service's own log"


def read_service_log(
    store: Store, *, rng: np.random.Generator, since: datetime = BEGINNING
) -> Recording:
    """Read the log of all pages since an instant, and draw the instants that it does not contain.

    Raises
    ------
    InvalidTrace
        No page has two crawls with content; the message has the remedy.
    """
    parts: list[Recording] = []
    after = n_crawls = 0
    while True:
        with store.read_whole() as tx:
            pages, _ = tx.read_pages(after, TOGETHER)
            if not len(pages):
                break
            last = int(pages.page_id[-1])
            log = tx.log_since(after, last, since)
        shown = logged_stretches(log)
        n_crawls += len(shown.entry)
        row = np.searchsorted(pages.page_id, log.page_id[shown.entry])
        parts.append(_recorded(pages.url, pages.importance, row, shown, rng))
        after = last
    urls = tuple(url for part in parts for url in part.url)
    if not urls:
        raise InvalidTrace(
            "the log of this database has no page with two crawls that showed it; report crawls, "
            "keep their log (RECRAWL_RETENTION_DAYS), and name its archive (RECRAWL_ARCHIVE)"
        )
    return _joined(parts, urls, n_crawls)


def _joined(parts: list[Recording], urls: tuple[str, ...], n_crawls: int) -> Recording:
    first = np.cumsum([0, *(len(part.url) for part in parts)])
    changed, crawled = (
        [n + getattr(part, name) for n, part in zip(first.tolist(), parts, strict=False)]
        for name in ("changed_page", "crawled_page")
    )
    started, ended, at, importance, crawled_at = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("started", "ended", "changed_at", "importance", "crawled_at")
    )
    gap_s = (ended - started).sum() / max(n_crawls, 1)
    n_crawled = f"{counted(n_crawls, 'crawl')} of {counted(len(urls), 'page')}"
    return Recording(
        site=SITE,
        url=urls,
        started=started,
        ended=ended,
        changed_page=np.concatenate(changed),
        changed_at=at,
        bulk=np.zeros(len(at), np.bool_),
        crawled_page=np.concatenate(crawled),
        crawled_at=crawled_at,
        importance=importance,
        notes=(f"{n_crawled}, {span(gap_s)} apart on average", UNSEEN),
    )


def _recorded(
    url: "np.ndarray[tuple[int], np.dtype[np.object_]]",
    importance: Floats,
    row: Ints,
    shown: LoggedStretches,
    rng: np.random.Generator,
) -> Recording:
    """Return the pages of a block that have a stretch, with their changes."""
    begin, end = _seconds(shown.begin), _seconds(shown.end)
    first = np.flatnonzero(np.diff(row, prepend=-1))
    last = np.append(first[1:], len(row)) - 1 if len(row) else first
    page = np.cumsum(np.diff(row, prepend=-1) != 0) - 1
    ended = end[last]
    lost = shown.gone[last]
    ended[lost] = between(begin[last][lost], ended[lost], rng)
    changed = np.flatnonzero(shown.changed & ~shown.gone)
    at = between(begin[changed], end[changed], rng)
    return Recording(
        site=SITE,
        url=tuple(url[row[first]].tolist()),
        started=begin[first],
        ended=ended,
        changed_page=page[changed],
        changed_at=at,
        bulk=np.zeros(len(at), np.bool_),
        crawled_page=page,
        crawled_at=end,
        importance=importance[row[first]],
    )


def _seconds(at: "np.ndarray[tuple[int], np.dtype[np.datetime64]]") -> Floats:
    return np.asarray(at.astype("M8[us]").astype(np.int64) / 1e6)
