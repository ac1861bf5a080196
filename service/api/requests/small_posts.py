"""Small posts of crawls, decoded by the writer that commits them.

Arrays of one item cost as much as arrays of fifty. The items of a batch of posts therefore become
columns together; each post receives the counts of its own items.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from recrawl_client.wire.evidence import Observation
from service.api.requests.bodies import Batch
from service.api.requests.decode import Decoded, decode_crawls
from service.api.responses.encode import batch_counts, outcome_counts
from service.batching.batcher import Batcher, slices
from service.batching.reports import CommittedCrawls, Recorder, Report
from service.model.arrays import Ints
from service.model.columns import CrawlColumns
from service.model.domain import Verdict
from service.runtime.metrics import Telemetry
from service.storage import Transaction

SMALL_BYTES = 2_048
"""Maximum size of a small post, bytes; a larger post is committed as a report."""

Counts = dict[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class SmallPost:
    """The items of one request."""

    batch: Batch[Observation]
    register: bool

    @property
    def kind(self) -> bool:
        """True where unknown URLs are registered."""
        return self.register

    @property
    def size(self) -> int:
        """Number of items, at least one."""
        return max(len(self.batch.items), 1)


SmallPosts = Batcher[SmallPost, Counts]


class RecordedPosts(NamedTuple):
    """The outcomes of recorded posts."""

    counts: list[Counts]
    """Counts of each post."""
    n_leases: int
    """Number of crawls under a lease."""
    sooner: Ints
    """Pages for `Recorder.queue_apart`."""


@dataclass(frozen=True, slots=True)
class PostRecorder:
    """Recorder of the posts of several requests in one transaction."""

    recorder: Recorder
    telemetry: Telemetry
    now: Callable[[], datetime]

    def flush(self, posts: list[SmallPost]) -> list[Counts]:
        """Record the items of all posts as one report, and count the outcomes of each post."""
        now = self.now()
        with self.recorder.store.begin() as tx:
            recorded = self.record(tx, posts, now)
        return self.settle(recorded, now)

    def record(self, tx: Transaction, posts: list[SmallPost], now: datetime) -> RecordedPosts:
        """Record the items in a transaction of the caller, who calls `settle` after the commit."""
        items = [item for post in posts for item in post.batch.items]
        decoded = decode_crawls(Batch(items, np.arange(len(items)), []), now)
        report = Report(decoded.columns, decoded.named, posts[0].register, now)
        committed, sooner = self.recorder.record_crawls(tx, [report])
        n_leases = int((decoded.columns.token != 0).sum())
        return RecordedPosts(count_each(posts, decoded, committed), n_leases, sooner)

    def settle(self, recorded: RecordedPosts, now: datetime) -> list[Counts]:
        """Queue pages that are due sooner, and return the counts of each post."""
        counts = recorded.counts
        self.recorder.queue_apart(recorded.sooner, now)
        names = ("accepted", "duplicate", "late", "n_rejected", "leases_ended")
        totals = {name: sum(map(itemgetter(name), counts)) for name in names}
        self.telemetry.count_reported_leases(recorded.n_leases, totals.pop("leases_ended"))
        self.telemetry.count_items("observation", totals)
        return counts


def count_each(
    posts: list[SmallPost], decoded: Decoded[CrawlColumns], committed: CommittedCrawls
) -> list[Counts]:
    """Return the counts of each post."""
    parts = slices(len(post.batch.items) for post in posts)
    verdict, lease_ended = committed.verdict.tolist(), committed.lease_ended.tolist()
    any_rejected = len(decoded.rejected) > 0 or max(verdict, default=0) > Verdict.late
    return [
        count_some(post, rows, decoded, committed)
        if any_rejected or post.batch.rejected
        else count_all(verdict[rows], lease_ended[rows])
        for post, rows in zip(posts, parts, strict=True)
    ]


def count_all(verdict: list[int], lease_ended: list[bool]) -> Counts:
    """Return the counts of a post without rejected items."""
    counts = outcome_counts(
        verdict.count(Verdict.accepted),
        verdict.count(Verdict.duplicate),
        verdict.count(Verdict.late),
    )
    return counts | {"leases_ended": lease_ended.count(True)}


def count_some(
    post: SmallPost, part: slice, decoded: Decoded[CrawlColumns], committed: CommittedCrawls
) -> Counts:
    """Return the counts of a post whose items are a part of all items."""
    rows = slice(*np.searchsorted(decoded.index, (part.start, part.stop)).tolist())
    index = post.batch.index
    rejected = [
        replace(item, index=int(index[item.index - part.start]))
        for item in decoded.rejected
        if part.start <= item.index < part.stop
    ]
    counts = batch_counts(
        committed.verdict[rows],
        index[decoded.index[rows] - part.start],
        decoded.named.page_id[rows],
        [*post.batch.rejected, *rejected],
    )
    return counts | {"leases_ended": int(committed.lease_ended[rows].sum())}
