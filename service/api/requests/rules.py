"""Rules of items that no schema can state."""

from datetime import datetime, timedelta
from typing import Any

from msgspec import UNSET, UnsetType, json

from recrawl_client.wire.evidence import Observation, Ping
from recrawl_client.wire.freshness import Copy
from recrawl_client.wire.pages import Page
from service.model.arrays import UNIX_ZERO
from service.model.errors import InvalidField, InvalidUrl
from service.model.outcomes import NOT_MODIFIED, REDIRECTS, SUCCESSES
from service.model.urls import NormalUrl
from service.storage.pages.validators import MOST_NOTE_BYTES

FUTURE_ALLOWED = timedelta(minutes=5)
"""Maximum lead of an instant over the service's clock."""
EARLIEST = datetime(1990, 1, 1, tzinfo=UNIX_ZERO.tzinfo)
"""Earliest instant of evidence; no web page is older."""

REMEDY = (
    "send `changed`, or a `digest` to compare, or a `status` that decides (304, 404, 410, or a "
    "failure: 0, 4xx, 5xx), or `robots_denied`"
)

NO_START = "observed_at is missing; send the instant of the crawler's request, or the lease"

ReadUrl = NormalUrl | InvalidUrl | None


def check_observation(item: Observation, url: ReadUrl, digest: int, latest: datetime) -> None:
    """Raise `InvalidField` for the first rule that an observation breaks.

    Parameters
    ----------
    url
        The page.
    digest
        64 bits of the item's digest; 0 for none, and for one that is no Unicode.
    latest
        The latest instant that evidence may have.
    """
    if item.lease is UNSET:  # a lease bounds the start of its crawl (`leases.starts`)
        check_name(item, url)
        if item.observed_at is UNSET:
            raise InvalidField("observed_at", NO_START)
        check_time("observed_at", item.observed_at, latest)
    else:
        _check_leased(item, url)
    status = item.status
    if not digest and item.digest is not UNSET:
        raise InvalidField("digest", "the digest holds a lone surrogate; send valid Unicode")
    if item.robots_denied is True:
        return
    if digest or item.changed is not UNSET or item.redirect_url is not UNSET:
        return
    # under a lease the crawl counts as empty, because its page must not be leased for ever
    if item.lease is UNSET and (status is UNSET or status in SUCCESSES):
        raise InvalidField(
            "changed", f"the item has no evidence of a change; {REMEDY}", "no_evidence"
        )


def check_ping(item: Ping, url: ReadUrl, latest: datetime) -> None:
    """Raise `InvalidField` for the first rule that a ping breaks."""
    check_name(item, url)
    check_time("changed_at", item.changed_at, latest)


def check_page(item: Page, url: ReadUrl) -> None:
    """Raise `InvalidField` for the first rule that a page breaks."""
    if isinstance(url, InvalidUrl):
        raise url
    if item.min_crawl_rate is not UNSET and item.max_crawl_rate is not UNSET:
        check_bounds(item.min_crawl_rate, item.max_crawl_rate)


def check_bounds(low: float | None, high: float | None) -> None:
    """Raise `InvalidField` for a minimum above the maximum."""
    if low is not None and high is not None and low > high:
        raise InvalidField(
            "min_crawl_rate",
            f"min_crawl_rate {low:g} lies above max_crawl_rate {high:g}; lower or drop it",
        )


def read_lease(lease: str) -> tuple[int, int]:
    """Return the page_id and the token of a lease.

    >>> read_lease("7-ff")
    (7, 255)
    """
    page_id, _, token = lease.partition("-")
    return int(page_id), int(token, 16)


def check_name(item: Observation | Ping | Copy, url: ReadUrl) -> None:
    """Raise `InvalidField` unless an item names its page in one way, by a valid URL or an id."""
    if (item.url is UNSET) == (item.page_id is UNSET):
        raise InvalidField("url", "name the page by either `url` or `page_id`", "page_not_named")
    if isinstance(url, InvalidUrl):
        raise url


def _check_leased(item: Observation, url: ReadUrl) -> None:
    if isinstance(url, InvalidUrl):
        raise url
    if item.page_id is UNSET or isinstance(item.lease, UnsetType):
        return
    if url is not None:
        check_name(item, url)
    if item.page_id != read_lease(item.lease)[0]:
        detail = f"the lease is on another page than {item.page_id}; leave `page_id` out"
        raise InvalidField("lease", detail, "lease_mismatch")


def leads_away(status: int | UnsetType) -> bool:
    """Return whether an answer of this status leads to the `redirect_url` beside it.

    A crawler that follows redirects states the status of the target.
    """
    if isinstance(status, UnsetType):
        return True
    return status in SUCCESSES or (status in REDIRECTS and status != NOT_MODIFIED)


def check_time(field: str, moment: datetime, latest: datetime) -> None:
    """Raise `InvalidField` for an instant that is too old or in the future."""
    if not EARLIEST <= moment <= latest:
        raise _out_of_time(field, moment, latest)


def check_zone(field: str, moment: datetime | None) -> None:
    """Raise `InvalidField` for an instant of the query without a zone."""
    if moment is not None and moment.tzinfo is None:
        raise InvalidField(field, f"{field} must carry a zone, as in 2026-05-01T12:00:00Z")


def read_note(note: Any) -> str:
    """Return the JSON of a note; "" for one that is no Unicode."""
    try:
        return json.encode(note).decode()
    except UnicodeEncodeError:
        return ""


def check_note(note: str | UnsetType) -> None:
    """Raise `InvalidField` for a note that is too long or no Unicode."""
    if isinstance(note, UnsetType):
        return
    if not note:
        raise InvalidField("note", "the note holds a lone surrogate; send valid Unicode")
    if (size := len(note.encode())) > MOST_NOTE_BYTES:
        detail = f"the note has {size:,} bytes of JSON; send at most {MOST_NOTE_BYTES:,}"
        raise InvalidField("note", detail)


def _out_of_time(field: str, moment: datetime, latest: datetime) -> InvalidField:
    if moment < EARLIEST:
        detail = f"{field} lies before 1990; check the unit and the zone"
        return InvalidField(field, detail, "past")
    now = latest - FUTURE_ALLOWED
    clock = f"the service's clock shows {now.isoformat()}"
    detail = f"{field} is over 5 minutes in the future; {clock}: set yours, or send a past instant"
    return InvalidField(field, detail, "future")
