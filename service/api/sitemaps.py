"""A sitemap on its way into the store: new pages are registered, a lastmod is a ping of its time.

Blocks of entries go through the line of commits that POST /pings uses, one at a time, so memory
does not grow with the document and a page's trust is learnt as from any ping.
"""

import time
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from service import ingest
from service.api.decode import EARLIEST, FUTURE_ALLOWED, NO_PAGES, instants, name_pages
from service.api.encode import add_counts, batch_counts
from service.api.schemas import Rejection, SitemapAnswer, SitemapChild
from service.api.service import Service
from service.arrays import INSTANT, NEVER, Bools, Ints
from service.columns import PageColumns, PingColumns
from service.commits import Job
from service.domain import Verdict
from service.errors import OUTAGES, InvalidUrl, Overloaded, RecrawlError
from service.ingest import Answered, Named
from service.sources.sitemap import Entry, Sitemap, latest, parse_lastmod
from service.urls import NormalUrl, normalise

MAX_CHILDREN = 50_000
"""Sitemaps that an index may have, by the protocol."""
PATIENCE_S = 30.0
"""How long a document that has begun waits for room in the line of what is to be written."""
POLL_S = 0.05
A_DAY = timedelta(days=1)
"""East of Greenwich, a site may name tomorrow's day; what lies further ahead is a mistake."""


class Asked(NamedTuple):
    """How a document is to be taken."""

    host: str
    """Where it was fetched from."""
    cross_host: bool = False
    register: bool = True
    kind: str = "sitemap"
    """What metrics count it as."""


class Good(NamedTuple):
    """An entry that can be taken."""

    position: int
    url: NormalUrl
    changed_at: datetime | None
    """None where it does not say."""
    changed_by: datetime | None
    """The last instant that is meant."""


