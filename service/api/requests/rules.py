"""Rules of items that no schema can state: each item is checked by itself, one function a kind.

A URL arrives normalised: `InvalidUrl` stands for a URL that cannot be, None for no URL.
"""

from datetime import datetime, timedelta

from msgspec import UNSET, UnsetType

from recrawl_client.wire.evidence import Observation, Ping
from recrawl_client.wire.pages import Page
from service.model.arrays import EPOCH
from service.model.errors import InvalidField, InvalidUrl
from service.model.urls import NormalUrl

FUTURE_ALLOWED = timedelta(minutes=5)
"""How far ahead of the service's clock an instant may lie."""
EARLIEST = datetime(1990, 1, 1, tzinfo=EPOCH.tzinfo)
"""Earliest instant of evidence; no web page is older."""

LOWEST_STATUS = 100
REDIRECTS = 300
NOT_MODIFIED = 304
FAILURES = 400
REMEDY = (
    "tell `changed`, or a `digest` to compare, or a `status` that says it (304, 404, 410, or a "
    "failure: 0, 4xx, 5xx)"
)

ReadUrl = NormalUrl | InvalidUrl | None


def check_observation(
    item: Observation, url: ReadUrl, target: ReadUrl, digest: int, latest: datetime
) -> None:
    """Raise `InvalidField` for the first rule that an observation breaks.

    Parameters
    ----------
    url, target
        The page and the redirect's target.
    digest
        64 bits of the item's digest; 0 for none, and for one that is no Unicode.
    latest
        The latest instant that evidence may have.
    """
    if item.lease is UNSET:
        _check_name(item, url)
    else:
        _check_leased(item, url)
    if not EARLIEST <= item.observed_at <= latest:
        raise _out_of_time("observed_at", item.observed_at, latest)
    status = item.status
    if status is not UNSET and 0 < status < LOWEST_STATUS:
        raise InvalidField("status", f"{status} is no HTTP status; send 100 to 599, or 0 for none")
    if not digest and item.digest is not UNSET:
        raise InvalidField("digest", "the digest holds a lone surrogate; send valid Unicode")
    if target is not None:
        _check_redirect(target, status)
    if digest or item.changed is not UNSET:
        return
    if status is UNSET or 0 != status < REDIRECTS:
        raise InvalidField("changed", f"this says nothing about a change; {REMEDY}", "no_evidence")


def check_ping(item: Ping, url: ReadUrl, latest: datetime) -> None:
    """Raise `InvalidField` for the first rule that a ping breaks."""
    _check_name(item, url)
    if not EARLIEST <= item.changed_at <= latest:
        raise _out_of_time("changed_at", item.changed_at, latest)


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
            "min_crawl_rate", f"min_crawl_rate {low:g} lies above max_crawl_rate {high:g}"
        )


def read_lease(lease: str) -> tuple[int, int]:
    """Return the page and the token that a lease is made of.

    >>> read_lease("7-ff")
    (7, 255)
    """
    page_id, _, token = lease.partition("-")
    return int(page_id), int(token, 16)


def _check_name(item: Observation | Ping, url: ReadUrl) -> None:
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
        _check_name(item, url)
    if item.page_id != read_lease(item.lease)[0]:
        detail = f"the lease is on another page than {item.page_id}; leave `page_id` out"
        raise InvalidField("lease", detail, "lease_mismatch")


def _check_redirect(target: ReadUrl, status: int | UnsetType) -> None:
    code = -1 if isinstance(status, UnsetType) else status
    if code == NOT_MODIFIED or not REDIRECTS <= code < FAILURES:
        stated = "no status" if status is UNSET else f"status {status}"
        detail = f"{stated} is no redirect; send a status of 300 to 399 other than 304 with it"
        raise InvalidField("redirect_url", detail)
    if isinstance(target, InvalidUrl):
        raise InvalidField("redirect_url", target.detail, target.code) from target


def _out_of_time(field: str, moment: datetime, latest: datetime) -> InvalidField:
    if moment < EARLIEST:
        detail = f"{field} lies before 1990; check the unit and the zone"
        return InvalidField(field, detail, "past")
    now = latest - FUTURE_ALLOWED
    detail = f"{field} is over 5 minutes in the future; the service's clock says {now.isoformat()}"
    return InvalidField(field, detail, "future")
