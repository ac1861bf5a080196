"""Topics: parts of the store whose changes ring, so that idle processes need not ask all the time.

A commit rings for its topics, and every process counts the rings. Nobody may depend on a ring: a
notification can be lost with its connection, and other processes may write to a file of SQLite.
"""

from enum import StrEnum


class Topic(StrEnum):
    """A part of the store that changes; the name of the channel on Postgres."""

    keys = "recrawl_keys"
    webhooks = "recrawl_webhooks"
    """Webhooks and their settings; the feed does not ring, because most commits change it."""
    orders = "recrawl_orders"
    """The epoch in force, and the orders of operators."""
