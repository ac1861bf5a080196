"""Reporters that send crawls in batches, from a thread or from a task."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol, TypedDict, Unpack

from recrawl_client.batches import AsyncBatches, Batches
from recrawl_client.calls import CrawlEvidence, LeaseOptions, PageName
from recrawl_client.wire.common import Rejection, empty
from recrawl_client.wire.evidence import Observation, Reported
from recrawl_client.wire.leases import Leased


class BatchOptions(TypedDict, total=False):
    """Options of `Batches`."""

    size: int
    every_s: float
    on_rejected: Callable[[Observation, Rejection], None]


class ReporterOptions(BatchOptions, total=False):
    """Options of a reporter."""

    register: bool
    """True to register unknown pages, including the targets of redirects; default true."""


class LeaseCalls(Protocol):
    """The calls of a `Client` that a reporter makes."""

    def lease(
        self,
        count: int = 10,
        *,
        report: Iterable[Observation] = (),
        register: bool = True,
        **options: Unpack[LeaseOptions],
    ) -> Leased:
        """Lease crawls, see `Client.lease`."""

    def report_many(
        self, observations: Iterable[Observation], *, register: bool = True
    ) -> Reported:
        """Report crawls, see `Client.report_many`."""

    def observation(self, page: PageName, **evidence: Unpack[CrawlEvidence]) -> Observation:
        """Return an observation, see `Client.observation`."""


class AsyncLeaseCalls(Protocol):
    """The calls of an `AsyncClient` that a reporter makes."""

    async def lease(
        self,
        count: int = 10,
        *,
        report: Iterable[Observation] = (),
        register: bool = True,
        **options: Unpack[LeaseOptions],
    ) -> Leased:
        """Lease crawls, see `AsyncClient.lease`."""

    async def report_many(
        self, observations: Iterable[Observation], *, register: bool = True
    ) -> Reported:
        """Report crawls, see `AsyncClient.report_many`."""

    def observation(self, page: PageName, **evidence: Unpack[CrawlEvidence]) -> Observation:
        """Return an observation, see `AsyncClient.observation`."""


class Reporter(Batches[Observation, Reported]):
    """A reporter that sends observations from a thread, see `Batches`."""

    def __init__(
        self, client: LeaseCalls, *, register: bool = True, **options: Unpack[BatchOptions]
    ) -> None:
        send = partial(client.report_many, register=register)
        super().__init__(send, empty(Reported), **options)
        self.client = client
        self.register = register

    def lease(
        self, count: int = 10, *, client: LeaseCalls | None = None, **options: Unpack[LeaseOptions]
    ) -> Leased:
        """Lease crawls as `Client.lease`; the request carries the crawls that wait to be sent.

        `client` may be another client than that of the reports.
        """
        with self.carried() as items:
            leased = (client or self.client).lease(
                count, report=items, register=self.register, **options
            )
        if leased.reported is not None:
            self._settle(items, leased.reported)
        return leased

    def report(self, page: PageName, **evidence: Unpack[CrawlEvidence]) -> None:
        """Report one crawl, see `Client.observation`; raise what has ended the reporter."""
        self.add(self.client.observation(page, **evidence))


class AsyncReporter(AsyncBatches[Observation, Reported]):
    """A reporter that sends observations from a task, see `AsyncBatches`."""

    def __init__(
        self, client: AsyncLeaseCalls, *, register: bool = True, **options: Unpack[BatchOptions]
    ) -> None:
        send = partial(client.report_many, register=register)
        super().__init__(send, empty(Reported), **options)
        self.client = client
        self.register = register

    async def lease(
        self,
        count: int = 10,
        *,
        client: AsyncLeaseCalls | None = None,
        **options: Unpack[LeaseOptions],
    ) -> Leased:
        """Lease crawls as `AsyncClient.lease`; the request carries the crawls that wait to be sent.

        `client` may be another client than that of the reports.
        """
        with self.carried() as items:
            leased = await (client or self.client).lease(
                count, report=items, register=self.register, **options
            )
        if leased.reported is not None:
            self._settle(items, leased.reported)
        return leased

    def report(self, page: PageName, **evidence: Unpack[CrawlEvidence]) -> None:
        """Report one crawl, see `Client.observation`; raise what has ended the reporter."""
        self.add(self.client.observation(page, **evidence))
