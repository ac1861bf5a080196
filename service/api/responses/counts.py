"""What became of the items of a batch, counted; each count of a batch is built here."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from recrawl_client.wire.common import Counts, Rejection
from service.model.arrays import Codes, Ints
from service.model.domain import Verdict
from service.model.errors import BatchRejected

LISTED = 1_000
"""Most rejected items that are listed for a stream of several blocks; all are counted."""


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
    }


def batch_counts(
    verdict: Codes, index: Ints, page_id: Ints, rejected: Sequence[Rejection] = ()
) -> dict[str, Any]:
    """Return the counts of a batch by the verdicts of its items."""
    n_of = np.bincount(verdict, minlength=len(Verdict)).tolist()
    unknown = []
    if n_of[Verdict.unknown] or n_of[Verdict.elsewhere]:
        unknown = [
            _rejection(int(index[i]), Verdict(verdict[i]), by_id=bool(page_id[i]))
            for i in np.flatnonzero(verdict >= int(Verdict.unknown))
        ]
    return outcome_counts(
        n_of[Verdict.accepted], n_of[Verdict.duplicate], n_of[Verdict.late], [*rejected, *unknown]
    )


def add_counts(counts: dict[str, Any] | None, more: dict[str, Any]) -> dict[str, Any]:
    """Return the counts of a stream with those of its next block."""
    if counts is None:
        return more
    sums = {name: counts[name] + more[name] for name in counts}
    return {**sums, "rejected": sums["rejected"][:LISTED]}


def refuse_empty(counts: dict[str, Any]) -> None:
    """Raise `BatchRejected` for a batch whose every item was rejected."""
    n_taken = counts["accepted"] + counts["duplicate"] + counts["late"]
    if counts["rejected"] and not n_taken:
        first = counts["rejected"][0]
        raise BatchRejected(
            f"none of the {counts['n_rejected']} items could be taken; item {first.index}: "
            f"{first.detail}",
            field=first.field,
            **{name: counts[name] for name in Counts.__struct_fields__},
        )


def _rejection(index: int, verdict: Verdict, *, by_id: bool) -> Rejection:
    """Return why the store does not take an item."""
    if verdict is Verdict.elsewhere:
        detail = "the lease is on another page than `url` names; leave `url` out"
        return Rejection(index=index, code="lease_mismatch", field="lease", detail=detail)
    return Rejection(
        index=index,
        code="page_not_found",
        field="page_id" if by_id else "url",
        detail="no such page; register it with POST /pages or name it by `url` with "
        "`register=true`",
    )
