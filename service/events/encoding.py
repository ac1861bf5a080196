"""Changes as the structs of answers and as CloudEvents."""

import secrets
from collections.abc import Sequence
from datetime import datetime

import msgspec
import numpy as np

from recrawl_client.wire.changes import Change
from recrawl_client.wire.webhooks import ChangeEvent
from service.core.weights import whole
from service.events.reading import NamedChanges
from service.model.arrays import INSTANT, Ints, moments
from service.model.changes import ChangeKind

KINDS = [kind.name for kind in ChangeKind]
SINGLE, BATCH = "application/cloudevents+json", "application/cloudevents-batch+json"
"""Media types of one event and of an array of events."""
FULL: float = Change.__struct_defaults__[-1]
"""Weight of a change without one."""
TYPE, TEST = "io.github.recrawl.page", "io.github.recrawl.test"
"""Start of the type of an event; type of the event that tests a webhook."""


def encode_changes(changes: NamedChanges) -> list[Change]:
    """Return the changes of columns."""
    columns = (
        [f"{s}-{i}" for s, i in zip(changes.seq.tolist(), changes.offset.tolist(), strict=True)],
        map(KINDS.__getitem__, changes.kind.tolist()),
        changes.page_id.tolist(),
        changes.url.tolist(),
        moments(changes.observed_at),
        moments(changes.changed_after),
        moments(changes.last_modified),
        _digests(changes.digest),
        changes.moved_to_url.tolist(),
        map(str.split, changes.tags.tolist()),
        moments(changes.seq.view(INSTANT)),
        _weights(changes),
    )
    names = Change.__struct_fields__
    return [Change(**dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True)]


def _weights(changes: NamedChanges) -> list[float]:
    """Return the weights; 1 is the struct's own default, because only that one is left out."""
    if changes.weight is None:
        return [FULL] * len(changes)
    return [FULL if weight == FULL else weight for weight in whole(changes.weight).tolist()]


def _digests(digest: Ints) -> list[str | None]:
    """Return hashes in hexadecimal.

    >>> _digests(np.array([0, 1, -1]))
    [None, '0000000000000001', 'ffffffffffffffff']
    """
    return [f"{value:016x}" if value else None for value in digest.view(np.uint64).tolist()]


def event(change: Change, feed_id: str, kind: str = "") -> ChangeEvent:
    """Return a change as an event; `kind` replaces the type of the event."""
    return ChangeEvent(
        id=change.id,
        source=f"urn:recrawl:{feed_id}",
        type=kind or f"{TYPE}.{change.kind}",
        subject=change.url,
        time=change.observed_at,
        partitionkey=str(change.page_id),
        data=change,
    )


def body(events: Sequence[ChangeEvent], *, batched: bool) -> tuple[bytes, str]:
    """Return the body of a request and its media type."""
    if batched:
        return msgspec.json.encode(events), BATCH
    (single,) = events
    return msgspec.json.encode(single), SINGLE


def sample(now: datetime) -> Change:
    """Return the change of a test, which is of no page and has an id of its own."""
    return Change(
        id=f"test-{secrets.token_hex(12)}",
        kind="changed",
        page_id=0,
        url="https://example.com/",
        observed_at=now,
        recorded_at=now,
    )
