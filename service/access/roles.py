"""Rights: which operation needs which role.

The roles are nested: read, report, crawl, admin. An operation that the table lacks needs admin.
"""

from typing import NamedTuple

from service.model.access import Role


class Right(NamedTuple):
    """The role that an operation needs."""

    role: Role | None
    """Lowest role; None: everybody, without a key."""
    limited: Role | None = None
    """Lowest role of a key that is limited to hosts or URLs; None: no such key."""
    site_key: bool = False
    """True if the key of a site can replace an API key, where the settings allow it."""
    public_as: str = ""
    """Word of `RECRAWL_PUBLIC` that opens the operation to everybody."""
    acts_by_link: bool = False
    """True if a GET of the operation writes, so that a link or an image could use it."""


PUBLIC, READ, REPORT, CRAWL, ADMIN = (
    Right(role) for role in (None, Role.read, Role.report, Role.crawl, Role.admin)
)

OPERATIONS: dict[str, Right] = {
    # pages
    "post_pages": Right(Role.report, limited=Role.report),
    "get_page": Right(Role.read, limited=Role.read),
    "list_all_pages": Right(Role.read, limited=Role.read),
    "list_observations": READ,
    "post_freshness": READ,
    "patch_pages": ADMIN,
    "delete_pages": ADMIN,
    "recrawl_pages": ADMIN,
    "list_url_groups": READ,
    "put_url_group": ADMIN,
    "patch_page": REPORT,
    "delete_page": ADMIN,
    # evidence
    "post_observations": Right(Role.report, limited=Role.crawl),
    "post_pings": Right(Role.report, limited=Role.report),
    "post_sitemap": Right(Role.report, limited=Role.report),
    "get_indexnow": Right(Role.report, limited=Role.report, site_key=True, acts_by_link=True),
    "post_indexnow": Right(Role.report, limited=Role.report, site_key=True),
    # leases
    "post_leases": Right(Role.crawl, limited=Role.crawl),
    "patch_lease": Right(Role.crawl, limited=Role.crawl),
    "delete_lease": Right(Role.crawl, limited=Role.crawl),
    "delete_leases": Right(Role.crawl, limited=Role.crawl),
    # the route itself keeps the list for keys without limits
    "list_leases": Right(Role.read, limited=Role.crawl),
    "list_workers": READ,
    # hubs call the last two; the id of a subscription cannot be guessed
    "post_subscription": ADMIN,
    "list_subscriptions": ADMIN,
    "get_subscription": ADMIN,
    "delete_subscription": ADMIN,
    "verify_subscription": PUBLIC,
    "post_content": PUBLIC,
    # the feed of changes; webhooks send it to addresses outside
    "get_changes": READ,
    "post_webhook": ADMIN,
    "list_webhooks": ADMIN,
    "get_webhook": ADMIN,
    "patch_webhook": ADMIN,
    "delete_webhook": ADMIN,
    "test_webhook": ADMIN,
    "list_deliveries": ADMIN,
    "redeliver": ADMIN,
    # schedule and epochs
    "get_schedule": READ,
    "list_epochs": READ,
    "get_latest_epoch": READ,
    "get_epoch": READ,
    "post_epoch": ADMIN,
    "get_history": READ,
    "get_savings": READ,
    "get_status": READ,
    "accept_need": ADMIN,
    "withdraw_acceptance": ADMIN,
    "get_plan": READ,
    # orders for all servers
    "get_budget": READ,
    "put_budget": ADMIN,
    "delete_budget": ADMIN,
    "get_pause": READ,
    "post_pause": ADMIN,
    "delete_pause": ADMIN,
    # hosts
    "list_hosts": READ,
    "get_host": Right(Role.read, limited=Role.read),
    "get_open_hours": Right(Role.read, limited=Role.read),
    "put_host": ADMIN,
    # the route itself keeps all fields but the delay of robots.txt for administrators
    "patch_host": CRAWL,
    "delete_host_by_name": ADMIN,
    "pause_host": ADMIN,
    "resume_host": ADMIN,
    "end_host_incident": ADMIN,
    "list_groups": READ,
    "get_group": READ,
    "delete_group_by_name": ADMIN,
    "put_group": ADMIN,
    "patch_group": ADMIN,
    # keys and audit
    "post_key": ADMIN,
    "list_keys": ADMIN,
    "get_key": ADMIN,
    "delete_key": ADMIN,
    "rotate_key": ADMIN,
    "list_audit": ADMIN,
    # health and documents
    "healthz": PUBLIC,
    "readyz": PUBLIC,
    "metrics": Right(Role.read, public_as="metrics"),
    "docs": Right(Role.read, public_as="docs"),
}
"""Right of each operation, by its name in the OpenAPI document."""


def right_of(operation: str) -> Right:
    """Return the right of an operation; that of an unknown one is for administrators.

    >>> right_of("no such operation").role.name
    'admin'
    """
    return OPERATIONS.get(operation, ADMIN)