class Reader:
    """Takes a document, and remembers what has become of it."""

    def __init__(self, service: Service, asked: Asked) -> None:
        self.service = service
        self.asked = asked
        self.counts = _counted()
        self.created = self.n_crawl_now = self.n_taken = self.n_undated = self.n_ahead = 0
        self.undated = ""
        self.children: dict[bytes, SitemapChild] = {}

    def read(self, sitemap: Sitemap) -> SitemapAnswer:
        """Take all entries and tell what became of them; raises as `take`."""
        self.take(sitemap)
        warnings = list(sitemap.warnings)
        if self.n_undated:
            warnings.append(
                f"{self.n_undated} lastmod could not be used, those pages were taken without; the "
                f"first: {self.undated}"
            )
        return SitemapAnswer(
            **self.counts, kind=sitemap.kind, created=self.created, n_crawl_now=self.n_crawl_now,
            children=list(self.children.values()), warnings=warnings,
            complete=not sitemap.broke_off and not self.n_ahead,
        )  # fmt: skip

    def take(self, given: Iterable[Entry]) -> None:
        """Take all entries.

        Raises
        ------
        RecrawlError
            What kept the document from its end; sending it again is safe.
        """
        entries = iter(given)
        try:
            while block := list(islice(entries, self.service.max_items)):
                self._take(block)
                self.n_taken += len(block)
        except (Overloaded, *OUTAGES) as error:
            raise self._cut_short(error) from error.__cause__

    def _take(self, block: list[Entry]) -> None:
        now = self.service.now()
        pages, children, rejected = list[Good](), list[Good](), list[Rejection]()
        for entry in block:
            judged = self._judge(entry, now)
            if isinstance(judged, Rejection):
                rejected.append(judged)
            else:
                (children if entry.is_child else pages).append(judged)
        self._count(_counted(rejected=rejected))
        if children:
            self._take_children(children)
        if pages:
            self._take_pages(pages, now)

    def _count(self, counts: dict[str, Any]) -> None:
        self.service.telemetry.count_items(self.asked.kind, counts)
        self.counts = add_counts(self.counts, counts)

    def _cut_short(self, error: RecrawlError) -> RecrawlError:
        if not self.n_taken:
            return error
        reason = error.detail.partition(";")[0].rstrip(".")
        return type(error)(
            f"{reason}; the {self.n_taken} entries before were taken, sending the document again "
            "is safe"
        )

    # -- entries

    def _judge(self, entry: Entry, now: datetime) -> Good | Rejection:
        try:
            url = normalise(entry.loc)
        except InvalidUrl as error:
            code, detail = error.code, error.detail
            if not entry.loc:
                code, detail = "no_loc", "the entry names no address; give it a loc"
            return Rejection(index=entry.position, code=code, detail=detail, field="loc")
        if url.host != self.asked.host and not self.asked.cross_host:
            detail = (
                f"the host {url.host[:100]} is not the sitemap's, {self.asked.host[:100]}; send "
                "cross_host=true to take its word for other hosts"
            )
            return Rejection(index=entry.position, code="cross_host", detail=detail, field="loc")
        changed_at = self._changed_at(entry, now)
        changed_by = changed_at and latest(entry.lastmod or "", changed_at, now)
        return Good(entry.position, url, changed_at, changed_by)

    def _changed_at(self, entry: Entry, now: datetime) -> datetime | None:
        """Read a lastmod; a page with one that cannot be is taken without."""
        if not entry.lastmod:
            return None
        told = parse_lastmod(entry.lastmod)
        if told is not None and EARLIEST <= told <= now + FUTURE_ALLOWED:
            return told
        why = "no W3C date" if told is None else "before 1990 or in the future"
        self.undated = self.undated or f"{entry.lastmod[:60]!r} of entry {entry.position}, {why}"
        self.n_undated += 1
        self.n_ahead += told is not None and now < told <= now + A_DAY
        return None

    def _take_children(self, given: list[Good]) -> None:
        """Remember the sitemaps to fetch, each once."""
        before, rejected = len(self.children), list[Rejection]()
        for entry in given:
            if len(self.children) < MAX_CHILDREN or entry.url.key in self.children:
                child = SitemapChild(loc=entry.url.url, lastmod=entry.changed_at)
                self.children.setdefault(entry.url.key, child)
            else:
                detail = f"an index may name {MAX_CHILDREN:,} sitemaps; split it"
                rejected.append(
                    Rejection(index=entry.position, code="too_many", detail=detail, field="loc")
                )
        new = len(self.children) - before
        known = len(given) - new - len(rejected)
        self._count(_counted(accepted=new, duplicate=known, rejected=rejected))

    def _take_pages(self, given: list[Good], now: datetime) -> None:
        """Register the pages that are new, and ping those with a lastmod; each page counts once."""
        named = name_pages(np.zeros(len(given), np.int64), [entry.url for entry in given])
        first = np.unique(named.row, return_index=True)[1]
        changed_at, changed_by = np.full((2, len(first)), NEVER, INSTANT)
        dated = [
            (row, one.changed_at, one.changed_by)
            for row, one in zip(named.row, given, strict=True)
            if one.changed_at and one.changed_by
        ]
        rows = [row for row, _, _ in dated]
        np.fmax.at(changed_at, rows, instants([at for _, at, _ in dated]))
        np.fmax.at(changed_by, rows, instants([by for _, _, by in dated]))
        page_id, created = self._enter(named.pages, now)
        verdict = np.where(created, Verdict.accepted, Verdict.duplicate).astype(np.int16)
        verdict[page_id == 0] = Verdict.unknown
        crawl = created.copy()
        told = np.flatnonzero(~np.isnat(changed_at) & (page_id > 0))
        if len(told):
            pings = PingColumns(
                page_id=page_id[told], changed_at=changed_at[told], changed_by=changed_by[told]
            )
            answered = self._ping(pings, now)
            verdict[told] = answered.verdict
            crawl[told] |= answered.crawl
        self.created += int(created.sum())
        self.n_crawl_now += int(crawl.sum())
        index = np.array([entry.position for entry in given], np.int64)[first]
        counts = batch_counts(verdict, index, np.zeros_like(index), [])
        counts["duplicate"] += len(given) - len(first)
        self._count(counts)

    # -- the store

    def _enter(self, pages: PageColumns, now: datetime) -> tuple[Ints, Bools]:
        """Give the page_id of each page, 0 where it is unknown and stays so; and which are new."""
        with self.service.store.begin(write=False) as tx:
            page_id = tx.page_ids(pages.key)
        new, created = page_id == 0, np.zeros(len(pages), np.bool_)
        if self.asked.register and new.any():
            page_id[new], created[new] = self.service.registering.register(pages.take(new), now)
        return page_id, created

    def _ping(self, pings: PingColumns, now: datetime) -> Answered:
        """Put change notices in the line of commits, and wait until they are written."""
        named = Named(pings.page_id, np.full(len(pings), -1), NO_PAGES)
        deadline = time.monotonic() + PATIENCE_S
        while True:
            job = Job(ingest.ping, pings, named, register=False, now=now)
            try:
                return self.service.commits.submit(job).result().made
            except Overloaded:
                if not self.n_taken or time.monotonic() > deadline:
                    raise
            time.sleep(POLL_S)


def _counted(
    accepted: int = 0, duplicate: int = 0, rejected: Sequence[Rejection] = ()
) -> dict[str, Any]:
    return {
        "accepted": accepted,
        "duplicate": duplicate,
        "late": 0,
        "n_rejected": len(rejected),
        "rejected": list(rejected),
    }
