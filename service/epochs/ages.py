"""Ages in an epoch: what the latest crawls show of the age profile, and what siblings are by it.

The epoch learns from the last interval of each page that was crawled since the epoch in force
(`core.age_evidence`). The rate that was believed before that crawl follows from the page's state.
"""

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from service.core.age_evidence import AgedCrawls, AgeEvidence, learn, profile
from service.core.ages import BLOCK, ENDS, OLD, STARTS, AgeProfile
from service.core.budget_factor import Window
from service.core.common_values import Joint
from service.core.estimators.base import Estimator, from_columns
from service.core.estimators.bursty import Bursty
from service.core.estimators.gamma import Gamma
from service.epochs.urgency import LastEpoch, since
from service.estimation.ages import age_at_crawl
from service.model.arrays import Floats, Ints, days
from service.model.columns import EpochColumns
from service.model.domain import Epoch, Observability
from service.model.urls import URL_GROUPS

HOT = 4.0
"""Factor of the profile from which a page is no sibling of older ones."""


def evidence_in_force(last: Epoch | None) -> AgeEvidence:
    """Return the evidence of the epoch in force."""
    certificate = None if last is None else last.certificate
    if certificate is None or not certificate.age_evidence:
        return AgeEvidence.none()
    return AgeEvidence.unpacked(np.array(certificate.age_evidence))


class AgesLearnt(NamedTuple):
    """Evidence of ages after the crawls of all parts."""

    evidence: AgeEvidence | None
    """None: none is learnt."""
    profile: AgeProfile | None
    """The profile in force; None: ages do not matter."""


UNLEARNT = AgesLearnt(None, None)


def learn_ages(
    pages: EpochColumns, estimator: Estimator[Any], last: Epoch | None, now: np.datetime64
) -> Joint[AgesLearnt]:
    """Return the evidence of ages after the crawls since the epoch in force.

    `estimator` has the prior and the profile of that epoch.
    """
    if not isinstance(estimator, Gamma | Bursty):
        return UNLEARNT
    before = evidence_in_force(last)
    window = since(LastEpoch.of(last), now)
    crawls = _crawls(pages, estimator, window, now)
    evidence = yield from learn(before, crawls, window.days)
    return AgesLearnt(evidence, profile(evidence))


def _crawls(pages: EpochColumns, estimator: Any, window: Window, now: np.datetime64) -> AgedCrawls:
    """Return the last crawls of pages in a window, with the rates that were believed before."""
    longest = np.timedelta64(math.ceil(window.start * 86_400), "s")
    row = np.flatnonzero(pages.last_observed_at >= now - longest)
    ago = days(now - pages.last_observed_at[row])
    # pings would decide when these pages are crawled, and so what crawls find
    counts = (pages.last_interval[row] != 0) & (pages.importance[row] > 0)
    counts &= (pages.observability[row] != Observability.complete) & (pages.n_pings[row] == 0)
    row = row[counts & (ago >= window.end) & (ago < window.start)]
    length, changed = np.abs(pages.last_interval[row]), pages.last_interval[row] > 0
    born = np.flatnonzero(~np.isnat(pages.born_at[row]))
    end = np.full(len(row), OLD)
    end[born] = age_at_crawl(pages, row[born])
    start = np.maximum(end - length, 0.0)
    own = estimator.of_url_groups(pages.url_group[row])
    before = own.before(from_columns(own, pages.estimate[row]), length, changed)
    own = own.aged(born, start[born], before.days[born], np.ones(len(born)))
    rate = own.change_rate(before)
    return AgedCrawls(start, end, rate, changed)


def exposures(
    pages: EpochColumns, profile: AgeProfile, now: np.datetime64, exposure: Floats | None
) -> Floats:
    """Return (N,) lengths of last intervals, days at the present rate of each page.

    `exposure` has the lengths by change hours; None: the lengths.
    """
    lengths = np.abs(pages.last_interval) if exposure is None else exposure.copy()
    row = np.flatnonzero(~np.isnat(pages.born_at))
    for first in range(0, len(row), BLOCK):
        some = row[first : first + BLOCK]
        end = age_at_crawl(pages, some)
        start = np.maximum(end - np.abs(pages.last_interval[some]), 0.0)
        aged = np.flatnonzero(
            start < STARTS[-1]
        )  # later the factor is 1, and so is the present one
        some = some[aged]
        then = profile.between(start[aged], end[aged])
        lengths[some] *= then / profile.at(age_now(pages, some, now))
    return lengths


def hot_apart(pages: EpochColumns, profile: AgeProfile, now: np.datetime64) -> EpochColumns:
    """Return the pages with hot ones in URL groups of their own, so that they are no siblings.

    The pages keep the buckets of their URL groups, and so the shares of changes in common.
    """
    hottest = ENDS[:-1][profile.factor[:-1] >= HOT]
    if not len(hottest):
        return pages
    oldest = np.timedelta64(round(hottest[-1] * 86_400e6), "us")
    row = np.flatnonzero(pages.born_at >= now - oldest)
    hot = row[profile.at(age_now(pages, row, now)) >= HOT]
    if not len(hot):
        return pages
    url_group = np.array(pages.url_group)
    url_group[hot] += URL_GROUPS
    return replace(pages, url_group=url_group)


def age_now(pages: EpochColumns, row: Ints, now: np.datetime64) -> Floats:
    """Return the ages of pages, days."""
    return np.maximum(days(now - pages.born_at[row]), 0.0)
