"""The columns that an epoch reads, of one logical shard or divided among several."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from numpy.typing import NDArray

from service.core.estimators.base import Estimator
from service.core.shared_changes import ShareEvidence
from service.core.wide_revisions import WideRevisions
from service.epochs.change_hours import Hours, load_hours
from service.epochs.plan import Plan
from service.epochs.recalibration import NO_OUTCOMES, Outcomes, read_outcomes
from service.epochs.requests import NO_REQUESTS, RequestCounts, of_other_shards, read_requests
from service.epochs.windows import HostWindows, load_windows, most_crawls
from service.estimation.estimates import rates_from_log
from service.estimation.rules import fitted_last
from service.model.arrays import SHARD_BITS, Floats, distinct, instant
from service.model.columns import (
    CapColumns,
    EpochColumns,
)
from service.model.domain import Epoch
from service.storage import Transaction


@dataclass(frozen=True, slots=True)
class Task:
    """The epoch that all parts compute."""

    plan: Plan
    last: Epoch | None
    """The epoch in force; None before the first."""
    at: datetime
    """Time of the epoch."""


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
    """Hosts that may be closed, or that the budget may be too much for; None: there are none."""
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
    windows = load_windows(tx, pages.host_id, plan, most_crawls(plan))
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
