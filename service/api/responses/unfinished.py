"""The sentence on a page whose leases end without a report: what to do, and when it is tried."""

from datetime import datetime
from typing import Literal

from recrawl_client.wire.pages import UnfinishedAnswer
from service.leases.unfinished import UnfinishedPage
from service.model.unfinished import Ending

REMEDIES = {
    Ending.expired: "see whether {worker} still runs, and whether it fails at this page",
    Ending.returned: "see why {worker} returns this page",
    Ending.refused: "correct the reports of {worker}, whose answers name item, field and remedy",
}
"""Remedy by the end of the last lease."""
ENDED = {
    Ending.expired: ("expired without a report", "the last one expired without a report"),
    Ending.returned: ("was returned", "the last one was returned"),
    Ending.refused: ("got a report that was refused", "the report of the last one was refused"),
}
"""End of a single lease, and of the last of several."""


NAMES: dict[Ending, Literal["expired", "returned", "refused"]] = {
    Ending.expired: "expired",
    Ending.returned: "returned",
    Ending.refused: "refused",
}


def sentence_of(page: UnfinishedPage) -> str:
    """Return what to do about the leases of a page, what happened, and when it is tried again."""
    worker = "the worker" if page.worker is None else f"the worker {page.worker}"
    remedy = REMEDIES[page.ending].format(worker=worker)
    one, last = ENDED[page.ending]
    what = f"its last lease {one}"
    if page.n > 1:
        what = f"its last {page.n} leases ended without a report, {last}"
    return f"{remedy}: {what}; {_next(page)}"


def _next(page: UnfinishedPage) -> str:
    if page.ended_at is None:
        return "a further lease runs"
    if page.next_crawl_at is None:
        return "it is due no more"
    at = f"next after {_time(page.next_crawl_at)}"
    return f"it is set aside and tried once a day, {at}" if page.is_set_aside else f"tried {at}"


def _time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC"


def encode_unfinished(page: UnfinishedPage) -> UnfinishedAnswer:
    """Return the leases of a page that ended without a report."""
    return UnfinishedAnswer(
        n=page.n,
        ending=NAMES[page.ending],
        worker=page.worker,
        ended_at=page.ended_at,
        next_crawl_at=page.next_crawl_at,
        set_aside=page.is_set_aside,
    )
