"""Reports of crawls in batches."""

from typing import TYPE_CHECKING, Any

from recrawl_client.batches import Batches
from recrawl_client.wire.common import empty
from recrawl_client.wire.evidence import Observation, Reported
from recrawl_client.wire.leases import Crawl

if TYPE_CHECKING:
    from recrawl_client.client import Client


class Reporter(Batches[Observation, Reported]):
    """Takes observations at once and sends them soon, see `Batches`."""

    def __init__(self, client: "Client", **options: Any) -> None:
        super().__init__(client.report_many, empty(Reported), **options)
        self.client = client

    def report(self, page: Crawl | str | int, **evidence: Any) -> None:
        """Report one crawl, see `Client.observation`; raises what has ended the reporter."""
        self.add(self.client.observation(page, **evidence))
