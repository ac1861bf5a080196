"""Pages: register, look up, change, delete."""

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Path, Response

from recrawl_client.wire.pages import MOST_TAGS, Page, PageAnswer, PagePatchBody, Registered
from service.access.audit import write_audit
from service.api import openapi
from service.api.admission import TheActor, TheCaller
from service.api.assembly import Service, TheBody, TheService
from service.api.examples import EXAMPLES
from service.api.holds.reading import around_page
from service.api.holds.rules import hold_of_page
from service.api.requests.decode import decode_pages
from service.api.requests.items import decode_batch, decode_changes
from service.api.requests.key_limits import admitted
from service.api.requests.rules import check_bounds
from service.api.responses.change_hours import hours_of_page
from service.api.responses.encode import answer, encode_page
from service.api.responses.outcomes import (
    away,
    crossing,
    locked,
    outcome_counts,
    refuse_empty,
)
from service.api.responses.why import Evidence, explain
from service.api.route import GUARDED, DirectRoute
from service.batching.registrations import CROSSED, LOCKED, Registration
from service.budget.plan_notices import behind, failing
from service.estimation.page_estimate import of_page
from service.ingest.deletions import delete
from service.leases.unfinished import unfinished_page
from service.model import domain
from service.model.arrays import KEY, SHARD_BITS, Ints, instant
from service.model.domain import Kind, LogEntry, Observability, PagePatch
from service.model.errors import InvalidField, PageNotFound
from service.model.listing import TagPatch
from service.model.urls import normalise
from service.storage import Transaction
from service.storage.pages.contract import no_page
from service.storage.pages.tagging import patch_tags

router = APIRouter(tags=["pages"], route_class=DirectRoute, dependencies=GUARDED)

LAST_CRAWLS = 10

PageIdPath = Annotated[int, Path(ge=1, le=2**63 - 1, description="The service's number of a page")]


@router.post(
    "/pages",
    responses=openapi.answers(Registered, EXAMPLES["pages_answer"], *openapi.WRITES),
    openapi_extra=openapi.request_body(Page, EXAMPLES["pages"]),
)
def post_pages(service: TheService, caller: TheCaller, body: TheBody) -> Response:
    """Register pages, or change registered ones.

    The URL is the key. Fields left out keep their value; a new page has importance 1, is `auto`
    and has no bounds. An item whose bound would cross the other bound of its page is rejected; send
    both. A page that is retired is crawled once more, because it was gone for long, or because only
    redirects led to it.
    """
    batch = decode_batch(body, Page, service.max_items)
    pages = decode_pages(admitted(batch, caller, service.store))
    registration = Registration(pages.columns, service.now(), pages.tags, pages.notes, pages.kinds)
    registered = service.registrations.submit(registration).result()
    if not registered.created.all():
        _wake(service, registered.page_id[~registered.created & (registered.page_id > 0)])
    page_ids: list[int | None] = [None] * pages.n_items
    page_id_of_item = registered.page_id[pages.named.row]
    rejected = [each.rejection for each in pages.refusals]
    lost = []
    for i, page_id in zip(pages.index.tolist(), page_id_of_item.tolist(), strict=True):
        page_ids[i] = page_id if page_id > 0 else None
        if page_id == CROSSED:
            lost.append(crossing(i))
        elif page_id == LOCKED:
            lost.append(locked(i))
        elif not page_id:
            lost.append(away(i))
    n_new = int((registered.page_id > 0).sum())
    n_again = len(pages.index) - len(lost) - n_new
    counts = outcome_counts(n_new, n_again, rejected=[*rejected, *lost])
    service.telemetry.count_items("page", counts)
    refuse_empty(counts)
    created = int(registered.created.sum())
    return answer(Registered(**counts, created=created, page_ids=page_ids))


@router.get(
    "/pages/{page_id}", responses=openapi.answers(PageAnswer, EXAMPLES["page_answer"], 404, 422)
)
def get_page(service: TheService, caller: TheCaller, page_id: PageIdPath) -> Response:
    """Show one page by its number.

    The answer has the settings, the estimate, the schedule and the reason for it, and the hours at
    which the pages of its host change.
    """
    with service.store.begin(write=False) as tx:
        if caller.boundary is not None and not caller.boundary.allows_text(tx.page(page_id).url):
            raise PageNotFound(f"no page has the id {page_id} within the limits of this key")
        return page_response(tx, service, page_id)


@router.patch(
    "/pages/{page_id}",
    responses=openapi.answers(PageAnswer, EXAMPLES["page_answer"], 404, *openapi.WRITES),
    openapi_extra=openapi.request_body(PagePatchBody, EXAMPLES["patch"], batch=False),
)
def patch_page(service: TheService, page_id: PageIdPath, body: TheBody) -> Response:
    """Change one page.

    The next epoch takes the change into account. Null removes a bound.
    """
    patch, tags = patches_of(decode_changes(body, PagePatchBody))
    with service.store.begin() as tx:
        tx.change_page(page_id, patch, service.now())
        changed = tx.page(page_id)
        if patch.bounds:
            check_bounds(changed.min_crawl_rate, changed.max_crawl_rate)
        if len(patch_tags(tx, np.array([page_id]), tags).crowded):
            raise InvalidField(
                "add_tags", f"the page would have over {MOST_TAGS} tags; remove some"
            )
        return page_response(tx, service, page_id)


