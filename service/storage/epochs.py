"""The contract of epochs, their schedules and what they learn."""

from abc import abstractmethod
from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import NamedTuple

from service.core.shares import ShareEvidence
from service.model.arrays import Ints, UrlGroupRates
from service.model.columns import (
    CapColumns,
    ClockColumns,
    EpochColumns,
    HostClocks,
    ScheduleChanges,
    ScheduleColumns,
    SchedulePart,
    ShiftColumns,
)
from service.model.domain import Certificate, Epoch, ScheduleFilter
from service.storage.dialect import Subject

MOST_EPOCHS = 10_000
"""Maximum epochs whose record is kept: ten weeks of one every ten minutes."""

MOST_SCANNED = 100_000
"""Maximum page_ids that one reading of the schedule scans, whatever its filter matches."""


class GroupTables(NamedTuple):
    """Values that an epoch learnt about the URL groups of one logical shard."""

    url_group_rate: UrlGroupRates | None = None
    """Mean change rates of URL groups, 1/day."""
    share_evidence: ShareEvidence | None = None
    """Evidence of the shares of URL groups (`core.shares`)."""


NO_TABLES = GroupTables()


class Learnt(NamedTuple):
    """Values that an epoch learnt from crawls, beside the estimates of pages."""

    of_shards: Mapping[int, GroupTables] = MappingProxyType({})
    """Tables of URL groups by logical shard; a store that was never sharded is shard 0."""
    clocks: ClockColumns | None = None
    """Hosts whose clocks have learnt; the evidence of others stays as it is."""


NOTHING = Learnt()


class EpochStatements(Subject):
    """The statements of epochs and schedules."""

    @abstractmethod
    def request_epoch(self, now: datetime) -> Epoch:
        """Return the requested epoch; request one if there is none."""

    @abstractmethod
    def start_epoch(self, now: datetime) -> Epoch:
        """Mark the requested epoch, or a new one, as running, and runs that died as failed."""

    @abstractmethod
    def fail_epoch(self, epoch: int, reason: str, now: datetime) -> None:
        """Write the reason why an epoch failed; the schedule in force stays."""

    @abstractmethod
    def load_columns(self) -> EpochColumns:
        """Return every page for an epoch, as of one instant; gone pages have importance 0.

        The transaction is that of `Store.read_whole` or of a lead that does not write.
        """

    @abstractmethod
    def load_caps(self) -> CapColumns:
        """Return the hosts with a cap on crawls a day, of their own or of their group."""

    @abstractmethod
    def write_schedule(self, epoch: int, schedule: ScheduleColumns) -> None:
        """Write the schedule of an epoch; no reader sees the schedule before `publish`.

        `Lead.write_schedule` writes it while others write.
        """

    @abstractmethod
    def withdraw(self, epoch: int) -> None:
        """Delete the schedule and tables of an epoch that is not published, if there are any.

        The epoch may then write them again.
        """

    @abstractmethod
    def publish(
        self,
        epoch: int,
        certificate: Certificate,
        now: datetime,
        learnt: Learnt = NOTHING,
    ) -> None:
        """Put a whole schedule in force with all that its epoch learnt.

        This takes a later transaction than the one that wrote the schedule.

        In the same transaction, a reader on Postgres could see the epoch before its rows.
        """

    @abstractmethod
    def save_learnt(self, epoch: int, learnt: Learnt) -> None:
        """Write values that an epoch learnt, as `publish` does, before it is published.

        Clocks are in force at once. They learn each crawl once, whether the epoch is published.
        """

    @abstractmethod
    def url_group_rate(self, epoch: int, shard: int = 0) -> UrlGroupRates | None:
        """Return the rates of a logical shard's URL groups, 1/day; None if they are not kept."""

    @abstractmethod
    def share_evidence(self, epoch: int, shard: int = 0) -> ShareEvidence | None:
        """Return the evidence of shares (`core.shares`); None if it is not kept."""

    @abstractmethod
    def host_clocks(self) -> HostClocks:
        """Return the hosts with a clock, by ascending host_id."""

    @abstractmethod
    def clocks(self, host_id: Ints) -> ClockColumns:
        """Return the evidence of those of these hosts that have any, by ascending host_id."""

    @abstractmethod
    def shifts(self, epoch: int) -> ShiftColumns:
        """Return the pages whose crawls an epoch moved, by ascending page_id."""

    @abstractmethod
    def epoch(self, epoch: int) -> Epoch:
        """Return one epoch; raise `EpochNotFound`."""

    @abstractmethod
    def epoch_in_force(self) -> Epoch | None:
        """Return the newest published epoch; None before the first."""

    @abstractmethod
    def newest_epoch(self) -> Epoch | None:
        """Return the last epoch that was requested or started, of any status."""

    @abstractmethod
    def epochs(self, before: int | None, limit: int) -> list[Epoch]:
        """Return epochs below `before`, newest first; None: the newest epochs."""

    # -- schedule; `leases.due` decides when its pages are due

    @abstractmethod
    def schedule(self, epoch: int, after: int, limit: int, only: ScheduleFilter) -> SchedulePart:
        """Return rows of a schedule with page_id > after, ascending, at most `limit`.

        Because the method scans at most `MOST_SCANNED` page_ids, a part with fewer rows, even none,
        may not be the last. Raise `CursorExpired` if the store no longer keeps the schedule.
        """

    @abstractmethod
    def schedule_changes(
        self, epoch: int, since: int, min_change: float, after: int, limit: int
    ) -> ScheduleChanges:
        """Return the rows of `schedule` that are new or have changed since an epoch.

        A row has changed if its crawl rate, crawl rate times urgency or crawl probability has. A
        number has changed if the larger value over the smaller one is more than 1 + min_change.
        `removed` has pages between `after` and the next part. Raise `EpochNotKept` if the store no
        longer keeps the schedule of `since`, `CursorExpired` if not that of `epoch`.
        """
