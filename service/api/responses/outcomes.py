"""Outcomes of reports: the verdict of each item becomes counts and rejections of its request."""

from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
from msgspec import UNSET, structs
from numpy.typing import NDArray

from recrawl_client.wire.common import Problem, Rejection, late_hint
from service.api.requests.decode import Decoded
from service.batching.reports import CommittedCrawls
from service.ingest.bounds import CROSSING
from service.model.arrays import Codes, Ints
from service.model.columns import CrawlColumns
from service.model.domain import ItemVerdict
from service.model.errors import BatchRejected, RowLocked, ShardUnavailable
from service.runtime.metrics import Telemetry

LISTED = 1_000
"""Maximum number of listed rejected items of a stream; the counts include all."""


def outcome_counts(
    accepted: int = 0, duplicate: int = 0, late: int = 0, rejected: Iterable[Rejection] = ()
) -> dict[str, Any]:
    """Return the fields of `Counts`."""
    listed = sorted(rejected, key=lambda rejection: rejection.index)
    return {
        "accepted": accepted,
        "duplicate": duplicate,
        "late": late,
        "n_rejected": len(listed),
        "rejected": listed,
        "hint": late_hint(late) if late else UNSET,
    }


ALONE = np.zeros(1, np.int64)
"""First position of the only request of a batch."""

UNKNOWN = int(ItemVerdict.unknown)
"""First of the verdicts that reject an item; numpy compares with an enumeration slowly."""


def counts_of_each(
    starts: Ints,
    verdict: Codes,
    index: Ints,
    page_id: Ints,
    rejected: Iterable[Rejection] = (),
) -> list[dict[str, Any]]:
    """Return the counts of each request of a batch by the verdicts of its items.

    `index` are the positions of the items in the batch. The items of a request stand from its
    start on, and its rejections count from there.
    """
    n_of = counted(starts, index, verdict, len(ItemVerdict))
    own: list[list[Rejection]] = [[] for _ in starts]
    if (verdict >= UNKNOWN).any():
        rejected = [*rejected, *_rejections(verdict, index, page_id)]
    for each in rejected:
        k = int(starts.searchsorted(each.index, "right")) - 1
        own[k].append(structs.replace(each, index=each.index - int(starts[k])) if k else each)
    return [
        outcome_counts(accepted, duplicate, late, some)
        for (accepted, duplicate, late, *_), some in zip(n_of, own, strict=True)
    ]


def counted(starts: Ints, index: Ints, code: NDArray[np.integer], n_codes: int) -> list[list[int]]:
    """Return how many items of each request have each code."""
    if len(starts) > 1:
        code = code + n_codes * (starts.searchsorted(index, "right") - 1)
    n_of = np.bincount(code, minlength=n_codes * len(starts))
    each: list[list[int]] = n_of.reshape(-1, n_codes).tolist()
    return each


def batch_counts(
    verdict: Codes, index: Ints, page_id: Ints, rejected: Iterable[Rejection] = ()
) -> dict[str, Any]:
    """Return the counts of a batch of one request."""
    return counts_of_each(ALONE, verdict, index, page_id, rejected)[0]


def crawl_counts(
    decoded: Decoded[CrawlColumns], committed: CommittedCrawls, starts: Ints = ALONE
) -> list[dict[str, Any]]:
    """Return the counts of each request of a batch of crawls."""
    rejected = (each.rejection for each in decoded.refusals)
    verdict, page_id = committed.verdict, decoded.named.page_id
    if decoded.n_ends:  # whether or not their databases answered, they have a rejection
        verdict = np.where(decoded.columns.refused, ItemVerdict.refused, verdict)
    counts = counts_of_each(starts, verdict, decoded.index, page_id, rejected)
    ended = counted(starts, decoded.index, committed.lease_ended.view(np.int8), 2)
    for own, (_, n_ended) in zip(counts, ended, strict=True):
        own |= {"leases_ended": n_ended, "left_out": []}
    for each in decoded.left_out:
        k = int(starts.searchsorted(each.index, "right")) - 1
        counts[k]["left_out"].append(structs.replace(each, index=each.index - int(starts[k])))
    return counts


