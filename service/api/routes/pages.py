"""Pages: register, look up, change, forget."""

from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Path, Query, Response
from msgspec import UNSET, UnsetType

from service.api import examples, openapi
from service.api.bodies import decode_batch, decode_object
from service.api.decode import check_bounds, decode_pages
from service.api.encode import answer, encode_page, refuse_empty
from service.api.page_schemas import PageAnswer
from service.api.schemas import PageItem, PagePatchBody, PagesAnswer
from service.api.service import Service, TheBody, TheService
from service.arrays import KEY, Ints, instant
from service.domain import Observability, PagePatch
from service.errors import InvalidField, PageNotFound
from service.estimates import of_page
from service.storage import Transaction
from service.urls import normalise

router = APIRouter(tags=["pages"])

LAST_CRAWLS = 10

PageIdPath = Annotated[
    int, Path(ge=1, le=2**63 - 1, description="The service's number of the page")
]


@router.post(
    "/pages",
    operation_id="post_pages",
    responses=openapi.gives(PagesAnswer, examples.PAGES_ANSWER, *openapi.WRITES),
    openapi_extra=openapi.takes(PageItem, examples.PAGES),
)
def post_pages(service: TheService, body: TheBody) -> Response:
    """Register pages, or change what is said of known ones (upsert by URL).

    Fields left out keep their value; a new page has importance 1, is `auto` and unbounded. A page
    that was retired, as it was gone for long, is crawled once more.
    """
    given = decode_pages(decode_batch(body, PageItem, service.max_items))
    registered = service.registering.register(given.columns, service.now())
    if not registered.created.all():
        _wake(service, registered.page_id[~registered.created])
    page_ids: list[int | None] = [None] * given.n_items
    taken = registered.page_id[given.named.row]
    for i, page_id in zip(given.index.tolist(), taken.tolist(), strict=True):
        page_ids[i] = page_id
    counts: dict[str, Any] = {
        "accepted": len(given.columns),
        "duplicate": len(given.index) - len(given.columns),
        "late": 0,
        "n_rejected": len(given.rejected),
        "rejected": given.rejected,
    }
    service.telemetry.count_items("page", counts)
    refuse_empty(counts)
    created = int(registered.created.sum())
    return answer(PagesAnswer(**counts, created=created, page_ids=page_ids))


@router.get(
    "/pages/{page_id}",
    operation_id="get_page",
    responses=openapi.gives(PageAnswer, examples.PAGE_ANSWER, 404, 422),
)
def get_page(service: TheService, page_id: PageIdPath) -> Response:
    """Show one page: what is known of it, when it is due, and why."""
    with service.store.begin(write=False) as tx:
        return _page(tx, service, page_id)


@router.get(
    "/pages",
    operation_id="find_page",
    responses=openapi.gives(PageAnswer, examples.PAGE_ANSWER, 404, 422),
)
def find_page(
    service: TheService,
    url: Annotated[
        str, Query(description="An absolute URL", examples=["https://example.com/news"])
    ],
) -> Response:
    """Show the page with this URL."""
    with service.store.begin(write=False) as tx:
        return _page(tx, service, find(tx, url))


@router.patch(
    "/pages/{page_id}",
    operation_id="patch_page",
    responses=openapi.gives(PageAnswer, examples.PAGE_ANSWER, 404, *openapi.WRITES),
    openapi_extra=openapi.takes(PagePatchBody, examples.PATCH, batch=False),
)
def patch_page(service: TheService, page_id: PageIdPath, body: TheBody) -> Response:
    """Change one page; the next epoch takes it into account. null clears a bound."""
    patch = _patch(decode_object(body, PagePatchBody))
    with service.store.begin() as tx:
        tx.change_page(page_id, patch, service.now())
        changed = tx.page(page_id)
        if patch.bounds:
            check_bounds(changed.min_crawl_rate, changed.max_crawl_rate)
        return _page(tx, service, page_id)


@router.delete(
    "/pages/{page_id}",
    operation_id="delete_page",
    status_code=204,
    responses=openapi.refuses(*openapi.EVERYWHERE, 404, 422),
)
def delete_page(service: TheService, page_id: PageIdPath) -> Response:
    """Forget a page: its state, its log and its place in the schedule."""
    with service.store.begin() as tx:
        tx.delete_page(page_id)
    return Response(status_code=204)


def find(tx: Transaction, url: str) -> int:
    """Give the page_id of a URL; raises `InvalidUrl`, `PageNotFound`."""
    found = tx.page_ids(np.array([normalise(url).key], KEY))
    if not found[0]:
        raise PageNotFound(f"no page has the url {url[:200]}; register it with POST /pages")
    return int(found[0])


def _wake(service: Service, page_id: Ints) -> None:
    """Have the retired among known pages crawled; their states are locked by themselves."""
    with service.store.begin() as tx:
        service.desk.hear_pings(tx, tx.wake(page_id, service.now()), service.now())


def _page(tx: Transaction, service: Service, page_id: int) -> Response:
    page, log = tx.page(page_id), tx.page_log(page_id, LAST_CRAWLS)
    estimator = service.commits.rules.of(tx).estimator
    estimate = of_page(tx, page, estimator, instant(service.now()))
    epoch = tx.epoch_in_force()
    service.watch.tell([epoch] if epoch else [])
    return answer(encode_page(page, log, epoch, estimate))


def _patch(body: PagePatchBody) -> PagePatch:
    given = {name: getattr(body, name) for name in PagePatchBody.__struct_fields__}
    given = {name: value for name, value in given.items() if value is not UNSET}
    if not given:
        known = ", ".join(PagePatchBody.__struct_fields__)
        raise InvalidField("importance", f"nothing to change; send one of {known}")
    if not isinstance(body.observability, UnsetType):
        given["observability"] = Observability[body.observability]
    cleared = frozenset(name for name, value in given.items() if value is None)
    return PagePatch(**given, cleared=cleared)
