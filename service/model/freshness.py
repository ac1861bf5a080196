"""Columns from which the freshness of copies follows."""

from dataclasses import dataclass

from service.model.arrays import Codes, Columns, Floats, Instants, Ints, UrlGroups
from service.model.columns import DueColumns


@dataclass(frozen=True, slots=True, kw_only=True)
class FreshnessColumns(DueColumns):
    """(N,) pages with their evidence, by ascending page_id."""

    observability: Codes
    host_id: Ints
    url_group: UrlGroups
    last_observed_at: Instants
    last_interval: Floats
    """Interval that the last answered crawl ended, days; negative if the page had not changed."""
    n_observations: Ints
    n_changes: Ints
    n_pings: Ints
    recent_pings: Floats
    pings_since: Instants
    """Time of the registration, or at which counting of pings began anew."""
    pings_since_crawl: Ints
    last_ping_at: Instants
    real_pings: Floats
    false_pings: Floats
    trust: Floats
    estimate: Floats
    born_at: Instants
    """As in `EpochColumns`."""
    urgency: Floats
    """Urgency in the schedule in force; NaN for a page that no epoch has scheduled, and for one
    whose urgency shifts its crawl by change hours."""
    observed_ratio: Floats
    """As in `ScheduleColumns`; 0 where the urgency shows it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPages(FreshnessColumns):
    """(N,) pages as the gauges of the history need them."""

    importance: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedChanges(Columns):
    """(N,) changes that crawls of pages found after an instant, one instant a page."""

    first_at: Instants
    """Crawl that found the first of these changes; NaT: none."""
    first_interval: Floats
    """Interval that this crawl ended, days; NaN: none."""
    n: Ints
    """Number of these crawls."""
