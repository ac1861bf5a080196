"""Sitemaps: new pages are registered, a lastmod is a ping of its time.

Blocks of entries go through the queue of POST /pings, one at a time. Because of this, memory does
not grow with the document, and the trust in a page's pings is learnt as from any ping.
"""

import time
from collections import deque
from collections.abc import Iterable
from datetime import datetime, timedelta
from itertools import islice
from typing import Annotated, Any, NamedTuple

import numpy as np
from fastapi import APIRouter, Depends, Query, Response

from recrawl_client.wire.common import Counts, Rejection
from recrawl_client.wire.evidence import SitemapChild, SitemapRead
from service.access.callers import Caller
from service.api import openapi
from service.api.admission import TheCaller
from service.api.assembly import Service, TheService
from service.api.examples import EXAMPLES
from service.api.requests.blocks import POLL_S, attempt, cut_short, deadline
from service.api.requests.bodies import read_document
from service.api.requests.decode import NO_PAGES, name_pages
from service.api.requests.fields import instants
from service.api.requests.key_limits import charge, check_hosts
from service.api.requests.rules import EARLIEST, FUTURE_ALLOWED
from service.api.responses.encode import answer
from service.api.responses.outcomes import add_counts, batch_counts, outcome_counts, refuse_empty
from service.api.route import GUARDED, DirectRoute
from service.api.routes.observations import Register
from service.batching.registrations import Registration
from service.batching.reports import PingReport
from service.connectors.dates import Date, read_date
from service.connectors.entries import FEEDS, SitemapEntry
from service.connectors.links import twin
from service.connectors.references import UNREADABLE
from service.connectors.sitemap import Sitemap
from service.ingest.page_names import PageNames
from service.ingest.record import PingOutcome
from service.model.arrays import INSTANT, NO_TIME, Bools, Ints
from service.model.columns import PageColumns, PingColumns
from service.model.domain import ItemVerdict, PingReason
from service.model.errors import (
    OUTAGES,
    AccessUnavailable,
    Forbidden,
    InvalidUrl,
    Overloaded,
    Unauthorized,
)
from service.model.urls import NormalUrl, normalise
from service.model.words import counted
from service.runtime.requests import ask_again

router = APIRouter(tags=["evidence"], route_class=DirectRoute, dependencies=GUARDED)


@router.post(
    "/sitemaps",
    responses=openapi.answers(SitemapRead, EXAMPLES["sitemap_answer"], *openapi.WRITES),
    openapi_extra=openapi.document_body(EXAMPLES["sitemap"]),
)
def post_sitemap(
    service: TheService,
    caller: TheCaller,
    content: Annotated[bytes, Depends(read_document)],
    url: Annotated[
        str,
        Query(
            description="URL that you fetched the document from; Recrawl does not fetch it",
            examples=[EXAMPLES["sitemap_url"]],
        ),
    ],
    cross_host: Annotated[
        bool, Query(description="True to take entries of other hosts than that of `url` too")
    ] = False,
    www: Annotated[
        bool,
        Query(
            description="True to take entries of the host with `www.` too if that of `url` has "
            "none, or of the host without it"
        ),
    ] = False,
    register: Register = True,
) -> Response:
    """Pass on a sitemap or a feed as you fetched it.

    The document is a urlset, an index, a text, RSS or Atom, plain or gzip. New pages are
    registered. The date of an RSS or Atom entry counts as a `lastmod`. A
    `lastmod` newer than the page's last ping is a ping of that time; crawls show how far the pings
    of a page can be trusted. The answer to an index has `children`: fetch these sitemaps and send
    them next, because Recrawl fetches nothing itself. Sending a document again changes nothing. An
    entry of another host than that of `url` is rejected, as the protocol demands, unless
    `cross_host=true`; `www=true` accepts those of the host with and without `www.`.

    Faults of the document, such as a raw `&`, are repaired, and `n_repaired` counts them. If a
    document breaks off, the entries before the break count, and `broke_off` names the place. A
    `lastmod` may have any form of W3C or mail dates; an unreadable or future `lastmod` is ignored.
    """
    fetched = normalise(url)
    check_hosts(caller, [fetched.host, twin(fetched.host)] if www else [fetched.host])
    if caller.boundary is not None and cross_host:
        raise Forbidden(f"this key is limited to {caller.boundary}; leave cross_host out")
    origin = DocumentOptions(fetched.host, cross_host, register, www=www)
    reader = Reader(service, origin, caller)
    result = reader.read(Sitemap(content, service.max_body_bytes, fetched.url))
    refuse_empty({name: getattr(result, name) for name in Counts.__struct_fields__})
    return answer(result)


