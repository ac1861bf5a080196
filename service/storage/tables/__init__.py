"""The tables, the same on Postgres and SQLite; migrations/ creates them, a test compares both.

Postgres checks no foreign keys, because it would look up the page of every new row and lock the row
of its host. One statement inserts a page with its state, and one method deletes both. A host is
deleted only without pages, while no other transaction can register any.
"""

from service.storage.tables.access import accepted_needs, api_keys, audit, ended_sessions
from service.storage.tables.corpus import (
    host_groups,
    hosts,
    page_states,
    page_tags,
    page_validators,
    pages,
    tags,
)
from service.storage.tables.database import incarnations, leads, meta
from service.storage.tables.kinds import HOT, Id, Instant, Json, Key, Short, metadata
from service.storage.tables.learning import (
    MINUTES,
    change_hours,
    digests,
    epochs,
    group_hours,
    schedule,
    url_groups,
    url_levels,
)
from service.storage.tables.queue import (
    allotments,
    crawl_days,
    deleted_hosts,
    due_pages,
    filtered_hosts,
    host_incidents,
    host_queues,
    lease_answers,
    lease_filters,
    pace,
)
from service.storage.tables.records import (
    calibrations,
    deleted_pages,
    feed,
    feed_files,
    history,
    history_parts,
    host_loads,
    log_files,
    observations,
)
from service.storage.tables.subscriptions import (
    SUBSCRIPTION_COUNTS,
    parked_pages,
    webhook_deliveries,
    webhooks,
    websub,
)

__all__ = [
    "HOT",
    "MINUTES",
    "SUBSCRIPTION_COUNTS",
    "Id",
    "Instant",
    "Json",
    "Key",
    "Short",
    "accepted_needs",
    "allotments",
    "api_keys",
    "audit",
    "calibrations",
    "change_hours",
    "crawl_days",
    "deleted_hosts",
    "deleted_pages",
    "digests",
    "due_pages",
    "ended_sessions",
    "epochs",
    "feed",
    "feed_files",
    "filtered_hosts",
    "group_hours",
    "history",
    "history_parts",
    "host_groups",
    "host_incidents",
    "host_loads",
    "host_queues",
    "hosts",
    "incarnations",
    "leads",
    "lease_answers",
    "lease_filters",
    "log_files",
    "meta",
    "metadata",
    "observations",
    "pace",
    "page_states",
    "page_tags",
    "page_validators",
    "pages",
    "parked_pages",
    "schedule",
    "tags",
    "url_groups",
    "url_levels",
    "webhook_deliveries",
    "webhooks",
    "websub",
]
