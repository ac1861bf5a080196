"""Epochs and what they learn: the contract, and the SQL that both databases share."""

from abc import abstractmethod
from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import zstandard
from numpy.typing import NDArray
from typing_extensions import override

from service.core.ping_feeds import PingFeeds
from service.core.shared_changes import ShareEvidence
from service.core.wide_revisions import WideRevisions
from service.model.amounts import CRAWLS
from service.model.arrays import UrlGroupRates
from service.model.columns import ChangeHours, GroupHours, GroupScreens
from service.model.domain import Certificate, Epoch, EpochStatus
from service.model.errors import EpochNotFound
from service.storage.dialect import KEPT, NUMBER_IN_FORCE, Subject, assignments
from service.storage.epochs.change_hours import ChangeHoursSql
from service.storage.epochs.group_hours import NO_RECORDS, NO_SCREENS, GroupHoursSql
from service.storage.epochs.schedule import MOST_PAGE_ID
from service.storage.topics import Topic

FLOATS, INTS = "<f4", "<i8"
"""Types of stored numbers."""
MOST_EPOCHS = 10_000
"""Maximum epochs whose record is kept: ten weeks of one every ten minutes."""


class GroupTables(NamedTuple):
    """Values that an epoch learnt about the URL groups of one logical shard."""

    url_group_rate: UrlGroupRates | None = None
    """Mean change rates of URL groups, 1/day."""
    share_evidence: ShareEvidence | None = None
    """Evidence of the shares of URL groups (`core.shared_changes`)."""
    wide_revisions: WideRevisions | None = None
    """Revisions of most pages of a host at once (`core.wide_revisions`)."""
    ping_feeds: PingFeeds | None = None
    """Pings of whole hosts (`core.ping_feeds`)."""


NO_TABLES = GroupTables()


class Learnt(NamedTuple):
    """Values that an epoch learnt from crawls, beside the estimates of pages."""

    of_shards: Mapping[int, GroupTables] = MappingProxyType({})
    """Tables of URL groups by logical shard; a store that was never sharded is shard 0."""
    change_hours: ChangeHours | None = None
    """Hosts that have learnt change hours; the evidence of others stays as it is."""
    group_hours: GroupHours = NO_RECORDS
    """URL groups of these hosts with evidence of their own."""
    group_screens: GroupScreens = NO_SCREENS
    """URL groups of these hosts whose screens have learnt."""


NOTHING = Learnt()


class EpochFailures(NamedTuple):
    """Epochs that failed since the one in force was published."""

    n: int = 0
    since: datetime | None = None
    """End of the first; None: none failed."""
    reason: str | None = None
    """Reason of the last."""


class EpochStatements(Subject):
    """The statements of epochs."""

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

        Raise `EpochNotFound` for an epoch that does not run, such as after a restore.
        """

    @abstractmethod
    def save_learnt(self, epoch: int, learnt: Learnt) -> None:
        """Write values that an epoch learnt, as `publish` does, before it is published.

        Change hours are in force at once. They learn each crawl once, whether the epoch is
        published.
        """

    @abstractmethod
    def url_group_rate(self, epoch: int, shard: int = 0) -> UrlGroupRates | None:
        """Return the rates of a logical shard's URL groups, 1/day; None if they are not kept."""

    @abstractmethod
    def share_evidence(self, epoch: int, shard: int = 0) -> ShareEvidence | None:
        """Return the evidence of shares (`core.shared_changes`); None if it is not kept."""

    @abstractmethod
    def wide_revisions(self, epoch: int) -> WideRevisions | None:
        """Return the wide revisions of all logical shards; None if there are none."""

    @abstractmethod
    def ping_feeds(self, epoch: int) -> PingFeeds:
        """Return the pings of hosts of all logical shards; of none, if they are not kept."""

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
    def epoch_failures(self) -> EpochFailures:
        """Return the epochs that failed since the newest published one."""

    @abstractmethod
    def epochs(self, before: int | None, limit: int) -> list[Epoch]:
        """Return epochs below `before`, newest first; None: the newest epochs."""


CERTIFICATE = tuple(Certificate.__dataclass_fields__)
OWN = tuple(name for name in Epoch.__dataclass_fields__ if name != "certificate")
COLUMNS = ", ".join((*OWN, *CERTIFICATE))

