"""Posts of crawls that wait undecoded; the writer that commits them decodes them together.

Arrays of one item cost as much as arrays of fifty. The items of a batch of posts therefore become
columns together; each post receives the counts of its own items.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from recrawl_client.wire.evidence import Observation
from service.api.requests.decode import Decoded, decode_crawls
from service.api.requests.items import Batch
from service.api.responses.outcomes import crawl_counts, measure_crawls
from service.batching.batcher import Batcher
from service.batching.held import after, locked_rows
from service.batching.reports import CommittedCrawls, CrawlReport, Recorder
from service.model.amounts import CRAWLS, NO_BUDGET, HasUnit
from service.model.arrays import Ints
from service.model.columns import CrawlColumns
from service.runtime.metrics import Telemetry

SMALL_BYTES = 2_048
"""Maximum size of a small post, bytes; a larger post is committed as a block."""

Counts = dict[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Post:
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


SmallPosts = Batcher[Post, Counts]


class GatheredPosts(NamedTuple):
    """Posts whose items are the columns of one report."""

    decoded: Decoded[CrawlColumns]
    starts: Ints
    """Position of each post's first item."""
    report: CrawlReport

    @classmethod
    def of(cls, posts: Sequence[Post], now: datetime, unit: str = CRAWLS) -> "GatheredPosts":
        """Return posts of one kind as one report; `unit` is that of the budget."""
        batches = [post.batch for post in posts]
        sizes = [len(batch.items) + len(batch.refusals) for batch in batches]
        starts = np.array([0, *accumulate(sizes[:-1])])
        decoded = decode_crawls(joined(batches, starts), now, unit)
        return cls(decoded, starts, decoded.report(now, register=posts[0].register))

    def counts(self, committed: CommittedCrawls) -> list[Counts]:
        """Return the counts of each post."""
        return crawl_counts(self.decoded, committed, self.starts)

    def holding(self, committed: CommittedCrawls) -> list[bool]:
        """Return which posts have crawls of locked pages."""
        rows = locked_rows(committed)
        holding = np.zeros(len(self.starts), np.bool_)
        if not len(rows):
            return holding.tolist()
        index = self.decoded.index[rows]
        holding[self.starts.searchsorted(index, "right") - 1] = True
        return holding.tolist()


@dataclass(frozen=True, slots=True)
class PostRecorder:
    """Recorder of the posts of several requests in one transaction."""

    recorder: Recorder
    telemetry: Telemetry
    now: Callable[[], datetime]
    budget: HasUnit = NO_BUDGET
    """The budget in force."""

    @property
    def unit(self) -> str:
        """Unit of the budget."""
        return self.budget.unit

    def flush(self, posts: list[Post]) -> list[Counts | Future[Counts]]:
        """Record the items of all posts as one report, and count the outcomes of each post."""
        gathered = GatheredPosts.of(posts, self.now(), self.unit)
        (committed,) = self.recorder.flush_free_crawls([gathered.report])
        return self.counted(gathered, committed, gathered.counts(committed))

    def counted(
        self, gathered: GatheredPosts, committed: CommittedCrawls, whole: list[Counts]
    ) -> list[Counts | Future[Counts]]:
        """Return the counts of each post, as a future where a crawl waits for a locked page.

        `whole` are the counts of each post by what was committed.
        """
        rows, crawls = locked_rows(committed), gathered.decoded.columns
        if not len(rows):
            measure_crawls(self.telemetry, crawls, whole)
            return [*whole]
        post = gathered.starts.searchsorted(gathered.decoded.index, "right") - 1
        waiting = np.unique(post[rows])
        free = [own for i, own in enumerate(whole) if i not in waiting]
        measure_crawls(self.telemetry, crawls.take(~np.isin(post, waiting)), free)
        counts: list[Counts | Future[Counts]] = [*whole]
        for i in waiting.tolist():
            done = self.recorder.crawls.result(
                gathered.report, committed, rows=rows[post[rows] == i]
            )
            counts[i] = after(done, partial(self._counts_of, gathered, i, crawls.take(post == i)))
        return counts

    def _counts_of(
        self, gathered: GatheredPosts, i: int, crawls: CrawlColumns, committed: CommittedCrawls
    ) -> Counts:
        counts = gathered.counts(committed)[i]
        measure_crawls(self.telemetry, crawls, [counts])
        return counts


def joined(batches: Sequence[Batch[Observation]], starts: Ints) -> Batch[Observation]:
    """Return the items of several requests as one batch, those of each from its start on."""
    if len(batches) == 1:
        return batches[0]
    refusals = [
        each._replace(rejection=replace(each.rejection, index=start + each.rejection.index))
        for start, batch in zip(starts.tolist(), batches, strict=True)
        for each in batch.refusals
    ]
    items = [item for batch in batches for item in batch.items]
    left_out = tuple(
        replace(each, index=start + each.index)
        for start, batch in zip(starts.tolist(), batches, strict=True)
        for each in batch.left_out
    )
    own_hosts = None
    if any(batch.own_hosts is not None for batch in batches):
        own_hosts = np.full(len(items), "", object)
        for start, batch in zip(starts.tolist(), batches, strict=True):
            if batch.own_hosts is not None:
                own_hosts[start : start + len(batch.items)] = batch.own_hosts
    if not refusals:
        return Batch(items, np.arange(len(items)), [], own_hosts, left_out)
    index = [start + batch.index for start, batch in zip(starts, batches, strict=True)]
    return Batch(items, np.concatenate(index), refusals, own_hosts, left_out)
