"""A part of an epoch: the columns of one database, and what the epoch computes from them.

The unit of computing is the logical shard, which one database has whole. Each logical shard runs
the same stages on its own columns (`core.common_values`). Therefore no number depends on which
database has which logical shards. A store that was never sharded is one logical shard.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from service.core.age_evidence import AgeEvidence
from service.core.common_values import Contribution, Joint
from service.core.estimators.base import Estimator, from_columns
from service.core.ping_feeds import PingFeeds
from service.core.recalibration import Recalibration
from service.core.shared_changes import ShareEvidence
from service.core.twins import discounted_among
from service.core.wide_revisions import WideRevisions
from service.epochs.ages import UNLEARNT, learn_ages
from service.epochs.change_hours import Hours, learn_hours, load_hours
from service.epochs.group_tables import (
    FewRates,
    LearntHours,
    PartShare,
    SharedGroups,
    shared_groups,
)
from service.epochs.plan import Plan
from service.epochs.recalibration import NO_OUTCOMES, Outcomes, read_outcomes, recalibrated
from service.epochs.requests import NO_REQUESTS, RequestCounts, of_other_shards, read_requests
from service.epochs.solve import solve
from service.epochs.urgency import LastEpoch
from service.epochs.wide_revisions import revised
from service.epochs.windows import HostWindows, load_windows
from service.estimation.ages import at_ages
from service.estimation.estimates import doubted, estimate_rates, ping_feeds, rates_from_log
from service.estimation.rules import fitted_last
from service.model.arrays import SHARD_BITS, Floats, distinct, instant
from service.model.columns import (
    RARE,
    CapColumns,
    ChangeHours,
    EpochColumns,
    GroupHours,
    GroupScreens,
    ScheduleColumns,
)
from service.model.domain import Certificate, Epoch, Observability
from service.model.urls import n_buckets
from service.storage import Transaction
from service.storage.epochs.contract import GroupTables, Learnt
from service.storage.epochs.schedule_blocks import seldom, short


@dataclass(frozen=True, slots=True)
class Task:
    """The epoch that all parts compute."""

    plan: Plan
    last: Epoch | None
    """The epoch in force; None before the first."""
    at: datetime
    """Time of the epoch."""


class Run(NamedTuple):
    """One computation of an epoch."""

    epoch: int
    attempt: int = 0
    """Number of times that the epoch has begun anew after a loss of parts."""


class PartSource(Protocol):
    """The database of a part."""

    def load(self, task: Task) -> "dict[int, Input]":
        """Return the input of each logical shard, as of one instant."""

    def prepare(self, run: Run, schedule: ScheduleColumns, learnt: Learnt) -> None:
        """Write the schedule of an epoch and what it learnt; no reader sees the schedule yet."""


class Input(NamedTuple):
    """The columns of one logical shard."""

    pages: EpochColumns
    caps: CapColumns
    fitted: Estimator[Any]
    """The estimator with the prior in force."""
    evidence: ShareEvidence | None
    change_hours: Hours | None
    from_log: Floats | None
    """(N,) change rates for estimators that read the log."""
    requests: RequestCounts = NO_REQUESTS
    """Requests of the database; its first logical shard has them."""
    revisions: WideRevisions | None = None
    """Wide revisions that the last epoch knew; None: none."""
    windows: HostWindows | None = None
    """Windows of hosts; None: all are open at all times."""
    digest: NDArray[Any] | None = None
    """(N,) digests of pages whose twins and URL groups may be in other parts (`core.twins`); None:
    the shard is whole, and its twins are discounted."""
    outcomes: Outcomes = NO_OUTCOMES
    """Crawls since the last epoch, with what it had forecast."""


def load(tx: Transaction, task: Task) -> dict[int, Input]:
    """Return the input of a store that was never sharded, which is one logical shard."""
    return {0: with_tables(tx, task, read(tx, task, tx.load_columns()), 0)}


def load_divided(tx: Transaction, task: Task) -> dict[int, Input]:
    """Return the input of each logical shard of a database; of one, if it has no pages."""
    parts = divided(read(tx, task, tx.load_columns()))
    return {shard: with_tables(tx, task, part, shard) for shard, part in parts.items()}


def read(tx: Transaction, task: Task, pages: EpochColumns) -> Input:
    """Return the input of pages, without what the last epoch learnt about URL groups."""
    plan, last, caps = task.plan, task.last, tx.load_caps()
    change_hours = from_log = None
    if plan.with_change_hours:
        change_hours = load_hours(
            tx, pages, last, instant(task.at), plan.host_delay_s, with_groups=plan.group_hours
        )
    if plan.estimator.needs_history:
        from_log = rates_from_log(tx, pages.page_id, plan.estimator)
    requests = read_requests(tx, last, task.at)
    revisions = None if last is None else tx.wide_revisions(last.epoch)
    windows = load_windows(tx, pages.host_id, plan.host_delay_s)
    others = requests, revisions, windows
    return Input(pages, caps, plan.estimator, None, change_hours, from_log, *others)


def with_tables(tx: Transaction, task: Task, part: Input, shard: int) -> Input:
    """Return an input with what the last epoch learnt about the URL groups of a logical shard."""
    last = task.last
    fitted = fitted_last(tx, task.plan.estimator, last, shard)
    return part._replace(
        fitted=fitted,
        evidence=None if last is None else tx.share_evidence(last.epoch, shard),
        outcomes=read_outcomes(tx, part.pages, fitted, last, instant(task.at)),
    )


def divided(whole: Input) -> dict[int, Input]:
    """Return the columns of each logical shard, as views."""
    ids = whole.pages.page_id
    # ids ascend, so the first and the last one show whether there are several
    shards = distinct(ids[:: max(len(ids) - 1, 1)] >> SHARD_BITS)
    if len(shards) <= 1:
        return {int(shards[0]) if len(shards) else 0: whole}
    parts = {shard: _part(whole, shard) for shard in distinct(ids >> SHARD_BITS).tolist()}
    for shard in sorted(parts)[1:]:
        parts[shard] = parts[shard]._replace(requests=of_other_shards(whole.requests))
    return parts


def _part(whole: Input, shard: int) -> Input:
    row = within(whole.pages.page_id, shard)
    change_hours, revisions = whole.change_hours, whole.revisions
    windows = whole.windows
    if windows is not None:
        windows = windows.where(within(windows.host_id, shard))
    if change_hours is not None:
        lesson = change_hours.lesson
        own = within(lesson.host_id, shard)
        change_hours = change_hours._replace(
            hosts=_cut(change_hours.hosts, "host_id", shard),
            shifts=_cut(change_hours.shifts, "page_id", shard),
            learnt=_cut(change_hours.learnt, "host_id", shard),
            lesson=lesson.where(own)._replace(row=lesson.row[own] - row.start),
            groups=_cut(change_hours.groups, "host_id", shard),
            records=_cut(change_hours.records, "host_id", shard),
            screens=_cut(change_hours.screens, "host_id", shard),
        )
    return whole._replace(
        pages=whole.pages.take(row),
        caps=_cut(whole.caps, "host_id", shard),
        change_hours=change_hours,
        from_log=None if whole.from_log is None else whole.from_log[row],
        revisions=None if revisions is None else revisions.where(within(revisions.host_id, shard)),
        windows=windows,
    )


def within(ids: Any, shard: int) -> slice:
    """Return the place of the ids of a logical shard among ascending ids."""
    first, last = ids.searchsorted([shard << SHARD_BITS, (shard + 1) << SHARD_BITS]).tolist()
    return slice(first, last)


def _cut(columns: Any, name: str, shard: int) -> Any:
    return columns.take(within(getattr(columns, name), shard))


def refit(
    estimator: Estimator[Any],
    pages: EpochColumns,
    last: Estimator[Any] | None = None,
    n_groups: int | None = None,
) -> Joint[Estimator[Any]]:
    """Return the estimator with its prior fitted to the pages that are not `complete`.

    Pages without importance do not count, nor do pages that are gone. `n_groups` is the number of
    buckets of URL groups; None: by the number of pages.
    """
    if estimator.needs_history:
        return estimator
    counted = (pages.observability != Observability.complete) & (pages.importance > 0)
    state = from_columns(estimator, pages.estimate[counted])
    groups = pages.url_group[counted], n_groups or n_buckets(len(pages))
    if estimator.aging is not None and not counted.all():
        estimator = estimator.of_ages(estimator.aging.take(np.flatnonzero(counted)))
    fitted: Estimator[Any] = yield from estimator.fitted(state, *groups, last)
    return fitted


EVIDENCE = (
    "n_pings",
    "recent_pings",
    "pings_since",
    "last_ping_at",
    "real_pings",
    "false_pings",
    "trust",
    "last_age",
)
"""Columns that only estimates need, beside `estimate`; one value for all pages takes no memory."""


def without_evidence(pages: EpochColumns) -> EpochColumns:
    """Return pages as an allocation needs them."""
    n = len(pages)
    none: dict[str, NDArray[Any]] = {name: np.broadcast_to(RARE[name], n) for name in EVIDENCE}
    return replace(pages, estimate=np.broadcast_to(0.0, (n, 1)), **none)


class Stages:
    """The stages of an epoch on the columns of one logical shard.

    A stage frees what no later stage needs, because a process has all of its parts in memory.
    """

    prior: dict[str, float]
    """Numbers of the fit."""
    recalibration: Recalibration
    ages: AgeEvidence | None
    """Evidence of the age profile; None: none is learnt."""
    rates: FewRates | None = None
    change_hours: LearntHours | None = None
    """Hosts and URL groups that have learnt change hours."""
    evidence: ShareEvidence | None = None
    revisions: WideRevisions | None = None
    shared: SharedGroups | None = None
    """Buckets of URL groups that parts have in common; None: the shard is whole."""
    feeds: PingFeeds
    schedule: ScheduleColumns

    def __init__(self, task: Task, columns: Input) -> None:
        self.task, self.now = task, instant(task.at)
        self.loaded = columns
        self.problem: tuple[Any, ...] = ()
        """Arguments of `solve`, between the stages."""

    def estimate(self) -> Joint[int]:
        """Estimate change rates and change hours; return the number of all pages."""
        pages, caps, fitted, evidence, change_hours, from_log, requests = self.loaded[:7]
        revisions, windows, digest, outcomes = self.loaded[7:]
        del self.loaded
        plan, last, n_groups = self.task.plan, self.task.last, None
        if digest is not None:
            worth = yield from discounted_among(pages.importance, digest)
            pages, digest = replace(pages, importance=worth), None
            self.shared = yield from shared_groups(pages)
            evidence, n_groups = self.shared.evidence(evidence), len(self.shared.n_own)
        learnt = UNLEARNT
        if plan.ages:
            learnt = yield from learn_ages(pages, fitted, last, self.now)
        aged = at_ages(plan.estimator.with_profile(learnt.profile), pages, self.now)
        estimator = yield from refit(aged, pages, fitted, n_groups)
        estimator = estimator.with_profile(aged.profile).of_ages(aged.aging)
        self.ages = learnt.evidence
        self.recalibration = yield from recalibrated(outcomes, last, self.now)
        self.feeds = ping_feeds(pages, self.now)
        estimates = estimate_rates(pages, estimator, self.now, from_log, self.feeds)
        if change_hours is not None:
            change_hours = learn_hours(pages, estimator, change_hours, last, self.now)
            self.change_hours = (
                change_hours.learnt,
                change_hours.records,
                change_hours.screens,
            )
        hazard = None
        if plan.with_urgency and plan.wide_revisions:
            began = LastEpoch.of(last).started_at
            self.revisions, hazard = revised(pages, estimator, revisions, began, self.now)
        self.prior, self.rates = estimator.corpus(), FewRates.of(estimator)
        limits = last, caps, self.now, evidence, change_hours, requests, hazard, learnt.profile
        posterior = doubted(pages, estimator, estimates, self.now)
        others = n_groups, posterior, windows
        self.problem = without_evidence(pages), estimates, plan, *limits, *others
        return len(pages)

    def allocate(self) -> Joint[Certificate]:
        """Allocate the bandwidth; return the certificate of all parts."""
        problem, self.problem = solve(*self.problem), ()
        self.schedule, certificate, self.evidence = yield from problem
        packed = () if self.ages is None else tuple(self.ages.packed().tolist())
        line = tuple(self.recalibration)
        return replace(certificate, prior=self.prior, age_evidence=packed, recalibration=line)

    def tables(self) -> GroupTables:
        """Return what the epoch learnt about URL groups."""
        rates = None if self.rates is None else self.rates.whole()
        feeds = self.feeds if self.feeds.host_id.size else None
        return GroupTables(rates, self.evidence, self.revisions, feeds)


STRETCH = 1 << 16
"""Pages of a part between two page_ids that the leader learns."""


class Contributions(NamedTuple):
    """The answer of a part to a question of the leader."""

    shards: tuple[int, ...]
    """Logical shards of the values, ascending."""
    values: tuple[Any, ...]
    """Share of each logical shard in the common value, or at the end of a stage its result."""
    combine: Callable[[Sequence[Any]], Any] | None
    """As in `core.common_values.Contribution`; None at the end of a stage."""
    own_reply: bool = False
    exact: bool = False


class EpochPart:
    """The part of an epoch that one process computes."""

    def __init__(self, source: PartSource, task: Task) -> None:
        self.source, self.task = source, task
        self.inputs: dict[int, Input] = {}
        self.stages: dict[int, Stages] = {}
        self.running: dict[int, Joint[Any]] = {}

    def load(self) -> int:
        """Read the columns, unless no stage has begun yet; return the number of pages."""
        self.inputs = self.inputs or self.source.load(self.task)
        return sum(len(part.pages) for part in self.inputs.values())

    def census(self, takes_part: bool) -> None:  # noqa: FBT001 - a question has no keywords
        """Begin the epoch from the columns that were loaded; a part without pages may stay out."""
        self.running, self.stages = {}, {}
        if takes_part:
            self.stages = {n: Stages(self.task, part) for n, part in self.inputs.items()}
        self.inputs = {}  # each stage frees what it no longer needs; another attempt loads again

    def begin(self, stage: str) -> Contributions:
        """Begin a stage of all logical shards; return their first shares in a common value."""
        self.running = {n: getattr(stages, stage)() for n, stages in self.stages.items()}
        return self.resume(None)

    def resume(self, reply: Any, each: dict[int, Any] | None = None) -> Contributions:
        """Go on with a common value; `each` has a reply for each logical shard instead."""
        shares: list[Contribution] = []
        results: list[Any] = []
        for n, running in self.running.items():
            try:
                shares.append(running.send(reply if each is None else each[n]))
            except StopIteration as end:
                results.append(end.value)
        shards = tuple(self.running)
        if not shares:
            self.running = {}
            return Contributions(shards, tuple(results), None)
        _, combine, own_reply, exact = shares[0]
        values = tuple(share.value for share in shares)
        # values that combine without rounding are combined here, so that only one is sent
        if exact:
            shards, values = shards[:1], (combine(values),)
        return Contributions(shards, values, combine, own_reply, exact)

    def prepare(self, run: Run) -> None:
        """Write this part's rows of the schedule and what the epoch learnt."""
        parts = [stages.schedule for stages in self.stages.values()]
        self.source.prepare(run, ScheduleColumns.concatenate(parts), self.learnt())

    def share(self) -> PartShare | None:
        """Return all that the leader writes but the rows; None: the part has no pages."""
        for one in self.stages.values():
            assert one.shared is not None  # noqa: S101 - for mypy
            tables = one.shared.share(one.rates, one.evidence, one.revisions, one.feeds)
            ids = one.schedule.page_id[::STRETCH]
            return PartShare(tables, one.change_hours, ids, seldom(one.schedule))
        return None

    def rows(self, first: int, end: int, names: list[str]) -> dict[str, NDArray[Any]]:
        """Return the rows of the schedule with page_ids from `first` to before `end`."""
        for one in self.stages.values():
            row = slice(*one.schedule.page_id.searchsorted([first, end]).tolist())
            return short(one.schedule.take(row), names)
        return {}

    def learnt(self) -> Learnt:
        """Return what the epoch learnt in all logical shards."""
        tables = {n: stages.tables() for n, stages in self.stages.items()}
        learnt = [s.change_hours for s in self.stages.values() if s.change_hours is not None]
        if not learnt:
            return Learnt(tables)
        hosts, records, screens = zip(*learnt, strict=True)
        return Learnt(
            tables,
            ChangeHours.concatenate(hosts),
            GroupHours.concatenate(records),
            GroupScreens.concatenate(screens),
        )