def measure_crawls(
    telemetry: Telemetry, crawls: CrawlColumns, counts: Sequence[dict[str, Any]]
) -> None:
    """Add the counts of committed crawls to the metrics."""
    names = ("accepted", "duplicate", "late", "n_rejected", "leases_ended")
    totals = {name: sum(map(itemgetter(name), counts)) for name in names}
    n_leases = int((crawls.token != 0).sum())
    telemetry.count_reported_leases(n_leases, totals["leases_ended"])
    telemetry.count_items("observation", totals)


def add_counts(counts: dict[str, Any] | None, more: dict[str, Any]) -> dict[str, Any]:
    """Return the counts of a stream with those of its next block."""
    if counts is None:
        return more
    sums = {name: counts[name] + more[name] for name in counts if name != "hint"}
    return {
        "hint": late_hint(sums["late"]) if sums["late"] else UNSET,
        **{n: value[:LISTED] if isinstance(value, list) else value for n, value in sums.items()},
    }


def refuse_empty(counts: dict[str, Any]) -> None:
    """Raise `BatchRejected` for a batch whose every item was rejected."""
    n_taken = counts["accepted"] + counts["duplicate"] + counts["late"]
    if counts["rejected"] and not n_taken:
        first = counts["rejected"][0]
        codes = {item.code for item in counts["rejected"]}
        if SHARD_UNAVAILABLE in codes:
            raise ShardUnavailable(AWAY)
        if PAGE_LOCKED in codes:
            raise RowLocked(LOCKED)
        n = counts["n_rejected"]
        which = "the only item was" if n == 1 else f"all {n} items were"
        raise BatchRejected(
            f"{which} rejected; item {first.index}: {first.detail}",
            field=first.field,
            **{name: counts[name] for name in Problem.__struct_fields__ if name in counts},
        )


SHARD_UNAVAILABLE = "shard_unavailable"
AWAY = "the database of this page is away; send the item again after some seconds"


PAGE_LOCKED = "page_locked"
LOCKED = (
    "another session of the database holds the row of this page; send the item again after some "
    "seconds"
)


LOST = (
    "this id was handed out before the database was restored from an older copy, so it names no "
    "page; name the page by `url`"
)


def away(index: int) -> Rejection:
    """Return the rejection of an item whose database is away."""
    return Rejection(index=index, code=SHARD_UNAVAILABLE, field=None, detail=AWAY)


def locked(index: int) -> Rejection:
    """Return the rejection of an item whose page another session holds."""
    return Rejection(index=index, code=PAGE_LOCKED, field=None, detail=LOCKED)


def crossing(index: int) -> Rejection:
    """Return the rejection of a page whose bounds would cross."""
    return Rejection(index=index, code="conflict", field="min_crawl_rate", detail=CROSSING)


def _rejections(verdict: Codes, index: Ints, page_id: Ints) -> Iterator[Rejection]:
    for i in np.flatnonzero((verdict >= UNKNOWN) & (verdict != ItemVerdict.refused)).tolist():
        yield _rejection(int(index[i]), ItemVerdict(verdict[i]), by_id=bool(page_id[i]))


def _rejection(index: int, verdict: ItemVerdict, *, by_id: bool) -> Rejection:
    """Return the rejection of an item by the store."""
    if verdict is ItemVerdict.unavailable:
        return away(index)
    if verdict is ItemVerdict.locked:
        return locked(index)
    if verdict is ItemVerdict.lost:
        return Rejection(index=index, code="page_lost", field="page_id", detail=LOST)
    if verdict is ItemVerdict.elsewhere:
        detail = "the lease is on another page than `url` names; leave `url` out"
        return Rejection(index=index, code="lease_mismatch", field="lease", detail=detail)
    register = "register it with POST /pages or name it by `url` with `register=true`"
    return Rejection(
        index=index,
        code="page_not_found",
        field="page_id" if by_id else "url",
        detail="no page has this id; GET /pages lists the pages, or name it by `url`"
        if by_id
        else f"no such page; {register}",
    )
