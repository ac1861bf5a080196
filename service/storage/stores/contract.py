"""The contract of every store. One test suite runs against each implementation.

**By value.** Methods take and return columns; a column with the same value in all rows may be
read-only.
**Transactions.** All work happens inside `with store.begin(...) as tx`. The end of the block
commits, an exception rolls back. One call returns one snapshot. Use cases never commit.
**Durability.** Committed values survive a crash of the process and of the database.
**Locks.** A transaction locks pages until its end, in ascending page_id. Therefore writers of the
same pages wait and never deadlock. Reads take no lock that a writer waits for.
**Epochs.** At every instant readers see one whole published epoch, or none before the first. A
transaction that writes uses one epoch. Only the holder of `store.lead()` starts, publishes or fails
epochs. A process that has lost the lead without notice cannot publish (`LeadershipLost`).
**Time.** All processes that share a database use one clock: that of Postgres, or that of the one
process of a SQLite file.
**Errors.** `StoreUnavailable`, `StoreFull` (no room), `SchemaBehind` and `SchemaAhead` mean that
the transaction was rolled back.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.archive.log_archive import LogArchive
from service.model.arrays import Ints
from service.model.calendars import ALWAYS_OPEN, Calendars
from service.model.columns import ScheduleColumns
from service.model.errors import RecrawlError
from service.model.incarnations import Incarnation
from service.storage.access.acceptances import AcceptanceStatements
from service.storage.access.contract import AccessStatements
from service.storage.budget.allotments import AllotmentStatements
from service.storage.budget.caps import CapStatements
from service.storage.budget.costs import CostStatements
from service.storage.budget.orders import OrderStatements
from service.storage.budget.pace import PaceStatements
from service.storage.budget.stopped import StoppedStatements
from service.storage.budget.worth import WorthStatements
from service.storage.clock import Clock
from service.storage.epochs.change_hours import ClockStatements
from service.storage.epochs.contract import EpochStatements
from service.storage.epochs.group_hours import GroupHoursStatements
from service.storage.epochs.loading import LoadStatements
from service.storage.epochs.schedule import ScheduleStatements
from service.storage.feed.contract import FeedStatements
from service.storage.history.contract import Counter, HistoryStatements
from service.storage.history.measured import MeasuredStatements
from service.storage.incarnations.contract import IncarnationStatements
from service.storage.log.contract import LogStatements
from service.storage.pages.contract import PageStatements
from service.storage.pages.freshness import FreshnessStatements
from service.storage.pages.listing import ListingStatements
from service.storage.pages.states import StateStatements
from service.storage.pages.validators import ValidatorStatements
from service.storage.queue.answers import AnswerStatements
from service.storage.queue.askers import AskerStatements
from service.storage.queue.contract import QueueStatements
from service.storage.queue.hosts import HostStatements
from service.storage.queue.hours import HoursStatements
from service.storage.queue.incidents import IncidentStatements
from service.storage.queue.signs import SignStatements
from service.storage.topics import Topic
from service.storage.webhooks.contract import WebhookStatements
from service.storage.webhooks.subscriptions import SubscriptionStatements


class Disk(NamedTuple):
    """A file system, bytes."""

    size: int
    free: int
    """Room that the process may use."""


class Transaction(
    HistoryStatements,
    MeasuredStatements,
    PageStatements,
    HoursStatements,
    HostStatements,
    IncidentStatements,
    StateStatements,
    CostStatements,
    QueueStatements,
    SignStatements,
    AskerStatements,
    AnswerStatements,
    ValidatorStatements,
    ListingStatements,
    FreshnessStatements,
    FeedStatements,
    LogStatements,
    ClockStatements,
    GroupHoursStatements,
    EpochStatements,
    ScheduleStatements,
    LoadStatements,
    WebhookStatements,
    SubscriptionStatements,
    AccessStatements,
    AcceptanceStatements,
    IncarnationStatements,
    PaceStatements,
    AllotmentStatements,
    OrderStatements,
    CapStatements,
    WorthStatements,
    StoppedStatements,
):
    """The statements of a store."""

    has_shards: ClassVar[bool] = False
    """True if ids begin with one of many logical shards, each with its own table of URL groups."""

    def of_host(self, host: str) -> "Transaction":
        """Return the transaction on the database of a host."""
        del host
        return self

    def by_database(self, page_id: Ints) -> Sequence[tuple["Transaction", Ints | slice]]:
        """Return the transactions on the databases of pages, and the rows of each."""
        del page_id
        return [(self, slice(None))]

    def shards_of(self, hosts: NDArray[np.object_]) -> Ints:
        """Return the logical shard of each of (N,) hosts."""
        return np.zeros(len(hosts), np.int64)


@contextmanager
def failing(check: str) -> Iterator[None]:
    """Add the name of the check to an error, unless an inner check has added its own."""
    try:
        yield
    except RecrawlError as error:
        error.extra = {"check": check, **error.extra}
        raise


class Store(ABC):
    """A database of pages, evidence and schedules, with its queue, hosts and subscriptions."""

    has_queue: ClassVar[bool] = True
    """False for a store for replays, which has neither queue nor hosts nor subscriptions."""
    embedded: ClassVar[bool] = False
    """True if one process is the whole service."""

    def prepare(self, *, existing: bool = False) -> None:  # noqa: B027 - an embedded store only
        """Migrate an embedded database; create it first unless it must be `existing`.

        Call `check` next, which compares the tables.
        """

    clock: Clock
    """Clock of all processes that share the database."""
    archive: LogArchive | None = None
    """The archive of log and feed; None: days older than the retention are deleted."""
    holds_new: bool = False
    """True where new pages wait until they are worth a first crawl (`budget.admission`)."""
    calendars: Calendars = ALWAYS_OPEN
    """When hosts may be crawled."""
    counter: Counter = Counter()
    """Receiver of the events that transactions count."""

    @property
    def name(self) -> str:
        """Name of one of several databases; "" for a single one."""
        return ""

    @property
    def parts(self) -> tuple["Store", ...]:
        """The stores of single databases: this store itself, or those of its databases.

        Work on all pages, such as a fill of the queue, runs part by part. So a part that is away
        holds up no other.
        """
        return (self,)

    def keep_time(self) -> None:  # noqa: B027 - nothing to do where the database keeps the time
        """Follow a step of the machine's clock; call this method about once a second."""

    def recognise(self) -> None:  # noqa: B027 - a store for replays is never restored
        """Begin a new incarnation of each database that was restored since the last call.

        Call this method before the first write, and about once a second.
        """

    def begin_incarnation(self) -> Sequence[Incarnation]:
        """Begin a new incarnation of each database, and return them.

        This is for a restore that no database can notice, such as a snapshot of a whole disk.
        """
        return ()

    @abstractmethod
    def begin(self, *, write: bool = True) -> AbstractContextManager[Transaction]:
        """Open a transaction; the end of the block commits it, an exception rolls it back."""

    def read_whole(self) -> AbstractContextManager[Transaction]:
        """Open a transaction that reads any number of pages, all as of one instant."""
        return self.begin(write=False)

    def rings(self, topic: Topic) -> int:
        """Return how often this process knows a topic to have rung (`Transaction.ring`)."""
        del topic
        return 0

    def writes_long(self) -> bool:
        """Return whether a transaction of this process may have waited long for other sessions."""
        return False

    def wait_for_keys(self, within_s: float, ended: threading.Event) -> None:
        """Return when keys may have changed, `ended` is set, or about `within_s` seconds passed."""
        ended.wait(within_s)

    def serving(self) -> AbstractContextManager[object]:
        """Keep other servers away where one alone may serve; raise `AlreadyServed`."""
        return nullcontext()

    @abstractmethod
    def lead(self) -> AbstractContextManager["Lead"]:
        """Take the lead of epochs; raise `EpochRunning` while another process has the lead."""

    @abstractmethod
    def archiving(self) -> AbstractContextManager["Lead"]:
        """Take the lead of archiving; raise `ArchiveRunning` while another process has it."""

    @abstractmethod
    def check(self) -> None:
        """Raise `StoreUnavailable` or a `StartupRefused` unless the store can serve."""

    def check_ready(self) -> Sequence[str]:
        """Raise an error unless the store can write; take about a second at most.

        The error's `check` names the part that failed: `connection`, `schema` or `writes`. Return
        the names of the databases that are away although the store serves the others.
        """
        self.check()
        return ()

    def disk(self) -> Disk | None:
        """Return the file system of an embedded database; None: the database has its own."""
        return None

    def abort(self) -> None:  # noqa: B027 - a store in memory never waits
        """End every wait for the database and refuse further work, because the process ends."""

    @abstractmethod
    def close(self) -> None:
        """Close the counter, then the connections."""


class Lead(ABC):
    """The right to run an epoch, held until its block is left."""

    @abstractmethod
    def begin(self, *, write: bool = True) -> AbstractContextManager[Transaction]:
        """Open a transaction; a transaction that writes commits only under the lead."""

    def write_schedule(self, epoch: int, schedule: ScheduleColumns) -> None:
        """Write the schedule of an epoch; others can write meanwhile."""
        with self.begin() as tx:
            tx.write_schedule(epoch, schedule)

    def allow(self, epoch: int, attempt: int) -> None:  # noqa: B027 - of several databases only
        """From now on, allow only this attempt of an epoch to write schedules."""

    def housekeep(self, keep_log_since: datetime | None, now: datetime) -> None:
        """Keep house (`Transaction.housekeep`); others can write meanwhile."""
        with self.begin() as tx:
            tx.housekeep(keep_log_since, now)

    def seal_log(self, before: datetime) -> None:  # noqa: B027 - on Postgres only
        """Set the log of days before an instant aside for the archive, as far as locks permit."""