REQUEST = f"""
INSERT INTO epochs (status, requested_at) VALUES ('requested', %(now)s)
ON CONFLICT (status) WHERE status = 'requested' DO UPDATE SET status = excluded.status
RETURNING {COLUMNS}
"""
"""Statement that requests an epoch; it returns another caller's request if that one was first."""
WAITING = f"SELECT {COLUMNS} FROM epochs WHERE status = 'requested'"
START = f"""
UPDATE epochs SET status = 'running', started_at = %(now)s WHERE status = 'requested'
RETURNING {COLUMNS}
"""
START_UNASKED = f"""
INSERT INTO epochs (status, requested_at, started_at) VALUES ('running', %(now)s, %(now)s)
RETURNING {COLUMNS}
"""
FAIL = "UPDATE epochs SET status = 'failed', reason = %(reason)s, finished_at = %(now)s"
FAIL_RUNNING = f"{FAIL} WHERE status = 'running'"
FAIL_ONE = f"{FAIL} WHERE epoch = %(epoch)s"
PUBLISH = f"""
UPDATE epochs SET status = 'published', finished_at = %(now)s, {assignments(CERTIFICATE)}
WHERE epoch = %(epoch)s AND status = 'running'
RETURNING epoch
"""
ADD_URL_GROUPS = """
INSERT INTO url_groups (epoch, shard, rate, share_evidence, wide_revisions, ping_feeds)
VALUES (
    %(epoch)s, %(shard)s, %(rate)s, %(share_evidence)s, %(wide_revisions)s, %(ping_feeds)s
)
"""
WITHDRAW_URL_GROUPS = "DELETE FROM url_groups WHERE epoch = %(epoch)s"
WITHDRAW_SCHEDULE = "DELETE FROM schedule WHERE epoch = %(epoch)s"
DROP_URL_GROUPS = f"DELETE FROM url_groups WHERE epoch NOT IN ({KEPT})"
DROP_EPOCHS = """
DELETE FROM epochs WHERE epoch <= (
    SELECT epoch FROM epochs ORDER BY epoch DESC LIMIT 1 OFFSET %(kept)s
)
"""
"""Statement that counts records, because numbers are not consecutive after a restore."""
URL_GROUP_RATE = "SELECT rate FROM url_groups WHERE epoch = %(epoch)s AND shard = %(shard)s"
SHARE_EVIDENCE = """
SELECT share_evidence FROM url_groups WHERE epoch = %(epoch)s AND shard = %(shard)s
"""
WIDE_REVISIONS = """
SELECT wide_revisions FROM url_groups
WHERE epoch = %(epoch)s AND wide_revisions IS NOT NULL
"""
PING_FEEDS = """
SELECT ping_feeds FROM url_groups WHERE epoch = %(epoch)s AND ping_feeds IS NOT NULL
"""
ONE = f"SELECT {COLUMNS} FROM epochs WHERE epoch = %(epoch)s"
IN_FORCE = f"SELECT {COLUMNS} FROM epochs WHERE status = 'published' ORDER BY epoch DESC LIMIT 1"
NEWEST = f"SELECT {COLUMNS} FROM epochs ORDER BY epoch DESC LIMIT 1"
FAILURES = f"""
SELECT finished_at, reason FROM epochs
WHERE status = 'failed' AND epoch > coalesce(({NUMBER_IN_FORCE}), 0) ORDER BY epoch
"""
BEFORE = f"""
SELECT {COLUMNS} FROM epochs WHERE epoch < %(before)s ORDER BY epoch DESC LIMIT %(limit)s
"""


