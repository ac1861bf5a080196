"""Freshness: whether copies of pages are still right."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

import numpy as np
from fastapi import APIRouter, Response
from msgspec import UNSET, UnsetType
from numpy.typing import NDArray

from recrawl_client.wire.common import Rejection
from recrawl_client.wire.freshness import (
    DEFAULT_MAX_STALE,
    MOST_COPIES,
    Copy,
    FreshnessAnswer,
    Verdict,
)
from service.api import openapi
from service.api.assembly import Service, TheBody, TheService
from service.api.examples import EXAMPLES
from service.api.requests.decode import judged, normal_url
from service.api.requests.fields import instants, read_urls
from service.api.requests.items import Batch, decode_batch
from service.api.requests.rules import FUTURE_ALLOWED, ReadUrl, check_name, check_time
from service.api.responses.encode import answer
from service.api.responses.outcomes import outcome_counts, refuse_empty
from service.api.responses.tables import or_none
from service.api.route import GUARDED, DirectRoute
from service.estimation.estimates import width
from service.estimation.freshness import Freshness, read_freshness, unregistered
from service.leases.due import next_at
from service.leases.listing import advises_no_fetch, copy_states
from service.model.arrays import (
    KEY,
    NO_TIME,
    UNIX_ZERO,
    Bools,
    Floats,
    Instants,
    Ints,
    distinct,
    instant,
    moments,
)
from service.model.changes import ChangeFilter
from service.model.freshness import FreshnessColumns
from service.model.outcomes import lacks_content
from service.model.urls import NormalUrl
from service.storage import Transaction

router = APIRouter(tags=["pages"], route_class=DirectRoute, dependencies=GUARDED)


class Copies(NamedTuple):
    """(N,) copies that the request names correctly."""

    position: Ints
    """Position in the request."""
    page_id: Ints
    """The page as the request names it; 0: by URL."""
    url: list[NormalUrl | None]
    fetched_at: Instants
    """NaT: the last crawl."""
    max_stale: Floats


@router.post(
    "/freshness",
    responses=openapi.answers(FreshnessAnswer, EXAMPLES["freshness_answer"], *openapi.WRITES),
    openapi_extra=openapi.request_body(Copy, EXAMPLES["copies"]),
)
def post_freshness(service: TheService, body: TheBody) -> Response:
    """Ask whether copies of pages are still right.

    Send up to 10,000 copies. For each, the answer has the probability that the page has changed
    since the copy was fetched, and whether to fetch the page again. The probability follows from
    the page's crawls and pings, and from those of its URL group; for a page that is not registered
    it follows from its URL group alone. Nothing is registered, and no crawl is requested: fetch the
    page and report the crawl, or send POST /pages/recrawl.
    """
    batch, now = decode_batch(body, Copy, min(service.max_items, MOST_COPIES)), service.now()
    copies, rejected = _decode(batch, now + FUTURE_ALLOWED)
    with service.store.begin(write=False) as tx:
        pages, is_page = _pages(tx, service, copies)
        kept = service.plan.retention
        log_since = NO_TIME if kept is None else instant(now - kept)
        rules, at = service.rules.of(tx), instant(now)
        estimator, pages = rules.of_pages(tx, pages)
        asked = pages, copies.fetched_at, estimator, at, log_since, rules.feeds
        freshness = read_freshness(tx, *asked)
        moves = _moves(tx, pages)
    rejected += (
        Rejection(
            index=index,
            code="page_not_found",
            field="page_id",
            detail="no page has this id; name the page by its url",
        )
        for index in copies.position[~is_page].tolist()
    )
    refuse_empty(outcome_counts(int(is_page.sum()), rejected=rejected))
    verdicts: list[Verdict | None] = [None] * batch.n_items
    each = _verdicts(pages, copies, freshness, moves, instant(now))
    for index, is_known, verdict in zip(
        copies.position.tolist(), is_page.tolist(), each, strict=True
    ):
        verdicts[index] = verdict if is_known else None
    body_of_answer = FreshnessAnswer(
        at=now,
        n_fetch=sum(verdict is not None and verdict.fetch for verdict in verdicts),
        n_rejected=len(rejected),
        rejected=sorted(rejected, key=lambda rejection: rejection.index),
        verdicts=verdicts,
    )
    return answer(body_of_answer)


def _decode(batch: Batch[Copy], latest: datetime) -> tuple[Copies, list[Rejection]]:
    """Return the good items as columns, and the rejections of the others."""
    urls = read_urls([item.url for item in batch.items])
    good, refusals = judged(batch, lambda i, item: _check(item, urls[i], latest))
    items = [batch.items[i] for i in good.tolist()]
    tolerance = [DEFAULT_MAX_STALE if i.max_stale is UNSET else i.max_stale for i in items]
    copies = Copies(
        position=batch.index[good],
        page_id=np.array([0 if i.page_id is UNSET else i.page_id for i in items], np.int64),
        url=[normal_url(urls[i]) for i in good.tolist()],
        fetched_at=_fetched_at(items),
        max_stale=np.array(tolerance, np.float64),
    )
    return copies, [each.rejection for each in refusals]


def _fetched_at(items: Sequence[Copy]) -> Instants:
    """Return the instants of copies, NaT for the last crawl."""
    at = instants(
        [UNIX_ZERO if isinstance(i.fetched_at, UnsetType) else i.fetched_at for i in items]
    )
    at[np.array([i.fetched_at is UNSET for i in items], np.bool_)] = NO_TIME
    return at


def _check(item: Copy, url: ReadUrl, latest: datetime) -> None:
    check_name(item, url)
    if not isinstance(item.fetched_at, UnsetType):
        check_time("fetched_at", item.fetched_at, latest)


def _pages(tx: Transaction, service: Service, copies: Copies) -> tuple[FreshnessColumns, Bools]:
    """Return the page of each copy, and whether it exists or may exist: False for unknown ids.

    A URL that is not registered has a page without evidence.
    """
    page_id = copies.page_id.copy()
    by_url = np.array([url is not None for url in copies.url], np.bool_)
    named = [url for url in copies.url if url is not None]
    keys, hosts = b"".join(url.key for url in named), np.array([url.host for url in named], object)
    page_id[by_url] = tx.page_ids(np.frombuffer(keys, KEY), hosts)
    pages = tx.freshness_columns(distinct(page_id[page_id > 0]))
    row = np.searchsorted(pages.page_id, page_id)
    there = row < len(pages)
    there[there] = pages.page_id[row[there]] == page_id[there]
    urls = [copies.url[i] for i in np.flatnonzero(~there).tolist()]
    new = unregistered(
        np.array([url.url if url else "" for url in urls], object),
        width(service.rules.estimator),
        tx.shards_of(np.array([url.host if url else "" for url in urls], object)),
    )
    row[~there] = len(pages) + np.arange(len(new))
    return FreshnessColumns.concatenate([pages, new]).take(row), there | by_url


class RedirectTargets(NamedTuple):
    """(N,) redirects of pages that are gone."""

    redirects_to: Ints
    """Page to which the page redirects; 0: none."""
    url: NDArray[np.object_]
    """URL of that page; None without one."""


def _moves(tx: Transaction, pages: FreshnessColumns) -> RedirectTargets:
    """Return where the pages that are gone redirect."""
    redirects_to, url = np.zeros(len(pages), np.int64), np.full(len(pages), None, object)
    gone = np.flatnonzero(pages.gone & (pages.page_id > 0))
    if len(gone):
        links = tx.links_of(distinct(pages.page_id[gone]))
        row, there = links.rows(pages.page_id[gone])
        gone, row = gone[there], row[there]
        redirects_to[gone] = links.redirects_to[row]
        moved = gone[redirects_to[gone] > 0]
        targets = tx.page_urls(distinct(redirects_to[moved]), ChangeFilter())
        row, there = targets.rows(redirects_to[moved])
        url[moved[there]] = targets.url[row[there]]
    return RedirectTargets(redirects_to, url)


def _verdicts(
    pages: FreshnessColumns,
    copies: Copies,
    freshness: Freshness,
    moves: RedirectTargets,
    now: np.datetime64,
) -> Iterator[Verdict]:
    registered, lacking = pages.page_id > 0, lacks_content(pages.gone, pages.n_failures)
    due: Instants = np.where(registered, next_at(pages, now), NO_TIME)
    fetch = np.isnan(freshness.stale) | (freshness.stale > copies.max_stale)
    fetch &= ~lacking | (due <= now)
    states = copy_states(pages, moves.redirects_to)
    states[~registered] = None
    fetch &= ~advises_no_fetch(states)
    fetched_at = np.where(np.isnat(copies.fetched_at), pages.last_observed_at, copies.fetched_at)
    columns = (
        [page_id if page_id > 0 else None for page_id in pages.page_id.tolist()],
        fetch.tolist(),
        or_none(freshness.stale),
        or_none(freshness.expected_changes),
        moments(fetched_at),
        moments(pages.last_crawl_at),
        moments(due),
        pages.gone.tolist(),
        lacking.tolist(),
        states.tolist(),
        moves.url.tolist(),
    )
    return map(Verdict, *columns)
