"""Acts on all pages that filters select: change, delete, crawl again."""

import time
from collections.abc import Sequence
from typing import Annotated, Any
from urllib.parse import urlencode

import numpy as np
from fastapi import APIRouter, Query, Response

from recrawl_client.wire.common import Rejection
from recrawl_client.wire.listing import BulkAnswer, RecrawlBody
from recrawl_client.wire.pages import PagePatchBody
from service.access.audit import write_audit
from service.api import openapi
from service.api.admission import TheActor
from service.api.assembly import Service, TheBody, TheService
from service.api.cursors import CursorParameter, PagesPlace, decode_cursor, encode_cursor
from service.api.examples import EXAMPLES
from service.api.requests.filters import PageParameters, with_filters
from service.api.requests.items import decode_changes, decode_object
from service.api.responses.encode import answer
from service.api.responses.outcomes import LISTED
from service.api.route import GUARDED, DirectRoute
from service.api.routes.listing import LIST_PATH
from service.api.routes.pages import patches_of
from service.ingest.bulk import (
    Act,
    BulkOutcome,
    Delete,
    Note,
    Patch,
    Recrawl,
    act_on,
    act_on_selected,
)
from service.leases.listing import Selection
from service.model.access import Actor
from service.model.arrays import KEY, Ints, distinct
from service.model.errors import InvalidField, InvalidUrl
from service.model.urls import normalise
from service.runtime.requests import ask_again
from service.storage import Transaction

router = APIRouter(tags=["pages"], route_class=DirectRoute, dependencies=GUARDED)

EVERY_PAGE = "all pages"
"""Object of an act on every page in the audit."""
NAMED = 3
"""Maximum pages that the object of an act names."""
BULK_S = 20.0
"""Time after which an act on many pages answers with a cursor, seconds."""
DryRun = Annotated[bool, Query(description="Count the pages, and change nothing")]
AllPages = Annotated[bool, Query(description="Act on every page, without a filter")]
BULK = openapi.answers(BulkAnswer, EXAMPLES["bulk_answer"], *openapi.WRITES)


@router.patch(
    "/pages",
    responses=BULK,
    openapi_extra=openapi.request_body(PagePatchBody, EXAMPLES["bulk_patch"], batch=False),
)
@with_filters
def patch_pages(
    service: TheService,
    actor: TheActor,
    body: TheBody,
    filters: PageParameters,
    dry_run: DryRun = False,
    all_pages: AllPages = False,
    cursor: CursorParameter = None,
) -> Response:
    """Change all pages that the filters select.

    Send `dry_run=true` first: the answer counts the pages. The pages change in steps, so a request
    that breaks off has changed some of them; send it again, because pages that have the new values
    stay as they are. An answer with `next_cursor` means that more pages follow: send the request
    again with this `cursor`. A page whose bounds would cross, or which would have too many tags, is
    rejected and stays as it is.
    """
    changes = decode_changes(body, PagePatchBody)
    patch, tags = patches_of(changes)
    selection = selected(filters, all_pages=all_pages)
    note = audited(actor, filters, changes)
    return _act(service, selection, Patch(patch, tags), cursor, note, dry_run=dry_run)


@router.delete("/pages", responses=openapi.answers(BulkAnswer, EXAMPLES["bulk_answer"], 422))
@with_filters
def delete_pages(
    service: TheService,
    actor: TheActor,
    filters: PageParameters,
    dry_run: DryRun = False,
    all_pages: AllPages = False,
    cursor: CursorParameter = None,
) -> Response:
    """Delete all pages that the filters select, with their states and logs.

    Send `dry_run=true` first: the answer counts the pages. The pages go in steps; after a request
    that breaks off, and after an answer with `next_cursor`, send the request again.
    """
    selection = selected(filters, all_pages=all_pages)
    return _act(service, selection, Delete(), cursor, audited(actor, filters), dry_run=dry_run)


@router.post(
    "/pages/recrawl",
    responses=openapi.answers(BulkAnswer, EXAMPLES["bulk_answer"], *openapi.WRITES),
    openapi_extra=openapi.request_body(RecrawlBody, EXAMPLES["recrawl"], batch=False),
)
@with_filters
def recrawl_pages(
    service: TheService,
    actor: TheActor,
    body: TheBody,
    filters: PageParameters,
    dry_run: DryRun = False,
    all_pages: AllPages = False,
    cursor: CursorParameter = None,
) -> Response:
    """Crawl pages as soon as politeness allows.

    The pages are those named in the body, or those that the filters select. They are due now, and
    come before all others of their hosts. Politeness is kept: the delay, the concurrency and the
    pauses of a host stay in force. A page that waits for a requested crawl already keeps its place,
    and counts as changed only while it is being crawled: it is then crawled once more. Send the
    body `{}` with filters. An answer with `next_cursor` means that more pages follow: send the
    request again with this `cursor`.
    """
    named, act = decode_object(body, RecrawlBody), Recrawl(service.settler)
    note = audited(actor, filters, names=[*map(page_name, named.page_ids), *named.urls])
    if not (named.page_ids or named.urls):
        selection = selected(filters, all_pages=all_pages, otherwise=", or page_ids or urls")
        return _act(service, selection, act, cursor, note, dry_run=dry_run)
    if any(value is not None for value in filters) or all_pages or cursor is not None:
        raise InvalidField("page_ids", "the body names pages; leave filters and cursor out")
    return _recrawl_named(service, named, act, note, dry_run=dry_run)