SHOWN = 10
"""Maximum number of entries of a document that are kept to be shown."""
MAX_CHILDREN = 50_000
"""Maximum number of sitemaps in an index, by the protocol."""
MOST_REFUSED = 50_000
"""Maximum number of rejected entries of a document beyond the number of the others."""
A_DAY = timedelta(days=1)
"""Maximum lead of a lastmod, because a site east of Greenwich may name the next day."""


class DocumentOptions(NamedTuple):
    """Options of one document."""

    host: str
    """Host that the document was fetched from."""
    cross_host: bool = False
    register: bool = True
    kind: str = "sitemap"
    """Kind of the document in metrics."""
    www: bool = False
    """True where the host with `www.`, or without it, counts as the same."""
    listed: frozenset[str] = frozenset()
    """Further hosts whose entries are taken."""

    def accepts(self, host: str) -> bool:
        """Return whether entries of a host are taken."""
        return (
            host == self.host
            or self.cross_host
            or host in self.listed
            or (self.www and host == twin(self.host))
        )

    def refusal(self, host: str) -> str:
        """Return what is wrong with a host that is not accepted, and the remedy."""
        if self.kind == "websub":
            return (
                f"the host {host[:100]} is not the topic's, {self.host[:100]}; subscribe again "
                "with host_policy any, or list the host"
            )
        wish = "www" if host == twin(self.host) else "cross_host"
        return (
            f"the host {host[:100]} is not the sitemap's, {self.host[:100]}; send {wish}=true to "
            "accept its entries"
        )


class ValidEntry(NamedTuple):
    """An entry with a valid address."""

    position: int
    url: NormalUrl
    changed_at: datetime | None
    """Instant of the lastmod; None without a lastmod."""
    changed_by: datetime | None
    """Last instant of the lastmod, such as the end of its day."""


def _normal(loc: str) -> NormalUrl:
    """Return the normal form of an address; raise `InvalidUrl` where a part of it is unknown."""
    if UNREADABLE in loc:
        raise InvalidUrl("the url holds a character that cannot be read; correct the document")
    return normalise(loc)


