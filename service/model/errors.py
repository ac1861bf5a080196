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
    """The body does not have the format of its media type; correct one of them."""


class BodyTooLarge(RequestError):
    """The body has more bytes than a request may have."""


class TooManyItems(RequestError):
    """The batch has more items than a request may have."""


class UnsupportedMediaType(RequestError):
    """Send application/json (an array of items) or application/x-ndjson (one item a line)."""


class BatchRejected(RequestError):
    """None of the items was accepted; `rejected` has the reason for each."""


class StreamRefused(RequestError):
    """Most lines of the stream are refused, so its rest is not read; `lines_taken` were read."""


class InvalidField(RequestError):
    """A field is outside of its domain."""

    def __init__(self, field: str | None, detail: str, code: str = "invalid") -> None:
        self.field = field
        self.code = code
        super().__init__(detail, field=field)


class InvalidUrl(InvalidField):
    """The URL cannot be used; send an absolute http or https URL."""

    def __init__(self, detail: str) -> None:
        super().__init__("url", detail, "invalid_url")


class NotAcceptable(RequestError):
    """No representation matches a media type in Accept; leave Accept out."""


class BadCursor(RequestError):
    """The cursor is not one that this list returned; start again without cursor."""


class CursorExpired(RequestError):
    """The cursor is too old, or belongs to another database; start again without a cursor."""


class EpochNotKept(RequestError):
    """The schedule of this epoch is not kept; fetch the whole schedule, without since_epoch."""


class Unauthorized(RequestError):
    """Send a valid API key as `Authorization: Bearer KEY`; an ended key is not valid."""


class Forbidden(RequestError):
    """The key may not do this; use a key of a higher role."""


class KeyNotFound(RequestError):
    """No such key; GET /keys lists them."""


class KeyEnded(RequestError):
    """The key has been revoked or has expired; create another with POST /keys."""


class RateLimited(RequestError):
    """The key has used up its items; wait for Retry-After seconds."""


class KeyNotShown(RequestError):
    """The site does not publish this IndexNow key; put the key file on the site."""


class TooManyRequests(RequestError):
    """Too many submissions or requests wait; nothing was kept, try again after Retry-After."""


class PageNotFound(RequestError):
    """No such page; register its URL with POST /pages, or find its id with GET /pages."""


class HostNotFound(RequestError):
    """No such host; it comes with its first page, or with PUT /hosts/{host}."""


class GroupNotFound(RequestError):
    """No such group; PUT /groups/{group} creates it."""


class GroupDivided(RequestError):
    """The hosts of a group share one queue, so all must be in one logical shard."""


class HostHasPages(RequestError):
    """The host has pages; delete them first with DELETE /pages?host=…."""


class LeaseNotHeld(RequestError):
    """The lease has ended: reported, released or expired; a report of its crawl still counts."""


class KeyReused(RequestError):
    """The Idempotency-Key came with another body before; send each body with a key of its own."""


class SubscriptionNotFound(RequestError):
    """No such subscription; GET /websub lists them."""


class SubscriptionGone(RequestError):
    """No subscription has this address; stop sending."""


class NeedNotFound(RequestError):
    """No such need; GET /status lists those that hold, and those that are accepted."""


class WebhookNotFound(RequestError):
    """No such webhook; GET /webhooks lists them."""


class EpochNotFound(RequestError):
    """No such epoch; GET /epochs lists them."""


class PlanTooLarge(RecrawlError):
    """The store has more pages than a plan takes; try bandwidths on a copy with fewer hosts."""


class EpochRunning(RecrawlError):
    """Another process is running an epoch."""


class PartLost(RecrawlError):
    """Processes that computed a part of the epoch ended, or no longer answer."""

    def __init__(self, which: tuple[int, ...], detail: str | None = None) -> None:
        self.which = which
        super().__init__(detail)


class LeadershipLost(RecrawlError):
    """Another process took the lead of epochs; this epoch was not published."""


class OtherUnit(RecrawlError):
    """The budget of the database is in another unit than that of this process."""


class AnswerTaken(RecrawlError):
    """Another request with this Idempotency-Key is being answered; send this again."""


class AccessUnavailable(RecrawlError):
    """API keys cannot be checked now, because they could not be read; send this again."""