def audited(
    actor: Actor,
    filters: PageParameters,
    after: dict[str, Any] | None = None,
    names: Sequence[str] = (),
) -> Note:
    """Return a function that writes each transaction of a bulk act to the audit.

    The object of the act is the pages' names, or the filters.
    """
    chosen = {name: value for name, value in filters._asdict().items() if value is not None}
    selection = listed(names) if names else urlencode(chosen) or EVERY_PAGE

    def note(tx: Transaction, act: Act, n_changed: int) -> None:
        if n_changed:
            changes = {**(after or {}), "n_changed": n_changed}
            write_audit(tx, actor, f"pages.{act.name}", selection, after=changes)

    return note


def page_name(page_id: int) -> str:
    """Return the name of a page in the audit."""
    return f"page {page_id}"


def listed(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are.

    >>> listed(["page 1", "page 2", "page 3", "page 4"])
    'page 1, page 2, page 3 and 1 more'
    """
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def selected(filters: PageParameters, *, all_pages: bool, otherwise: str = "") -> Selection:
    """Return the selected pages; without a filter, every page only if the caller wants it."""
    if all_pages and any(value is not None for value in filters):
        raise InvalidField("all_pages", "all_pages=true excludes filters; leave either out")
    if not all_pages and all(value is None for value in filters):
        names = ", ".join(PageParameters._fields)
        raise InvalidField(
            "all_pages", f"nothing is selected; send {names}{otherwise}, or all_pages=true"
        )
    return filters.selection()


def _act(
    service: Service,
    selection: Selection,
    act: Act,
    cursor: str | None,
    note: Note,
    *,
    dry_run: bool,
) -> Response:
    after = 0 if cursor is None else decode_cursor(cursor, PagesPlace, LIST_PATH).after
    until = time.monotonic() + BULK_S

    def enough() -> bool:
        ask_again()
        return time.monotonic() > until

    outcome = act_on_selected(
        service.store,
        selection,
        act,
        service.now,
        after,
        dry_run=dry_run,
        note=note,
        enough=enough,
    )
    return _bulk_answer(outcome, dry_run=dry_run)


def _bulk_answer(outcome: BulkOutcome, *, dry_run: bool) -> Response:
    first = outcome.refused[:LISTED]
    rejected = [
        Rejection(index=row, code="conflict", field=refusal.field, detail=refusal.reason)
        for row, refusal in first
    ]
    body = BulkAnswer(
        dry_run=dry_run,
        matched=outcome.n_matched,
        changed=outcome.n_changed,
        n_rejected=len(outcome.refused),
        rejected=rejected,
        next_cursor=None if outcome.after is None else encode_cursor(PagesPlace(outcome.after)),
    )
    return answer(body)


def _recrawl_named(
    service: Service, named: RecrawlBody, act: Act, note: Note, *, dry_run: bool
) -> Response:
    page_id, rejected = _named(service, named)
    there = distinct(page_id[page_id > 0])
    changed = 0
    if len(there) and not dry_run:
        changed = len(act_on(service.store, there, act, service.now(), note).changed)
    body = BulkAnswer(
        dry_run=dry_run,
        matched=len(there),
        changed=changed,
        n_rejected=len(rejected),
        rejected=rejected[:LISTED],
        next_cursor=None,
    )
    return answer(body)


def _named(service: Service, named: RecrawlBody) -> tuple[Ints, list[Rejection]]:
    """Return the page of each item, 0 for none, and the rejected items: ids, then URLs."""
    keys, rejected = [], []
    for row, url in enumerate(named.urls, len(named.page_ids)):
        try:
            keys.append(normalise(url).key)
        except InvalidUrl as error:
            keys.append(bytes(16))
            rejected.append(
                Rejection(index=row, code=error.code, field="urls", detail=error.detail)
            )
    with service.store.begin(write=False) as tx:
        by_id = np.array(named.page_ids, np.int64)
        by_id[~np.isin(by_id, tx.existing_pages(by_id))] = 0
        by_url = tx.page_ids(np.frombuffer(b"".join(keys), KEY)) if keys else by_id[:0]
    page_id = np.concatenate([by_id, by_url])
    bad = {rejection.index for rejection in rejected}
    missing = (row for row in np.flatnonzero(page_id == 0).tolist() if row not in bad)
    rejected += (
        Rejection(
            index=row,
            code="page_not_found",
            field="page_ids" if row < len(by_id) else "urls",
            detail="no page has this id; GET /pages lists the pages"
            if row < len(by_id)
            else "no such page; register it with POST /pages",
        )
        for row in missing
    )
    return page_id, sorted(rejected, key=lambda rejection: rejection.index)
