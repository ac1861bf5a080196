"""The errors of this service; the docstring of each is its default message.

A caller can correct a `RequestError`. A `StartupRefused` ends the process. Any other `RecrawlError`
may not occur at the next attempt.
"""

from collections.abc import Mapping
from typing import Any


class RecrawlError(Exception):
    """Recrawl could not do this."""

    def __init__(self, detail: str | None = None, **extra: Any) -> None:
        self.detail = detail or (type(self).__doc__ or "").strip()
        self.extra: Mapping[str, Any] = extra
        super().__init__(self.detail)


class RequestError(RecrawlError):
    """The request cannot be served as it is."""


class MalformedBody(RequestError):
    """The body is not what its media type says."""


class BodyTooLarge(RequestError):
    """The body has more bytes than a request may have."""


class TooManyItems(RequestError):
    """The batch has more items than a request may have."""


class UnsupportedMediaType(RequestError):
    """Send application/json (an array of items) or application/x-ndjson (one item a line)."""


class BatchRejected(RequestError):
    """None of the items could be taken; `rejected` says why for each."""


class InvalidField(RequestError):
    """A field is outside of its domain."""

    def __init__(self, field: str | None, detail: str, code: str = "invalid") -> None:
        self.field = field
        self.code = code
        super().__init__(detail, field=field)


class InvalidUrl(InvalidField):
    """Not an http or https URL that the service can key."""

    def __init__(self, detail: str) -> None:
        super().__init__("url", detail, "invalid_url")


class NotAcceptable(RequestError):
    """None of the media types in Accept can be given."""


class BadCursor(RequestError):
    """Not a cursor of GET /schedule; start again without one."""


class CursorExpired(RequestError):
    """The epoch of this cursor is no longer kept; start again without a cursor."""


class EpochNotKept(RequestError):
    """The schedule of this epoch is not kept; fetch the whole one, without since_epoch."""


class Unauthorized(RequestError):
    """Send a valid API key as `Authorization: Bearer KEY`."""


class KeyNotShown(RequestError):
    """The site does not show the key it submitted URLs with."""


class TooManyRequests(RequestError):
    """More is waiting to be written than may wait; nothing was kept, try again."""


class PageNotFound(RequestError):
    """No such page; register it with POST /pages."""


class HostNotFound(RequestError):
    """No such host; it comes with its first page, or with PUT /hosts/{host}."""


class GroupNotFound(RequestError):
    """No such group; PUT /groups/{group} creates it."""


class LeaseNotHeld(RequestError):
    """The lease has ended: it was reported, released or has expired."""


class SubscriptionNotFound(RequestError):
    """No such subscription; GET /websub lists them."""


class SubscriptionGone(RequestError):
    """Nothing is subscribed to here; stop sending."""


class EpochNotFound(RequestError):
    """No such epoch; GET /epochs lists them."""


class EpochRunning(RecrawlError):
    """Another process is running an epoch."""


class LeadershipLost(RecrawlError):
    """Another process took the lead of epochs; this epoch was not published."""


class Overloaded(RecrawlError):
    """More evidence is waiting to be written than may wait; nothing was kept, try again."""


class StoreUnavailable(RecrawlError):
    """The database did not answer; send this again, what it has kept will not count twice."""


class StoreFull(RecrawlError):
    """The database has no room left; nothing of this request was kept."""


class UnreadableFile(RecrawlError):
    """The file is neither CSV with a header nor NDJSON in UTF-8."""


class NotExportable(RecrawlError):
    """These states cannot be rebuilt from a file."""


class SitemapNotFetched(RecrawlError):
    """The site did not give this sitemap."""


class NotSubscribed(RecrawlError):
    """The topic names no hub, or its hub refuses."""


class UnexpectedAnswer(RecrawlError):
    """The service answered with something this client cannot go on from."""


class StartupRefused(RecrawlError):
    """The service will not start like this."""


class InvalidSettings(StartupRefused):
    """A setting is unknown, malformed or contradicts another."""


class AddressUnavailable(StartupRefused):
    """The server cannot listen on this address; choose another --host or --port."""


class SchemaBehind(StartupRefused):
    """The database is not at the revision this code needs; run `recrawl migrate`."""


class SchemaAhead(StartupRefused):
    """A newer version of Recrawl has migrated this database; install that version."""


class NoDatabase(StartupRefused):
    """There is no such file; see that RECRAWL_DATABASE_URL and the working directory are right."""


class EstimatorMismatch(StartupRefused):
    """The database holds another estimator's states; run `recrawl rebuild`."""


OUTAGES = (StoreUnavailable, StoreFull, SchemaBehind, SchemaAhead)
"""Errors of the database, which no request causes and which may not occur at the next request."""
