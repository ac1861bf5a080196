"""Achievements in steps of ten minutes: sums of commits, and rows of the history."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec
import numpy as np
import zstandard
from numpy.typing import NDArray

from service.core.calibration import N_BINS, CalibrationSums
from service.model.arrays import UNIX_ZERO, Ints, distinct

STEP = timedelta(minutes=10)
"""Length of a step."""
ALL_HOSTS = 0
"""host_id of the row of all pages."""
MOST_HOSTS = 1_000
"""Maximum number of hosts with a row of their own in a step, the busiest."""
LARGE = 1_000
"""Size from which sums are compressed, bytes."""

COUNTS = (
    "n_leased",
    "n_reported",
    "n_failed",
    "n_changed",
    "n_wasted",
    "n_pings",
    "n_true_pings",
    "n_false_pings",
    "n_missed",
    "n_taught_nothing",
    "spent",
    "n_late",
)
"""Counts of a step, by their names in tables and answers; `spent` in fine units of the budget.

`n_late` has the crawls that were reported in the step and count in an earlier one. Those that count
in the step and were reported later are subtracted. It is in no answer.
"""
COUNTED_PAGES = (
    "n_pages",
    "n_never_crawled",
    "n_stopped",
    "n_no_content",
    "n_overdue",
    "n_paused_by_trouble",
    "n_paused_by_operator",
)
"""Numbers of pages and of paused hosts at the end of a step."""
GAUGES = (
    "bandwidth",
    "asked_rate",
    "fresh_share",
    "fresh_share_plain",
    "harmonic_staleness",
    "harmonic_staleness_plain",
    "sampled_share",
)
"""Shares and rates at the end of a step."""

Calibrations = Mapping[str, CalibrationSums]
"""Sums of predictions by the estimator that made them."""


def step_of(at: datetime) -> datetime:
    """Return the start of the step of an instant.

    >>> from datetime import UTC
    >>> step_of(datetime(2026, 5, 1, 12, 19, 59, tzinfo=UTC)).isoformat()
    '2026-05-01T12:10:00+00:00'
    """
    return at - (at - UNIX_ZERO) % STEP


@dataclass(frozen=True, slots=True)
class Tally:
    """Sums of a commit, or of many: counts of (H,) hosts, and predictions against outcomes."""

    host_id: Ints
    """(H,) hosts, ascending."""
    counts: NDArray[np.int64]
    """(H, len(COUNTS)) counts of each host."""
    calibrations: Calibrations = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        host_id: Ints,
        columns: Mapping[str, NDArray[np.generic]],
        calibrations: Calibrations | None = None,
    ) -> "Tally":
        """Return the sums of (N,) events of hosts; `columns` has numbers or masks by count."""
        hosts = distinct(host_id)
        row, n = hosts.searchsorted(host_id), len(hosts)
        counts = np.zeros((n, len(COUNTS)), np.int64)
        for name, column in columns.items():
            counts[:, COUNTS.index(name)] = np.rint(np.bincount(row, column, n))
        return cls(hosts, counts, calibrations or {})

    @classmethod
    def merged(cls, parts: Iterable["Tally"]) -> "Tally":
        """Return the sums of all parts."""
        parts = list(parts)
        hosts, row = np.unique(
            np.concatenate([part.host_id for part in parts] or [np.zeros(0, np.int64)]),
            return_inverse=True,
        )
        counts = np.zeros((len(hosts), len(COUNTS)), np.int64)
        if parts:
            np.add.at(counts, row, np.concatenate([part.counts for part in parts]))
        return cls(hosts, counts, merged_calibrations(part.calibrations for part in parts))

    def busiest(self, most: int = MOST_HOSTS) -> "Tally":
        """Return the hosts with the most leases, reports and pings, at most `most`."""
        if len(self.host_id) <= most:
            return self
        busy = sum(self.counts[:, COUNTS.index(n)] for n in ("n_leased", "n_reported", "n_pings"))
        keep = np.sort(np.lexsort((self.host_id, -np.asarray(busy)))[:most])
        return Tally(self.host_id[keep], self.counts[keep], self.calibrations)


def merged_calibrations(parts: Iterable[Calibrations]) -> dict[str, CalibrationSums]:
    """Return the sums of all parts, by estimator."""
    sums: dict[str, CalibrationSums] = {}
    for part in parts:
        for estimator, more in part.items():
            sums[estimator] = sums[estimator].plus(more) if estimator in sums else more
    return sums


NARROW, WIDE, LIMIT = "<u4", "<i8", 2**32
"""Types of packed counts, and the number from which the wide one is needed."""


class _PackedTally(msgspec.Struct, array_like=True):
    hosts: bytes
    """Differences of ascending host_ids."""
    counted: bytes
    """Rows of `COUNTS` that are not 0 for all hosts."""
    counts: bytes
    calibrations: dict[str, bytes]


def packed(tally: Tally) -> bytes:
    """Return sums in bytes."""
    counted = np.flatnonzero(tally.counts.any(axis=0))
    is_narrow = tally.counts.min(initial=0) >= 0 and tally.counts.max(initial=0) < LIMIT
    kind = NARROW if is_narrow else WIDE
    own = _PackedTally(
        np.diff(tally.host_id, prepend=0).astype("<i8").tobytes(),
        counted.astype(np.uint8).tobytes(),
        tally.counts.T[counted].astype(kind).tobytes(),
        {name: packed_calibration(sums) for name, sums in tally.calibrations.items()},
    )
    content = msgspec.msgpack.encode(own)
    if len(content) < LARGE:
        return b"\0" + content
    return b"\1" + zstandard.compress(content, level=1)


def unpacked(content: bytes) -> Tally:
    """Return sums from their bytes."""
    plain = content[1:] if content[:1] == b"\0" else zstandard.decompress(content[1:])
    own = msgspec.msgpack.decode(plain, type=_PackedTally)
    hosts = np.cumsum(np.frombuffer(own.hosts, "<i8"))
    counted = np.frombuffer(own.counted, np.uint8)
    counts = np.zeros((len(hosts), len(COUNTS)), np.int64)
    narrow = len(own.counts) == np.dtype(NARROW).itemsize * len(counted) * len(hosts)
    numbers = np.frombuffer(own.counts, NARROW if narrow else WIDE)
    counts[:, counted] = numbers.reshape(len(counted), len(hosts)).T
    sums = {name: unpacked_calibration(packed) for name, packed in own.calibrations.items()}
    return Tally(hosts, counts, sums)


def packed_calibration(sums: CalibrationSums) -> bytes:
    """Return the bins that have predictions, in bytes."""
    at = np.flatnonzero(sums.n)
    columns = at, sums.n[at], sums.sum_predicted[at], sums.n_changed[at]
    numbers = np.concatenate([[sums.sum_log_loss], *columns])
    return numbers.astype("<f8").tobytes()


def unpacked_calibration(content: bytes) -> CalibrationSums:
    """Return the sums of bins from their bytes."""
    numbers = np.frombuffer(content, "<f8")
    at, *columns = numbers[1:].reshape(4, -1)
    n, predicted, changed = (np.bincount(at.astype(np.int64), column, N_BINS) for column in columns)
    return CalibrationSums(
        n.astype(np.int64),
        np.asarray(predicted, np.float64),
        changed.astype(np.int64),
        float(numbers[0]),
    )


class HostEvents(NamedTuple):
    """(N,) events of one kind."""

    name: str
    """Name of their count."""
    host_id: Ints

    def tally(self) -> Tally:
        """Return the sums."""
        return Tally.of(self.host_id, {self.name: np.ones(len(self.host_id), np.bool_)})


class StepSums(NamedTuple):
    """Sums of commits of one step and epoch."""

    at: datetime
    """Start of the step."""
    epoch: int
    """Epoch in force; 0: none."""
    tally: Tally


def merged_parts(parts: Iterable[StepSums]) -> list[StepSums]:
    """Return one part for each step and epoch, in their order."""
    by_key: dict[tuple[datetime, int], list[Tally]] = defaultdict(list)
    for part in parts:
        by_key[part.at, part.epoch].append(part.tally)
    return [StepSums(*key, Tally.merged(tallies)) for key, tallies in sorted(by_key.items())]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauges:
    """State of pages at the end of a step."""

    measured_at: datetime
    n_pages: int
    """Pages that are not gone."""
    n_never_crawled: int
    n_no_content: int | None
    """Pages without content in their last crawls (`outcomes.lacks_content`); None: measured before
    they were counted."""
    n_overdue: int
    """Pages that were due before."""
    n_paused_by_trouble: int
    n_paused_by_operator: int
    bandwidth: float | None
    """Crawls a day of the epoch in force; None before the first, and for hosts."""
    asked_rate: float
    """Crawls a day at which pages fall due."""
    fresh_share: float | None
    """Expected share of pages whose copy is up to date, by importance; None without importance,
    and before a page has evidence (`model.known_shares`). Pages without content do not count in
    these four, because they have no share; nor do pages that wait in stopped URL groups."""
    fresh_share_plain: float | None
    """The same where all pages count alike; None without pages."""
    harmonic_staleness: float | None
    harmonic_staleness_plain: float | None
    sampled_share: float
    """Share of the pages that were measured."""
    n_assumed: int | None = None
    """Pages whose change rates are assumed; None: read from a row, which does not have them."""
    n_stopped: int | None = None
    """Pages never crawled that a rule, or the stop of their URL group, holds; None: measured before
    they were counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryStep:
    """A row of the history."""

    at: datetime
    """Start of the step."""
    epoch: int | None
    counts: tuple[int, ...]
    """Numbers in the order of `COUNTS`."""
    gauges: Gauges | None = None
    """None: nobody measured at the end of the step."""