class ProviderUnavailable(AccessUnavailable):
    """The keys of the identity provider (JWKS) cannot be read, so tokens are not checked now."""


class Overloaded(RecrawlError):
    """Too many items wait to be written; send them again after Retry-After, in batches."""


class StoreUnavailable(RecrawlError):
    """The database did not answer; send this again: committed items will not count twice."""


ENDED = "this process ends; send this again, to another one or when it is back"
"""Detail of `StoreUnavailable` once a store has been aborted."""


class RowLocked(StoreUnavailable):
    """Another session holds a lock of the database for long; send this again."""


class AllotmentOver(StoreUnavailable):
    """The server held an amount of the budget for too long; nothing was leased, send this again."""


class TablesChanged(StoreUnavailable):
    """The tables of the database were changed meanwhile; nothing was kept, send this again."""


class ShardUnavailable(StoreUnavailable):
    """A database of the store did not answer; send this again: committed items stay committed."""


class ShardMoved(ShardUnavailable):
    """A shard of this request moves to another database; send this again."""


class ShardMoving(RecrawlError):
    """Another move of a shard is not complete; one shard moves at a time."""


class MoveRefused(RecrawlError):
    """The shard cannot be moved so; nothing was changed."""


class MoveFailed(RecrawlError):
    """The move stopped; the shard stays where it is. Run the command again to go on."""


class StoreFull(RecrawlError):
    """The database has no room left; nothing of this request was kept."""


class ArchiveUnavailable(RecrawlError):
    """The archive of the log did not answer, or has no room; the database keeps its entries."""


class ArchiveDamaged(RecrawlError):
    """A file of the archive is not what was written; restore the file from a backup."""


class ArchiveRunning(RecrawlError):
    """Another process is archiving; it archives the same days."""


class PartBusy(RecrawlError):
    """Readers use the entries that are to be dropped; the next round archives them."""


class PartChanged(RecrawlError):
    """The entries changed while they were archived; the next round archives them."""


class UnreadableFile(RecrawlError):
    """The file is neither CSV with a header nor NDJSON in UTF-8."""


class NotExportable(RecrawlError):
    """These states cannot be rebuilt from a file."""


class SitemapNotFetched(RecrawlError):
    """The site did not return this sitemap."""


class NotSubscribed(RecrawlError):
    """The topic names no hub, or its hub refuses."""


class HubRefused(NotSubscribed):
    """The hub did not take the request: no connection, or a status of 400 to 499."""


class BudgetUnitChanges(RequestError):
    """The budget would get another unit."""


class NotConfirmed(RecrawlError):
    """Nobody has confirmed the act, and nothing was done."""


class UnexpectedAnswer(RecrawlError):
    """The service returned an answer that this client cannot use."""


class StartupRefused(RecrawlError):
    """The service cannot start with these settings or this database."""


class InvalidSettings(StartupRefused):
    """A setting is unknown, malformed or contradicts another."""


class AlreadyServed(StartupRefused):
    """Another `recrawl serve` serves this SQLite file; end it, or use Postgres for several."""


class AddressUnavailable(StartupRefused):
    """The server cannot listen on this address; choose another --host or --port."""


class ShardsDisagree(StartupRefused):
    """A database and RECRAWL_CLUSTER disagree about its shards; run `recrawl shards status`."""


class SchemaBehind(StartupRefused):
    """The database is not at the revision this code needs; run `recrawl migrate`."""


class SchemaDiffers(SchemaBehind):
    """The tables are not those of the database's revision; restore a backup, or import anew."""


class SchemaAhead(StartupRefused):
    """A newer version of Recrawl has migrated this database; install that version."""


class NoDatabase(StartupRefused):
    """The database file does not exist; check RECRAWL_DATABASE_URL and the working directory."""


class DatabaseUnsuitable(StartupRefused):
    """The database has another encoding than UTF8, or a pooler of transactions is before it."""


class EstimatorMismatch(StartupRefused):
    """The database holds another estimator's states; run `recrawl rebuild`."""


OUTAGES = (StoreUnavailable, StoreFull, SchemaBehind, SchemaAhead)
"""Errors of the database, which no request causes and which may not occur at the next request."""
