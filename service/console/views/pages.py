"""Pages: the list by the filters of `GET /pages`, and acts on all selected pages."""

import time
from collections.abc import Mapping
from typing import Any, NamedTuple, get_args

from fastapi import Response
from msgspec import UNSET

from recrawl_client.wire.listing import PagesAnswer, StateFilter
from recrawl_client.wire.pages import PageAnswer
from service.api.cursors import PagesPlace, decode_cursor, encode_cursor
from service.api.requests.filters import PageParameters
from service.api.routes import bulk, listing
from service.console.visit import Visit
from service.ingest.bulk import Act, Delete, Recrawl, act_on_selected

PART = 50
STEP_S = 1.5
"""Time after which an act on many pages shows its progress, seconds."""
STATES = get_args(StateFilter)
SHORT_CUTS = ("", "overdue", "never_crawled", "failing", "no_content", "gone")
"""States that links above the list select; the first one is any."""
SHOWN_FIRST = frozenset({"host", "url_prefix", "tag", "state"})
"""Filters whose fields are always visible."""
OBSERVABILITIES = ("incomplete", "complete", "auto")


def show(visit: Visit) -> Response:
    """Show a part of the list."""
    values = visit.parameters("list_all_pages")
    url = values.pop("url", None)
    if url is not None:
        page = visit.ask(
            PageAnswer,
            listing.list_all_pages,
            request=visit.request,
            caller=visit.caller,
            url=url,
        )
        return visit.go(f"/console/pages/{page.page_id}")
    filters = _filters(values)
    part = visit.ask(
        PagesAnswer,
        listing.list_all_pages,
        request=visit.request,
        caller=visit.caller,
        **filters,
        cursor=values.get("cursor"),
        limit=values.get("limit", PART),
        count="estimate",
    )
    counted = part if part.count is not UNSET else _counted(visit, filters)
    return visit.page(
        "pages.html",
        part=part,
        count=counted.count,
        is_estimate=counted.count_is == "estimate",
        filters={name: visit.request.query_params[name] for name in filters},
        short_cuts=SHORT_CUTS,
        shows_more=not SHOWN_FIRST.issuperset(filters),
        states=STATES,
        observabilities=OBSERVABILITIES,
    )


def _counted(visit: Visit, filters: Mapping[str, Any]) -> PagesAnswer:
    """Return the number of selected pages for a later part of the list, which has none."""
    return visit.ask(
        PagesAnswer,
        listing.list_all_pages,
        request=visit.request,
        caller=visit.caller,
        **filters,
        limit=1,
        count="estimate",
    )


class Words(NamedTuple):
    """An act on the selected pages, as it is shown."""

    path: str
    title: str
    one: str
    many: str
    """Words behind the number of pages."""
    remark: str
    place: str
    """Id of the element that shows the progress."""


RECRAWL = Words(
    "/console/pages/recrawl",
    "Request crawls",
    "crawl requested",
    "crawls requested",
    "Pages that wait for a requested crawl already do not count.",
    "progress",
)
DELETE = Words(
    "/console/pages/delete",
    "Delete pages",
    "page deleted",
    "pages deleted",
    "Their states and logs are gone; their hosts stay.",
    "deleted",
)


def recrawl(visit: Visit) -> Response:
    """Request crawls of the selected pages."""
    return _in_steps(visit, Recrawl(visit.service.settler), RECRAWL)


def delete(visit: Visit) -> Response:
    """Delete the selected pages."""
    return _in_steps(visit, Delete(), DELETE)


def _in_steps(visit: Visit, act: Act, words: Words) -> Response:
    """Act on the selected pages, a step at a time; each answer continues the act.

    The form has the query of the list, the place that the act has reached, and the pages so far.
    """
    sent = visit.form.get("filters", "")
    every, cursor = visit.form.get("all_pages") == "true", visit.form.get("cursor", "")
    filters = PageParameters(**_filters(visit.parameters("list_all_pages", sent)))
    until = time.monotonic() + STEP_S
    outcome = act_on_selected(
        visit.service.store,
        bulk.selected(filters, all_pages=every),
        act,
        visit.service.now,
        decode_cursor(cursor, PagesPlace, listing.LIST_PATH).after if cursor else 0,
        note=bulk.audited(visit.actor, filters),
        enough=lambda: time.monotonic() > until,
    )
    n_before = visit.form.get("n_done", "")
    n_done = outcome.n_changed + (int(n_before) if n_before.isdecimal() else 0)
    return visit.page(
        "part_act.html" if visit.wants_part else "act.html",
        act=words,
        filters=sent,
        all_pages=every,
        n_done=n_done,
        cursor=None if outcome.after is None else encode_cursor(PagesPlace(outcome.after)),
    )


def _filters(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: values[name] for name in PageParameters._fields if name in values}
