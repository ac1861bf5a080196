"""Tables of URL groups that an epoch learns, and their shares where parts have groups in common.

A logical shard has a table for itself. The parts of one database by hosts have one table together,
because its readers know no parts. Each part fits the rates of its own pages. A bucket that pages of
several parts share gets the mean, and its evidence is divided, both by the numbers of pages. Pure.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.core.common_values import Joint, count, total
from service.core.estimators.base import Estimator
from service.core.ping_feeds import PingFeeds
from service.core.shared_changes import ShareEvidence
from service.core.wide_revisions import WideRevisions
from service.model.arrays import Floats, Ints, UrlGroupRates
from service.model.columns import ChangeHours, EpochColumns, GroupHours, GroupScreens
from service.model.urls import n_buckets
from service.storage.epochs.contract import GroupTables

Counts = NDArray[np.int16]

MOST_COUNTED = 1_000
"""Pages of a bucket beyond which more change no weight, so that counts of many parts are short."""


class FewRates(NamedTuple):
    """Mean change rates of URL groups. Most groups have the corpus' mean."""

    n_groups: int
    usual: np.float32
    """Rate of most groups, 1/day."""
    group: NDArray[np.intp]
    """Groups with another rate."""
    rate: UrlGroupRates

    @classmethod
    def of(cls, estimator: Estimator[Any]) -> "FewRates | None":
        """Return the rates of a fit; None if it has none."""
        rate = estimator.url_group_rate
        if rate is None:
            return None
        numbers = estimator.corpus()
        usual = np.float32(numbers["a"] / numbers["b"])
        group = np.flatnonzero(rate != usual)
        return cls(rate.size, usual, group, rate[group])

    def whole(self) -> UrlGroupRates:
        """Return the rates of all groups."""
        rate = np.full(self.n_groups, self.usual, np.float32)
        rate[self.group] = self.rate
        return rate


class TableShare(NamedTuple):
    """Share of a part in the tables of all parts of a database."""

    rates: FewRates | None
    """Rates of buckets with pages of this part."""
    weight: Floats
    """Share of the pages of each of these buckets that are in this part."""
    evidence: ShareEvidence | None
    revisions: WideRevisions | None
    feeds: PingFeeds
    """Hosts of this part with pings."""


LearntHours = tuple[ChangeHours, GroupHours, GroupScreens]
"""Change hours of hosts and of their URL groups after a lesson."""


class PartShare(NamedTuple):
    """All that the leader writes for a part of a database, but the rows of its schedule."""

    tables: TableShare
    change_hours: LearntHours | None
    stretch: Ints
    """Every `STRETCH`-th page_id."""
    seldom: list[str]
    """Columns of the schedule that not all blocks have."""


class SharedGroups(NamedTuple):
    """(S,) buckets of URL groups, whose pages may be in several parts."""

    n_own: Counts
    """Pages of this part, at most `MOST_COUNTED`."""
    n_all: Counts
    """Sums of all parts."""

    @property
    def weight(self) -> Floats:
        """Share of the pages of each bucket that are in this part; 0 without pages."""
        return np.asarray(self.n_own / np.maximum(self.n_all, 1))

    def evidence(self, whole: ShareEvidence | None) -> ShareEvidence | None:
        """Return the share of this part in the evidence of all parts."""
        if whole is None:
            return None
        whole = whole.resized(len(self.n_own))
        own = self.n_own[whole.group] > 0
        group = whole.group[own]
        score = whole.score[own] * self.weight[group][:, np.newaxis]
        return whole._replace(group=group, score=score)

    def share(
        self,
        rates: FewRates | None,
        evidence: ShareEvidence | None,
        revisions: WideRevisions | None,
        feeds: PingFeeds,
    ) -> TableShare:
        """Return the share of this part in the tables."""
        if rates is None:
            return TableShare(None, np.zeros(0), evidence, revisions, feeds)
        own = self.n_own[rates.group] > 0
        rates = rates._replace(group=rates.group[own], rate=rates.rate[own])
        return TableShare(rates, self.weight[rates.group], evidence, revisions, feeds)


def shared_groups(pages: EpochColumns) -> Joint[SharedGroups]:
    """Return the buckets of the URL groups of all parts."""
    n_groups = n_buckets((yield from count(len(pages))))
    n_pages = np.bincount(pages.url_group % n_groups, minlength=n_groups)
    n_own = np.minimum(n_pages, MOST_COUNTED).astype(np.int16)
    return SharedGroups(n_own, (yield from total(n_own)))


def joined(shares: Sequence[TableShare]) -> GroupTables:
    """Return the tables of all parts."""
    feeds = PingFeeds.of_all(share.feeds for share in shares)
    return GroupTables(
        _joined_rates(shares),
        _joined_evidence([share.evidence for share in shares]),
        WideRevisions.of_all(share.revisions for share in shares),
        feeds if feeds.host_id.size else None,
    )


def _joined_rates(shares: Sequence[TableShare]) -> UrlGroupRates | None:
    whole: Floats | None = None
    for rates, weight, *_ in shares:
        if rates is None:
            return None
        if whole is None:
            whole = np.full(rates.n_groups, rates.usual, np.float64)
        whole[rates.group] += (rates.rate.astype(np.float64) - rates.usual) * weight
    return None if whole is None else whole.astype(np.float32)


def _joined_evidence(parts: Sequence[ShareEvidence | None]) -> ShareEvidence | None:
    every = [part for part in parts if part is not None]
    if not every:
        return None
    group, place = np.unique(np.concatenate([part.group for part in every]), return_inverse=True)
    score = np.zeros((len(group), every[0].score.shape[1]))
    np.add.at(score, place, np.concatenate([part.score for part in every]))
    # the recent changes are those of all parts in each
    return every[0]._replace(group=group, score=score)