class Reader:
    """Reader of a document that counts the outcomes of its entries."""

    def __init__(
        self, service: Service, options: DocumentOptions, caller: Caller | None = None
    ) -> None:
        self.service = service
        self.caller = caller
        """The caller whose key pays for the entries; None: nobody."""
        self.options = options
        self.counts = outcome_counts()
        self.created = self.n_crawl_now = self.n_taken = self.n_undated = self.n_ahead = 0
        self.n_not_trusted = 0
        self.undated = ""
        self.is_cut = False
        """True where most entries were rejected, and the rest of the document was not read."""
        self.children: dict[bytes, SitemapChild] = {}
        self.last_taken = deque[str](maxlen=SHOWN)
        self.last_rejected = deque[tuple[str, Rejection]](maxlen=SHOWN)
        """The last entries, with the address as the document has it."""
        self.document: Sitemap | None = None
        """Document of entries; None for entries from elsewhere."""

    def read(self, sitemap: Sitemap) -> SitemapRead:
        """Record all entries and return the counts of their outcomes; raise as `take`."""
        self.document = sitemap
        self.take(sitemap)
        warnings = list(sitemap.warnings)
        if self.n_undated:
            ignored = counted(self.n_undated, "lastmod was", "lastmod were")
            warnings.append(f"{ignored} ignored; the first: {self.undated}")
        if self.is_cut:
            entries = counted(self.counts["n_rejected"], "entry was", "entries were")
            warnings.append(f"{entries} rejected, and those after were not read")
        return SitemapRead(
            **self.counts,
            kind=sitemap.kind,
            created=self.created,
            n_crawl_now=self.n_crawl_now,
            n_not_trusted=self.n_not_trusted,
            children=list(self.children.values()),
            warnings=warnings,
            complete=not (sitemap.broke_off or self.n_ahead or self.is_cut),
            n_entries=sitemap.n_entries,
            n_lines=sitemap.line,
            n_repaired=sitemap.faults.n,
            n_undated=self.n_undated,
            broke_off=sitemap.broke_off or None,
        )

    def take(self, entries: Iterable[SitemapEntry]) -> None:
        """Record all entries in blocks.

        Raises
        ------
        RecrawlError
            The error of the failed block; sending the document again is safe.
        """
        rest = iter(entries)
        self._pay(0)
        try:
            while block := list(islice(rest, self.service.max_items)):
                ask_again()
                self._pay(len(block))
                self._take(block)
                self.n_taken += len(block)
                if 2 * self.counts["n_rejected"] > MOST_REFUSED + self.n_taken:
                    self.is_cut = True
                    break
        except (Overloaded, Unauthorized, Forbidden, AccessUnavailable, *OUTAGES) as error:
            before = counted(self.n_taken, "entry before was", "entries before were")
            progress = f"the {before} accepted, sending the document again is safe"
            raise cut_short(error, progress if self.n_taken else "") from error.__cause__

    def _pay(self, n_entries: int) -> None:
        """Charge the caller's key for entries before the work on them.

        A key in debt by other requests sends nothing; the entries of one document may be a debt,
        as those of one array. Raise `RateLimited`.
        """
        if self.caller is None:
            return
        if self.caller.bucket is not None and not self.n_taken:
            self.caller.bucket.pay(0, time.monotonic())
        if n_entries:
            charge(self.caller, n_entries + (self.n_taken > 0))

    def _take(self, block: list[SitemapEntry]) -> None:
        now = self.service.now()
        pages, children, rejected = list[ValidEntry](), list[ValidEntry](), list[Rejection]()
        for entry in block:
            judged = self._judge(entry, now)
            if isinstance(judged, Rejection):
                rejected.append(judged)
                self.last_rejected.append((entry.loc, judged))
            else:
                self.last_taken.append(judged.url.url)
                (children if entry.is_child else pages).append(judged)
        self._count(outcome_counts(rejected=rejected))
        if children:
            self._take_children(children)
        if pages:
            self._take_pages(pages, now)

    def _count(self, counts: dict[str, Any]) -> None:
        is_feed = self.document is not None and self.document.kind in FEEDS
        self.service.telemetry.count_items("feed" if is_feed else self.options.kind, counts)
        self.counts = add_counts(self.counts, counts)

    # -- entries

    def _judge(self, entry: SitemapEntry, now: datetime) -> ValidEntry | Rejection:
        try:
            url = _normal(entry.loc)
        except InvalidUrl as error:
            code, detail = error.code, error.detail
            if not entry.loc:
                code, detail = (
                    "no_loc",
                    "the entry names no address; add a loc, or a link to an entry of a feed",
                )
            return Rejection(index=entry.position, code=code, detail=detail, field="loc")
        if not self.options.accepts(url.host):
            detail = self.options.refusal(url.host)
            return Rejection(index=entry.position, code="cross_host", detail=detail, field="loc")
        date = self._date(entry, now)
        if date is None:
            return ValidEntry(entry.position, url, None, None)
        return ValidEntry(entry.position, url, date.begins, date.latest(now))

    def _date(self, entry: SitemapEntry, now: datetime) -> Date | None:
        """Return the date of a lastmod; None where it cannot be read."""
        if not entry.lastmod:
            return None
        date = read_date(entry.lastmod)
        changed_at = date and date.begins
        if changed_at is not None and EARLIEST <= changed_at <= now + FUTURE_ALLOWED:
            return date
        why = "no date" if changed_at is None else "before 1990 or in the future"
        self.undated = self.undated or f"{entry.lastmod[:60]!r} of entry {entry.position}, {why}"
        self.n_undated += 1
        self.n_ahead += changed_at is not None and now < changed_at <= now + A_DAY
        return None

    def _take_children(self, entries: list[ValidEntry]) -> None:
        """Add the sitemaps to fetch, each once."""
        before, rejected = len(self.children), list[Rejection]()
        for entry in entries:
            if len(self.children) < MAX_CHILDREN or entry.url.key in self.children:
                child = SitemapChild(loc=entry.url.url, lastmod=entry.changed_at)
                self.children.setdefault(entry.url.key, child)
            else:
                detail = f"an index may name {MAX_CHILDREN:,} sitemaps; split it"
                rejected.append(
                    Rejection(index=entry.position, code="too_many", detail=detail, field="loc")
                )
        new = len(self.children) - before
        n_again = len(entries) - new - len(rejected)
        self._count(outcome_counts(accepted=new, duplicate=n_again, rejected=rejected))

    def _take_pages(self, entries: list[ValidEntry], now: datetime) -> None:
        """Register new pages, and ping pages with a lastmod; each page counts once."""
        named = name_pages(np.zeros(len(entries), np.int64), [entry.url for entry in entries])
        first = np.unique(named.row, return_index=True)[1]
        changed_at, changed_by = np.full((2, len(first)), NO_TIME, INSTANT)
        dated = [
            (row, one.changed_at, one.changed_by)
            for row, one in zip(named.row, entries, strict=True)
            if one.changed_at and one.changed_by
        ]
        rows = [row for row, _, _ in dated]
        np.fmax.at(changed_at, rows, instants([at for _, at, _ in dated]))
        np.fmax.at(changed_by, rows, instants([by for _, _, by in dated]))
        page_id, created = self._enter(named.pages, now)
        verdict = np.where(created, ItemVerdict.accepted, ItemVerdict.duplicate).astype(np.int16)
        verdict[page_id == 0] = ItemVerdict.unknown
        crawl = created.copy()
        pinged = np.flatnonzero(~np.isnat(changed_at) & (page_id > 0))
        if len(pinged):
            pings = PingColumns(
                page_id=page_id[pinged],
                changed_at=changed_at[pinged],
                changed_by=changed_by[pinged],
            )
            committed = self._ping(pings, now)
            verdict[pinged] = committed.verdict
            crawl[pinged] |= committed.crawl
            self.n_not_trusted += int((committed.reason == PingReason.not_trusted).sum())
        self.created += int(created.sum())
        self.n_crawl_now += int(crawl.sum())
        index = np.array([entry.position for entry in entries], np.int64)[first]
        counts = batch_counts(verdict, index, np.zeros_like(index))
        counts["duplicate"] += len(entries) - len(first)
        self._count(counts)

    # -- the store

    def _enter(self, pages: PageColumns, now: datetime) -> tuple[Ints, Bools]:
        """Return the page_id of each page, 0 where it stays unknown, and which pages are new."""
        with self.service.store.begin(write=False) as tx:
            page_id = tx.page_ids(pages.key, pages.host)
        new, created = page_id == 0, np.zeros(len(pages), np.bool_)
        if self.options.register and new.any():
            registration = Registration(pages.take(new), now)
            registered = self.service.registrations.submit(registration).result()
            page_id[new] = np.maximum(registered.page_id, 0)  # a page of a race may be locked
            created[new] = registered.created
        return page_id, created

    def _ping(self, pings: PingColumns, now: datetime) -> PingOutcome:
        """Submit pings and wait until they are committed."""
        names = PageNames(pings.page_id, np.full(len(pings), -1), NO_PAGES)
        report = PingReport(pings, names, register=False, now=now)
        give_up_at = deadline(begun=self.n_taken > 0)
        while (committed := attempt(self.service.ping_reports, report, give_up_at)) is None:
            time.sleep(POLL_S)
        return committed.result()
