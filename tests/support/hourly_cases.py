"""Pages of hosts with change hours, as an epoch reads them."""

from datetime import UTC

import numpy as np

from service.core.budget_factor import Window
from service.core.change_hours.profile import TERMS
from service.core.estimators import make_estimator
from service.epochs.change_hours import Hours, Lesson, lesson
from service.estimation.estimates import RateEstimates
from service.model.arrays import INSTANT
from service.model.columns import (
    ChangeHours,
    EpochColumns,
    HostHours,
    ShiftColumns,
)
from service.model.domain import Certificate, Epoch, EpochStatus, Observability
from support.store_cases import CERTIFICATE, columns

ESTIMATOR = make_estimator("gamma")
MIDNIGHT = np.datetime64("2026-05-01", "us")
DAY_US = 86_400_000_000


def at_day(days):
    """Return instants some days after `MIDNIGHT`; NaN: never."""
    days = np.asarray(days, np.float64)
    us = np.rint(np.nan_to_num(days) * DAY_US).astype("m8[us]")
    return np.where(np.isnan(days), np.datetime64("NaT", "us"), MIDNIGHT + us).astype(INSTANT)


def pages_of(host_id, crawled_at, interval, **values):
    """Return pages with their last crawls, days since `MIDNIGHT`; negative intervals: unchanged."""
    host_id = np.asarray(host_id, np.int64)
    n = len(host_id)
    usual = {
        "page_id": np.arange(1, n + 1),
        "importance": 1.0,
        "observability": Observability.auto,
        "url_group": 0,
        "n_observations": 9,
        "interval_factor": 1.0,
        "last_age": np.nan,
        "last_failure_at": at_day(np.nan),
        "cost": 0.0,
        "estimate": 0.0,
        "min_crawl_rate": np.nan,
        "max_crawl_rate": np.nan,
        "n_pings": 0,
        "recent_pings": 0.0,
        "real_pings": 0.0,
        "false_pings": 0.0,
        "trust": 0.0,
        "pings_since": at_day(np.nan),
        "last_ping_at": at_day(np.nan),
        "born_at": at_day(np.nan),
    }
    estimate = values.pop("estimate", np.tile([9.0, 9.0], (n, 1)))
    crawls = {"last_observed_at": at_day(crawled_at), "last_interval": interval}
    one = columns(EpochColumns, n, host_id=host_id, **crawls, **(usual | values))
    object.__setattr__(one, "estimate", np.asarray(estimate, np.float64))
    return one


def known(change_rate):
    """Return change rates that are certain, without pings."""
    rate = np.asarray(change_rate, np.float64)
    zero, one = np.zeros(len(rate)), np.ones(len(rate))
    return RateEstimates(rate, zero, one, zero)


def epoch_at(days, bandwidth=100.0):
    """Return a published epoch that started some days after `MIDNIGHT`."""
    started_at = at_day(days).item().replace(tzinfo=UTC)
    values = {name: getattr(CERTIFICATE, name) for name in Certificate.__dataclass_fields__}
    certificate = Certificate(**{**values, "bandwidth": bandwidth, "budget_factor": 1.0})
    return Epoch(
        epoch=1,
        status=EpochStatus.published,
        requested_at=started_at,
        started_at=started_at,
        finished_at=started_at,
        reason=None,
        certificate=certificate,
    )


def no_hours():
    """Return the change hours of a store in which no host has learnt."""
    nothing = ChangeHours.empty(evidence=(223,), profile=(1 + TERMS,))
    hosts = HostHours.empty(profile=(1 + TERMS,))
    empty = Lesson(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.bool_))
    return Hours(hosts, ShiftColumns.empty(), empty, nothing)


def lesson_of(pages, now, passed=1.0):
    """Return the change hours before a lesson, `passed` days after the last epoch."""
    late = 10 / 1440
    events = lesson(pages, Window(passed + late, late), at_day(now)[()])
    return no_hours()._replace(lesson=events)


def hours_of(profiles, host_id=(1,), delay_s=np.nan):
    """Return the change hours of hosts with profiles."""
    table = np.column_stack((profiles.weight, profiles.coefficients))
    n = len(host_id)
    hosts = HostHours(
        host_id=np.asarray(host_id, np.int64), profile=table, delay_s=np.full(n, delay_s)
    )
    return no_hours()._replace(hosts=hosts)
