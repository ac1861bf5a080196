"""The contract of webhooks.

**Claims.** One process at a time delivers for a webhook: `claim_webhook` sets a token and an end.
Only the holder of the token may save the state of deliveries, with the row locked. So a process
that was held up beyond its claim changes nothing.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from service.model.arrays import Ints
from service.model.webhooks import Delivery, ParkedPage, Webhook, WebhookProgress
from service.storage.dialect import Subject

DELIVERIES_KEPT = 1_000
"""Minimum number of deliveries that are kept for each webhook."""


class WebhookStatements(Subject):
    """The statements of webhooks."""

    @abstractmethod
    def add_webhook(self, webhook: Webhook) -> None:
        """Insert a webhook."""

    @abstractmethod
    def webhooks(self, after: str, limit: int) -> list[Webhook]:
        """Return webhooks with id > after, ascending, at most `limit`."""

    @abstractmethod
    def webhook(self, webhook_id: str) -> Webhook:
        """Return one webhook; raise `WebhookNotFound`."""

    @abstractmethod
    def change_webhook(self, webhook_id: str, **fields: Any) -> Webhook:
        """Lock a webhook, set fields and return it; raise `WebhookNotFound`."""

    @abstractmethod
    def delete_webhook(self, webhook_id: str) -> None:
        """Delete a webhook with its deliveries and parked pages; raise `WebhookNotFound`."""

    @abstractmethod
    def due_webhooks(self, now: datetime, newest: int, limit: int) -> list[Webhook]:
        """Return active webhooks with changes to deliver whose time has come, longest first."""

    @abstractmethod
    def claim_webhook(self, webhook_id: str, now: datetime, until: datetime) -> Webhook | None:
        """Claim a due webhook until an instant; None if another process was first."""

    @abstractmethod
    def lock_webhook(self, webhook_id: str, token: int) -> Webhook | None:
        """Lock and return a claimed webhook; None if it was deleted or claimed again."""

    @abstractmethod
    def renew_claims(self, tokens: Mapping[str, int], until: datetime) -> None:
        """Set the end of claims, by webhook_id and token; those given up or lost stay so."""

    @abstractmethod
    def redate_webhooks(self, now: datetime) -> None:
        """Set waits, claims and first failures after `now` to `now`, after a clock that ran ahead.

        A delivery whose claim ends here while it runs is repeated by the next process.
        """

    @abstractmethod
    def webhook_progress(self, limit: int) -> list[WebhookProgress]:
        """Return how far the deliveries of webhooks are, by id, at most `limit`."""

    @abstractmethod
    def add_delivery(self, delivery: Delivery) -> None:
        """Insert a delivery; delete old ones now and then."""

    @abstractmethod
    def deliveries(self, webhook_id: str, before: int, limit: int) -> list[Delivery]:
        """Return deliveries with number < before, newest first, at most `limit`."""

    @abstractmethod
    def park_page(self, page: ParkedPage) -> None:
        """Insert a parked page."""

    @abstractmethod
    def parked_pages(self, webhook_id: str) -> list[ParkedPage]:
        """Return the parked pages of a webhook by page_id."""

    @abstractmethod
    def parked_of(self, webhook_id: str) -> Ints:
        """Return the page_ids of parked pages, ascending."""

    @abstractmethod
    def release_pages(self, webhook_id: str, page_id: Sequence[int] | None) -> None:
        """Delete parked pages; None: all."""