@router.delete("/pages/{page_id}", **openapi.no_content(404, 422))
def delete_page(service: TheService, actor: TheActor, page_id: PageIdPath) -> Response:
    """Delete a page: its state, its log and its row of the schedule."""
    with service.store.begin() as tx:
        page = tx.page(page_id)
        if not len(delete(tx, np.array([page_id]), tx.now())):
            raise no_page(page_id)
        write_audit(tx, actor, "page.delete", page.url, before=settings_of(page))
    return Response(status_code=204)


def settings_of(page: domain.Page) -> dict[str, Any]:
    """Return the settings of a page for the audit."""
    names = ("page_id", "importance", "min_crawl_rate", "max_crawl_rate")
    settings = {name: getattr(page, name) for name in names}
    return {**settings, "observability": page.observability.name}


def find(tx: Transaction, url: str) -> int:
    """Return the page_id of a URL; raise `InvalidUrl` or `PageNotFound`."""
    normal = normalise(url)
    page_ids = tx.page_ids(np.array([normal.key], KEY), np.array([normal.host], object))
    if not page_ids[0]:
        raise PageNotFound(f"no page has the url {url[:200]}; register it with POST /pages")
    return int(page_ids[0])


def _wake(service: Service, page_id: Ints) -> None:
    """Request a crawl of the retired pages, in a transaction that locks only their states."""
    with service.store.begin() as tx:
        service.settler.queue_requested(tx, tx.wake(page_id, service.now()), service.now())


def page_response(tx: Transaction, service: Service, page_id: int) -> Response:
    """Return one page with its estimate, its schedule, its tags and what holds it now."""
    own = np.array([page_id])
    tx.foresee(
        lambda: tx.page_place(page_id),
        lambda: tx.page_log(page_id, LAST_CRAWLS),
        lambda: tx.tags_of(own),
        lambda: tx.last_leases(own),
        tx.orders,
        tx.filled,
        tx.newest_epoch,
    )
    number, place = tx.number_in_force(), tx.page_place(page_id)
    queue_id = np.array([place.queue_id])
    tx.foresee(
        lambda: tx.page(page_id),
        lambda: tx.read_host_queues(queue_id),
        lambda: tx.change_hours(queue_id),  # the queue of a host has its id
    )
    page, log, now = tx.page(page_id), tx.page_log(page_id, LAST_CRAWLS), service.now()
    rules = service.rules.of(tx)
    estimator = rules.of_shard(tx, page_id >> SHARD_BITS)
    estimate = of_page(tx, page, estimator, instant(now), rules.feeds)
    epoch = service.watch.epoch(tx, number) if number else None
    service.watch.note([epoch] if epoch else [])
    planned, epoch = epoch, None if page.crawl_rate is None else epoch
    change_hours = hours_of_page(tx, page)
    tags = tx.tags_of(own).tag.tolist()
    incident = tx.incident_of(page.host_id) if tx.has_incidents() else None
    if incident is not None and incident.until <= now:
        incident = None
    unfinished = unfinished_page(tx, page, now)
    status = _last_status(tx, page, log)
    around = around_page(
        tx, service, page, place, now, unfinished=unfinished, status=status, epoch=planned
    )
    notices = failing(epoch, tx.newest_epoch()), behind(epoch, service.budget.amount)
    evidence = Evidence(
        *(page, estimate, now, epoch, change_hours, incident, status, unfinished),
        log=log,
        notices=[each for each in notices if each],
    )
    why = explain(hold_of_page(*around), evidence)
    shown = page, log, epoch, estimate, change_hours, tags, now, unfinished, why, around.page
    return answer(encode_page(*shown))


def _last_status(tx: Transaction, page: domain.Page, log: list[LogEntry]) -> int | None:
    """Return the status of the last crawl of a page without content; None: not known.

    Pings may be newer than the last crawl, however many.
    """
    if not page.n_failures:
        return None
    crawls = [entry for entry in log if entry.kind is Kind.crawl]
    newest = crawls or tx.page_log(page.page_id, 1, kind=Kind.crawl)
    return newest[0].status if newest else None


def patches_of(changes: Mapping[str, Any]) -> tuple[PagePatch, TagPatch]:
    """Return the changes of settings and of tags, from the fields of `PagePatchBody`."""
    fields = dict(changes)
    tags = {name: fields.pop(name, None) for name in ("tags", "add_tags", "remove_tags")}
    if "observability" in fields:
        fields["observability"] = Observability[fields["observability"]]
    bounds = fields.get("min_crawl_rate"), fields.get("max_crawl_rate")
    check_bounds(*bounds)
    cleared = frozenset(name for name, value in fields.items() if value is None)
    every, add, remove = (None if each is None else frozenset(each) for each in tags.values())
    if every is not None and len(every | (add or frozenset())) > MOST_TAGS:
        raise InvalidField("add_tags", f"tags and add_tags are over {MOST_TAGS} tags; send fewer")
    patch = PagePatch(**fields, cleared=cleared)
    return patch, TagPatch(every, add or frozenset(), remove or frozenset())
