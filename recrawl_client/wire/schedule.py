"""The published schedule and the epochs that published it."""

from datetime import datetime
from typing import Literal

from msgspec import UNSET, Struct, UnsetType


class ScheduledPage(Struct, frozen=True):
    """One row of the published schedule, its due time as of now."""

    page_id: int
    url: str
    importance: float
    change_rate: float
    crawl_rate: float
    crawl_probability: float
    next_crawl_at: datetime | None


class ScheduleAnswer(Struct, frozen=True, kw_only=True):
    """A part of the schedule in force, by ascending page_id."""

    epoch: int | None
    published_at: datetime | None
    bandwidth: float | None
    items: list[ScheduledPage]
    removed: list[int] | UnsetType = UNSET
    """With `since_epoch`: the page_ids that are no longer scheduled."""
    next_cursor: str | None


class Epoch(Struct, frozen=True, kw_only=True):
    """One run of the scheduler; what it has not come to yet is null."""

    epoch: int
    status: Literal["requested", "running", "published", "failed"]
    requested_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    reason: str | None = None
    bandwidth: float | None = None
    bandwidth_used: float | None = None
    multiplier: float | None = None
    harmonic_cost: float | None = None
    binary_cost: float | None = None
    kkt_residual: float | None = None
    passes: int | None = None
    n_pages: int | None = None
    budget_factor: float | None = None
    prior: dict[str, float] | None = None
    seconds: dict[str, float] | None = None


class EpochsAnswer(Struct, frozen=True, kw_only=True):
    """Epochs, newest first."""

    items: list[Epoch]
    next_before: int | None
