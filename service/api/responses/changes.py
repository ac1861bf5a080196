"""Answers of the feed: conversion of changes to structs."""

import numpy as np

from recrawl_client.wire.changes import Change
from service.api.responses.encode import moments
from service.events.reading import NamedChanges
from service.model.arrays import INSTANT, Ints
from service.model.changes import ChangeKind

KINDS = [kind.name for kind in ChangeKind]


def encode_changes(changes: NamedChanges) -> list[Change]:
    """Return the changes of columns."""
    return [
        Change(
            id=f"{seq}-{offset}",
            kind=KINDS[kind],
            page_id=page_id,
            url=url,
            observed_at=observed_at,
            changed_after=changed_after,
            last_modified=last_modified,
            digest=digest,
            moved_to=moved_to,
            recorded_at=recorded_at,
        )
        for seq, offset, kind, page_id, url, observed_at, changed_after, last_modified, digest, (
            moved_to
        ), recorded_at in zip(
            changes.seq.tolist(),
            changes.offset.tolist(),
            changes.kind.tolist(),
            changes.page_id.tolist(),
            changes.url.tolist(),
            moments(changes.observed_at),
            moments(changes.changed_after),
            moments(changes.last_modified),
            _digests(changes.digest),
            changes.moved_to_url.tolist(),
            moments(changes.seq.view(INSTANT)),
            strict=True,
        )
    ]


def _digests(digest: Ints) -> list[str | None]:
    """Return hashes in hexadecimal.

    >>> _digests(np.array([0, 1, -1]))
    [None, '0000000000000001', 'ffffffffffffffff']
    """
    return [f"{value:016x}" if value else None for value in digest.view(np.uint64).tolist()]
