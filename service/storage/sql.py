"""The statements that both databases share."""

from service.storage.contract import Transaction
from service.storage.webhooks.contract import WebhooksSql
from service.storage.webhooks.subscriptions import SubscriptionsSql


class SqlTransaction(
    WebhooksSql,
    SubscriptionsSql,
    Transaction,
):
    """The statements that Postgres and SQLite share."""