class EpochsSql(ChangeHoursSql, GroupHoursSql, EpochStatements):
    """The statements on epochs that Postgres and SQLite share."""

    @override
    def request_epoch(self, now: datetime) -> Epoch:
        return self._epoch(WAITING) or self._written(REQUEST, now=now)

    @override
    def start_epoch(self, now: datetime) -> Epoch:
        self.run(FAIL_RUNNING, reason="its process ended before it published", now=now)
        return self._epoch(START, now=now) or self._written(START_UNASKED, now=now)

    @override
    def fail_epoch(self, epoch: int, reason: str, now: datetime) -> None:
        self.run(FAIL_ONE, epoch=epoch, reason=reason, now=now)

    @override
    def publish(
        self,
        epoch: int,
        certificate: Certificate,
        now: datetime,
        learnt: Learnt = NOTHING,
    ) -> None:
        values = {name: getattr(certificate, name) for name in CERTIFICATE}
        if self.scalar(PUBLISH, epoch=epoch, now=now, **values) is None:
            raise EpochNotFound(f"epoch {epoch} does not run: the database was restored meanwhile")
        self.save_learnt(epoch, learnt)
        self.run(DROP_URL_GROUPS)
        self.run(DROP_EPOCHS, kept=MOST_EPOCHS)
        self.ring(Topic.orders)

    @override
    def withdraw(self, epoch: int) -> None:
        self.run(WITHDRAW_URL_GROUPS, epoch=epoch)
        self.run(WITHDRAW_SCHEDULE, epoch=epoch)

    @override
    def save_learnt(self, epoch: int, learnt: Learnt) -> None:
        for shard, tables in learnt.of_shards.items():
            evidence, revisions, feeds = tables[1:]
            values = {
                "rate": _compressed(tables.url_group_rate, FLOATS),
                "share_evidence": _compressed(evidence and evidence.packed(), FLOATS),
                "wide_revisions": _compressed(revisions and revisions.packed(), INTS),
                "ping_feeds": _compressed(feeds and feeds.packed(), INTS),
            }
            self.run(ADD_URL_GROUPS, epoch=epoch, shard=shard, **values)
        if learnt.change_hours is not None:
            self.save_change_hours(learnt.change_hours)
            self.save_groups(learnt.change_hours, learnt.group_hours, learnt.group_screens)

    @override
    def url_group_rate(self, epoch: int, shard: int = 0) -> UrlGroupRates | None:
        return _decompressed(self.scalar(URL_GROUP_RATE, epoch=epoch, shard=shard), FLOATS)

    @override
    def share_evidence(self, epoch: int, shard: int = 0) -> ShareEvidence | None:
        packed = _decompressed(self.scalar(SHARE_EVIDENCE, epoch=epoch, shard=shard), FLOATS)
        return None if packed is None else ShareEvidence.unpacked(packed)

    @override
    def wide_revisions(self, epoch: int) -> WideRevisions | None:
        packed = [_decompressed(each, INTS) for (each,) in self.run(WIDE_REVISIONS, epoch=epoch)]
        return WideRevisions.of_all(
            [WideRevisions.unpacked(each) for each in packed if each is not None]
        )

    @override
    def ping_feeds(self, epoch: int) -> PingFeeds:
        packed = [_decompressed(each, INTS) for (each,) in self.run(PING_FEEDS, epoch=epoch)]
        return PingFeeds.of_all(PingFeeds.unpacked(each) for each in packed if each is not None)

    @override
    def epoch(self, epoch: int) -> Epoch:
        one = self._epoch(ONE, epoch=epoch)
        if one is None:
            raise EpochNotFound(f"no epoch has the number {epoch}; GET /epochs lists them")
        return one

    @override
    def epoch_in_force(self) -> Epoch | None:
        return self._epoch(IN_FORCE)

    @override
    def newest_epoch(self) -> Epoch | None:
        return self._epoch(NEWEST)

    @override
    def epoch_failures(self) -> EpochFailures:
        rows = self.read(FAILURES)
        if not rows:
            return EpochFailures()
        return EpochFailures(len(rows), rows[0]["finished_at"], rows[-1]["reason"])

    @override
    def epochs(self, before: int | None, limit: int) -> list[Epoch]:
        last = MOST_PAGE_ID if before is None else before
        return [decode_epoch(row) for row in self.read(BEFORE, before=last, limit=limit)]

    def _epoch(self, statement: str, **parameters: Any) -> Epoch | None:
        rows = self.read(statement, **parameters)
        return decode_epoch(rows[0]) if rows else None

    def _written(self, statement: str, **parameters: Any) -> Epoch:
        (row,) = self.read(statement, **parameters)
        return decode_epoch(row)


def _compressed(numbers: NDArray[Any] | None, kind: str) -> bytes | None:
    if numbers is None:
        return None
    return zstandard.compress(numbers.astype(kind).tobytes(), level=1)


def _decompressed(packed: bytes | None, kind: str) -> NDArray[Any] | None:
    return None if packed is None else np.frombuffer(zstandard.decompress(packed), kind)


def decode_epoch(row: Mapping[str, Any]) -> Epoch:
    """Return the epoch in a row of `epochs`."""
    certificate = None
    if row["status"] == EpochStatus.published:
        values = {name: row[name] for name in CERTIFICATE}
        for name in ("crawl_rate_quantiles", "observed_ratios"):
            values[name] = tuple(map(float, values[name]))
        for name in ("age_evidence", "recalibration"):
            values[name] = tuple(map(float, values[name] or ()))
        losses = values["window_losses"] or ()
        # losses of an older release have no instant
        values["window_losses"] = tuple(
            (host, *map(float, (*each, "nan")[:4])) for host, *each in losses
        )
        slow = values["delay_losses"] or ()
        values["delay_losses"] = tuple((host, *map(float, each)) for host, *each in slow)
        demand = values["window_demand"] or ()
        values["window_demand"] = tuple((*texts, float(a_day)) for *texts, a_day in demand)
        for name in ("prior", "seconds"):  # JSON returns 1e22 as an integer
            values[name] = {key: float(value) for key, value in values[name].items()}
        values["unit"] = values["unit"] or CRAWLS  # NULL: of an older release
        certificate = Certificate(**values)
    own = {name: row[name] for name in OWN}
    return Epoch(**{**own, "status": EpochStatus(row["status"])}, certificate=certificate)
