"""The words on a page whose leases end without a report: what to do, and what happened."""

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


def remedy_of(page: UnfinishedPage) -> str:
    """Return what to do about the leases of a page."""
    worker = "the worker" if page.worker is None else f"the worker {page.worker}"
    return REMEDIES[page.ending].format(worker=worker)


def what_ended(page: UnfinishedPage) -> str:
    """Return what happened to the last leases of a page, as a clause."""
    one, last = ENDED[page.ending]
    if page.n == 1:
        return f"its last lease {one}"
    return f"its last {page.n} leases ended without a report, {last}"


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
