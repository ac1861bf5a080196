"""Wide revisions without screens, blocks and tables: the oracle of `core.wide_revisions`."""

from itertools import pairwise

import numpy as np

from service.core.estimators.base import from_columns
from service.core.quiet_intervals import (
    CALIBRATION_CHANGES,
    CLASSES,
    LEAST_CHANGED,
    LEAST_EXPECTED,
    PROOF,
    QUIET,
    SHARES,
    TICKS,
    QuietIntervals,
    rate_before,
)
from service.core.wide_revisions import (
    Uncrawled,
    WideRevisions,
    hazard,
    stale,
)
from service.epochs.urgency import LATE
from service.epochs.wide_revisions import ENOUGH, LEAST_DAYS, SCATTER
from service.model.arrays import days
from service.model.domain import Observability


def plain_chances(quiet):
    """Return the calibrated chance of each interval, class by class and site by site."""
    kind = np.searchsorted(CLASSES, quiet.expected)
    expected = np.maximum(quiet.expected, LEAST_EXPECTED)
    for group in (kind, quiet.site * 10 + kind):
        ratio = np.ones(len(expected))
        for each in np.unique(group):
            some = group == each
            n_changed = quiet.changed[some].sum() + CALIBRATION_CHANGES
            n_expected = -np.expm1(-expected[some]).sum() + CALIBRATION_CHANGES
            ratio[some] = max(n_changed / n_expected, 1.0)
        expected = expected * ratio
    return -np.expm1(-expected)


def plainly_found(quiet):
    """Return the sites and ages of revisions, by the intervals that contain each instant."""
    sites, ages, chance = [], [], plain_chances(quiet)
    for site in np.unique(quiet.site):
        own = quiet.site == site
        changed, p = quiet.changed[own], chance[own]
        age = np.concatenate((quiet.start[own], quiet.end[own]))
        ticks = np.rint(age * TICKS)
        start, end = np.split(ticks, 2)
        at = np.unique(ticks)[::-1]
        best, found = PROOF, None
        for older, younger in pairwise(at):
            within = (start >= older) & (end <= younger)
            if (within & changed).sum() < LEAST_CHANGED:
                continue
            for share in SHARES:
                weight = np.where(changed, np.log1p(share * (1 / p - 1)), np.log1p(-share))
                if weight[within].sum() > best:
                    best, found = weight[within].sum(), younger
        if found is not None:
            sites.append(site)
            ages.append(age[ticks == found][0])
    return np.array(sites, int), np.array(ages, float)


def plainly_revised(pages, estimator, revisions, last_started_at, now):
    """Return the revisions and (N,) hazards of an epoch, with whole columns and one host a time."""
    own = estimator.of_url_groups(pages.url_group)
    interval, age = pages.last_interval, days(now - pages.last_observed_at)
    evidence = own.evidence(from_columns(own, pages.estimate))
    rate = rate_before(own.prior.a, own.prior.b, *evidence, interval)
    if estimator.aging is not None:
        rate = rate * estimator.aging.recently(len(pages))
    expected = rate * np.maximum(np.abs(interval), LEAST_DAYS)
    quiet = (interval != 0) & (pages.importance > 0) & (pages.n_pings == 0) & (expected < QUIET)
    quiet &= pages.observability != Observability.complete
    known = (revisions or WideRevisions.none()).newest(now)
    new = (
        quiet & (interval > 0) & (pages.last_observed_at >= last_started_at - np.timedelta64(LATE))
    )
    looked = np.zeros(len(pages), bool)
    for host in np.unique(pages.host_id[new]):
        of_host = (pages.host_id == host) & (interval != 0)
        one_in = -(-of_host.sum() // ENOUGH)
        of_host &= (pages.page_id * SCATTER >> 16 & 0xFFFF) % one_in == 0
        of_host &= quiet
        if (of_host & (interval > 0)).sum() >= LEAST_CHANGED:
            newest = known.at[known.host_id == host].max(initial=np.datetime64(0, "us"))
            looked |= of_host & (age + np.abs(interval) < days(now - newest))
    host_id = np.unique(pages.host_id)
    site, age_found = plainly_found(intervals(pages, looked, host_id, age, expected))
    at = now - np.rint(age_found * 86_400e6).astype("m8[us]")
    every = known.with_new(WideRevisions(host_id[site], at, np.zeros(len(site)))).newest(now)
    if not len(every.at):
        return None, np.zeros(len(pages))
    ages = every.ages(host_id, now)
    number = np.searchsorted(host_id, pages.host_id)
    waits = (pages.importance > 0) & (age > ages.min(axis=1)[number])
    waiting = np.isin(number, number[waits])
    result = stale(
        Uncrawled(number[waits], pages.url_group[waits], age[waits]),
        intervals(pages, quiet & waiting, host_id, age, expected),
        ages,
    )
    share = result.share[np.searchsorted(host_id, every.host_id)]
    newest = np.append(every.host_id[1:] != every.host_id[:-1], True)
    every = every._replace(share=np.where(newest & ~np.isnan(share), share, every.share))
    of_pages = np.zeros(len(pages))
    of_pages[waits] = hazard(result.probability)
    return every, of_pages


def intervals(pages, some, host_id, age, expected):
    """Return the quiet intervals of some pages."""
    interval = pages.last_interval[some]
    return QuietIntervals(
        site=np.searchsorted(host_id, pages.host_id[some]),
        url_group=pages.url_group[some],
        start=age[some] + np.abs(interval),
        end=age[some],
        changed=interval > 0,
        expected=expected[some],
    )
