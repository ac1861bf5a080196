"""What every store promises. One test suite runs against each implementation.

**By value.** Columns go in and come out; a column of one value throughout may be read-only.
**Transactions.** All work happens inside `with store.begin(...) as tx`: leaving the block commits,
an exception rolls back. What one call returns is one snapshot. Use cases never commit.
**Durability.** What a block has committed survives a crash of the process and of the database.
**Locks.** Pages are locked until the transaction ends, in ascending page_id, so writers of the same
pages wait and never deadlock. Reads take no lock that a writer waits for.
**Epochs.** At every instant readers see one whole published epoch, or none before the first; a
transaction that writes keeps to one. Only the holder of `store.lead()` starts, publishes or fails
epochs; one that has silently lost the lead cannot publish (`LeadershipLost`).
**Subscriptions** to topics at WebSub hubs are in force from the hub's verification until the lease
ends. A verified one replaces earlier ones at the same hub. Nobody guesses ids: they entitle hubs.
**Time.** All who share a database go by one clock: Postgres's, or that of SQLite's one process.
**Errors.** `StoreUnavailable`, `StoreFull` (no room), `SchemaBehind` and `SchemaAhead` mean that
nothing of the transaction was kept.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from typing import Any, ClassVar, NamedTuple

from numpy.typing import NDArray

from service.model.arrays import Bools, Instants, Ints, Keys, UrlGroupRates
from service.model.columns import (
    CapColumns,
    EpochColumns,
    EvidenceColumns,
    LogColumns,
    PageColumns,
    PageStates,
    ScheduleChanges,
    ScheduleColumns,
    SchedulePart,
    StoredPages,
)
from service.model.domain import (
    Certificate,
    Epoch,
    LogEntry,
    Page,
    PagePatch,
    ScheduleFilter,
    Subscription,
)
from service.model.errors import RecrawlError
from service.storage.clock import Clock
from service.storage.queue import HostStatements, QueueStatements

EPOCHS_KEPT = 2
"""Published epochs whose schedule is kept: a reader half-way through the last can finish it."""

EPOCHS_TOLD = 10_000
"""Maximum epochs whose record is kept: ten weeks of one every ten minutes."""

MOST_SCANNED = 100_000
"""Maximum page_ids that one reading of the schedule looks at, whatever its filter matches."""

GONE_CHECKS = 5
"""Checks of a gone page, after 1, 2, 4, … days, before it is retired."""


class Registered(NamedTuple):
    """(N,) the ids of the pages given, and which of them are new."""

    page_id: Ints
    created: Bools


class Brought(NamedTuple):
    """(N,) what another store knows of pages; their `states.page_id` is not read."""

    states: PageStates
    created_at: Instants
    """NaT: now."""

    def take(self, where: NDArray[Any]) -> "Brought":
        """Return the pages that a mask or an index array selects."""
        return Brought(self.states.take(where), self.created_at[where])


class Transaction(QueueStatements, HostStatements):
    """The statements of a store."""

    clock: Clock
    """The store's time, as well as this process knows it."""

    def now(self) -> datetime:
        """Return the store's time: on Postgres the database's, read in this transaction."""
        return self.clock()

    # -- pages

    @abstractmethod
    def register(
        self, pages: PageColumns, now: datetime, brought: Brought | None = None
    ) -> Registered:
        """Insert the pages whose key is new, change of the others what the caller said.

        The new ones get the states that were brought; `pages` say their observability.
        """

    @abstractmethod
    def page_ids(self, key: Keys) -> Ints:
        """Return the page_id of each key, 0 where no page has it."""

    @abstractmethod
    def page(self, page_id: int) -> Page:
        """Return one page; raises `PageNotFound`."""

    @abstractmethod
    def change_page(self, page_id: int, patch: PagePatch, now: datetime) -> None:
        """Change one page; `complete` starts a new count of pings. Raises `PageNotFound`."""

    @abstractmethod
    def delete_page(self, page_id: int) -> None:
        """Delete a page, its state and log; schedules no longer show it. Raises `PageNotFound`."""

    @abstractmethod
    def page_log(self, page_id: int, limit: int) -> list[LogEntry]:
        """Return the newest entries of a page's log, newest first."""

    # -- observations

    @abstractmethod
    def lock_states(self, page_id: Ints, *, scheduled: bool = False) -> PageStates:
        """Read and lock the states of these pages (ascending, unique); unknown ids are left out.

        The rates in force are NaN unless `scheduled` asks for them, which costs as much again.
        """

    @abstractmethod
    def save_states(self, states: PageStates) -> None:
        """Write back states that this transaction has locked."""

    @abstractmethod
    def wake(self, page_id: Ints, now: datetime) -> Ints:
        """Have the retired among these pages crawled once more, from now on; return them.

        It locks states: in a transaction that has locked none before.
        """

    @abstractmethod
    def clear_estimates(self, page_id: Ints) -> None:
        """Set the estimates of these pages to zeros of this store's width, whatever they were."""

    @abstractmethod
    def append_log(self, entries: LogColumns) -> None:
        """Append to the observation log."""

    @abstractmethod
    def log_of(self, page_id: Ints) -> LogColumns:
        """Return the whole kept log of these pages, ordered by page_id and time."""

    @abstractmethod
    def evidence_of(self, page_id: Ints) -> EvidenceColumns:
        """Return what the kept log of these pages is evidence of, ordered by page_id and time."""

    # -- pages that move between stores

    @abstractmethod
    def read_pages(self, after: int, limit: int) -> tuple[StoredPages, PageStates]:
        """Return the next pages above `after`, ascending, and states without rates in force."""

    @abstractmethod
    def restore_states(self, states: PageStates) -> None:
        """Write locked states whole."""

    # -- epochs

    @abstractmethod
    def request_epoch(self, now: datetime) -> Epoch:
        """Ask for an epoch; if one is already asked for, that one is returned."""

    @abstractmethod
    def start_epoch(self, now: datetime) -> Epoch:
        """Mark the requested epoch (or a new one) as running, and runs that died as failed."""

    @abstractmethod
    def fail_epoch(self, epoch: int, reason: str, now: datetime) -> None:
        """Record why an epoch failed; the schedule in force stays."""

    @abstractmethod
    def load_columns(self) -> EpochColumns:
        """Return what an epoch reads of every page, as of one instant; what is gone is worth 0."""

    @abstractmethod
    def load_caps(self) -> CapColumns:
        """Return the hosts whose crawls a day are capped, alone or with their group."""

    @abstractmethod
    def write_schedule(self, epoch: int, schedule: ScheduleColumns) -> None:
        """Write the schedule of an epoch, which no reader sees before `publish`.

        `Lead.write_schedule` does it beside other writers.
        """

    @abstractmethod
    def publish(
        self,
        epoch: int,
        certificate: Certificate,
        now: datetime,
        url_group_rate: UrlGroupRates | None = None,
    ) -> None:
        """Put a schedule in force, whole; in a transaction after the one that wrote it.

        In the same one, a reader on Postgres could learn of the epoch before its rows.
        """

    @abstractmethod
    def url_group_rate(self, epoch: int) -> UrlGroupRates | None:
        """Return what was published of the URL groups; None where nothing is kept."""

    @abstractmethod
    def epoch(self, epoch: int) -> Epoch:
        """Return one epoch; raises `EpochNotFound`."""

    @abstractmethod
    def number_in_force(self) -> int:
        """Return the number of the newest published epoch, 0 before the first."""

    @abstractmethod
    def epoch_in_force(self) -> Epoch | None:
        """Return the newest published epoch."""

    @abstractmethod
    def newest_epoch(self) -> Epoch | None:
        """Return the epoch asked for or started last, whatever became of it."""

    @abstractmethod
    def epochs(self, before: int | None, limit: int) -> list[Epoch]:
        """Return epochs newest first, those below `before` if given."""

    # -- schedule; `leases.due` decides when its pages are due

    @abstractmethod
    def schedule(self, epoch: int, after: int, limit: int, only: ScheduleFilter) -> SchedulePart:
        """Return rows of a kept epoch with page_id > after, ascending, at most `limit`.

        At most `MOST_SCANNED` page_ids are looked at: a part with fewer rows, even none, may not be
        the last. Raises `CursorExpired` when that epoch is no longer kept.
        """

    @abstractmethod
    def schedule_changes(
        self, epoch: int, since: int, min_change: float, after: int, limit: int
    ) -> ScheduleChanges:
        """Return the rows of `schedule` that are new or have changed since an epoch.

        Changed is a crawl rate, crawl rate times urgency or crawl probability whose larger value
        over the smaller is more than 1 + min_change. Pages are removed between `after` and the next
        part. Raises `EpochNotKept` when `since` is not kept, `CursorExpired` when `epoch` is not.
        """

    # -- subscriptions

    @abstractmethod
    def add_subscription(self, subscription: Subscription) -> None:
        """Insert a subscription."""

    @abstractmethod
    def subscriptions(self, after: str, limit: int) -> list[Subscription]:
        """Return subscriptions with id > after, ascending, at most `limit`."""

    @abstractmethod
    def subscription(self, subscription_id: str) -> Subscription:
        """Return one; raises `SubscriptionNotFound`."""

    @abstractmethod
    def verify_subscription(
        self, subscription_id: str, now: datetime, expires_at: datetime | None
    ) -> None:
        """Put one in force, and delete earlier ones to the same topic at the same hub."""

    @abstractmethod
    def end_subscription(self, subscription_id: str) -> None:
        """Take one out of force; its row stays."""

    @abstractmethod
    def delete_subscription(self, subscription_id: str) -> None:
        """Delete one; raises `SubscriptionNotFound`."""

    # -- the store itself

    @abstractmethod
    def estimator(self) -> str | None:
        """Return the name of the estimator whose states are stored; None in a new store."""

    @abstractmethod
    def set_estimator(self, name: str) -> None:
        """Record whose states are stored."""

    @abstractmethod
    def next_page_ids(self, after: int, limit: int) -> Ints:
        """Return the next page_ids above `after`, ascending."""

    @abstractmethod
    def housekeep(self, keep_log_since: datetime | None, now: datetime) -> None:
        """Make room ahead in the log; drop old schedules and what the log need not keep.

        Nothing since `keep_log_since` is dropped; what is older may stay for up to a month.
        `Lead.housekeep` does it beside other writers.
        """


