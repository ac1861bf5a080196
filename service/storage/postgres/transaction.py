"""Transactions on Postgres on arrays; they lock by page_id, a page before its state."""

from service.storage.access.postgres import PostgresAccess
from service.storage.epochs.postgres import PostgresEpochs
from service.storage.feed.postgres import PostgresFeed
from service.storage.history.postgres import PostgresHistory
from service.storage.log.postgres import PostgresLog
from service.storage.pages.postgres import PostgresPages
from service.storage.pages.postgres_lists import PostgresListing
from service.storage.queue.postgres import PostgresQueue
from service.storage.sql import SqlTransaction


class PostgresTransaction(
    PostgresHistory,
    PostgresPages,
    PostgresListing,
    PostgresFeed,
    PostgresQueue,
    PostgresLog,
    PostgresEpochs,
    PostgresAccess,
    SqlTransaction,
):
    """The transaction in the SQL of Postgres."""
