"""What an epoch aims at, as the settings say."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from service.core.estimators import Estimator
from service.model.domain import Timing


@dataclass(frozen=True, slots=True)
class Plan:
    """Aims of an epoch."""

    estimator: Estimator[Any]
    objective: str = "harmonic"
    timing: Timing = Timing.periodic
    bandwidth: float | None = None
    """Crawls a day; None: 0.2 for each page."""
    retention: timedelta | None = None
    """How long the log is kept; None: for ever."""
    url_groups: bool = True
    """Whether the latest crawls of a page's URL group move its next crawl; on periodic clocks only,
    because on Poisson clocks the estimators assume the rates in force."""

    @property
    def with_urgency(self) -> bool:
        """Whether urgency moves the next crawls of pages."""
        return self.url_groups and self.timing is Timing.periodic
