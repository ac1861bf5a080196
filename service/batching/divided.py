"""Batchers of a store whose databases commit apart, in place of those of `reports`."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol

from service.batching.batcher import Batcher, Flush
from service.batching.registrations import Registrations
from service.batching.reports import CommittedCrawls, Report
from service.budget.keeper import Keeper
from service.estimation.rules import Rules
from service.ingest.record import PingOutcome
from service.leases.settle import LeaseSettler
from service.model.columns import CrawlColumns, PingColumns


class ReportBatchers(Protocol):
    """The batchers of reports and registrations.

    Items of a database that is away have the verdict `unavailable`; the others are committed.
    """

    def crawls(self) -> Batcher[Report[CrawlColumns], CommittedCrawls]:
        """Return the batcher of crawls."""

    def pings(self) -> Batcher[Report[PingColumns], PingOutcome]:
        """Return the batcher of pings."""

    def registrations(self) -> Registrations:
        """Return the batcher of registrations; pages of a database that is away have the id 0."""


class SeveralBatchers(ABC):
    """A store that divides reports and registrations over several databases."""

    @abstractmethod
    def divided_batchers(
        self,
        rules: Rules,
        settler: LeaseSettler,
        n_writers: int,
        watch: Callable[[Flush], None],
        keeper: Keeper | None = None,
    ) -> ReportBatchers:
        """Return the batchers, with `n_writers` for each database; `watch` receives each flush.

        `keeper` counts the crawls without a lease; None: no budget is kept.
        """