ENDED = "this process ends; send this again, to another one or when it is back"
"""Detail of `StoreUnavailable` once a store has been aborted."""


@contextmanager
def failing(check: str) -> Iterator[None]:
    """Name the check that raises a condition, unless an inner one has been named."""
    try:
        yield
    except RecrawlError as error:
        error.extra = {"check": check, **error.extra}
        raise


class Store(ABC):
    """A database of pages, evidence and schedules, with its queue, hosts and subscriptions."""

    has_queue: ClassVar[bool] = True
    """False of a store for replays: it has neither queue nor hosts nor subscriptions."""
    embedded: ClassVar[bool] = False
    """Whether one process is the whole service."""

    def prepare(self, *, existing: bool = False) -> None:  # noqa: B027 - an embedded store only
        """Make an embedded database, unless it is to be `existing`, and bring it up to date."""

    clock: Clock
    """The one source of time of all who share the database."""

    def keep_time(self) -> None:  # noqa: B027 - nothing to do where another keeps the time
        """Follow the clock that is the source, where it was set; call it every second or so."""

    @abstractmethod
    def begin(self, *, write: bool = True) -> AbstractContextManager[Transaction]:
        """Open a transaction: committed when the block is left, rolled back by an exception."""

    @abstractmethod
    def lead(self) -> AbstractContextManager["Lead"]:
        """Take the lead of epochs; raises `EpochRunning` while another process has it."""

    @abstractmethod
    def check(self) -> None:
        """Raise `StoreUnavailable` or a `StartupRefused` unless the store can serve."""

    def check_ready(self) -> None:
        """Raise what keeps this store from taking a write, within about a second.

        The condition's `check` names what failed: `connection`, `schema` or `writes`.
        """
        self.check()

    def abort(self) -> None:  # noqa: B027 - a store in memory never waits
        """End every wait for the database, and begin nothing more: the process ends."""

    @abstractmethod
    def close(self) -> None:
        """Close the connections."""


class Lead(ABC):
    """The right to run an epoch, held until its block is left."""

    @abstractmethod
    def begin(self, *, write: bool = True) -> AbstractContextManager[Transaction]:
        """Open a transaction; one that writes commits only while the lead is still held."""

    def write_schedule(self, epoch: int, schedule: ScheduleColumns) -> None:
        """Write the schedule of an epoch; others write meanwhile."""
        with self.begin() as tx:
            tx.write_schedule(epoch, schedule)

    def housekeep(self, keep_log_since: datetime | None, now: datetime) -> None:
        """Keep house; others write meanwhile."""
        with self.begin() as tx:
            tx.housekeep(keep_log_since, now)
