"""Change hours of hosts in answers, and the crawls of pages that an epoch shifted by them."""

from datetime import datetime, timedelta
from typing import cast

from recrawl_client.wire.change_hours import BusiestAnswer, ChangeHoursAnswer
from service.core.change_hours.profile import Profiles, busiest, intensity
from service.model.arrays import moment
from service.model.columns import OUT_OF_TURN, ChangeHours
from service.model.domain import Epoch, Page

HOURS = 24
DIGITS = 4
"""Decimal places of weights, shares and intensities."""


def encode_change_hours(change_hours: ChangeHours) -> ChangeHoursAnswer | None:
    """Return the change hours of the only host of columns; None for a host without change hours."""
    if not len(change_hours) or change_hours.profile[0, 0] <= 0:
        return None
    profiles = Profiles(change_hours.profile[:1, 1:], change_hours.profile[:1, 0])
    start, end, share = (float(column[0]) for column in busiest(profiles))
    hourly = intensity(profiles)[0].reshape(HOURS, -1).mean(axis=1)
    return ChangeHoursAnswer(
        weight=round(float(profiles.weight[0]), DIGITS),
        busiest=BusiestAnswer(start=start, end=end, share=round(share, DIGITS)),
        intensity=hourly.round(DIGITS).tolist(),
        learnt_at=cast("datetime", moment(change_hours.learnt_at[0])),
    )


def shift_of(page: Page, epoch: Epoch) -> timedelta | None:
    """Return how much later the next crawl of a page is by the change hours of its host.

    None: no change hours count, or the page was crawled after the epoch had read it.
    """
    if page.shift in {None, OUT_OF_TURN} or page.last_crawl_at is None:
        return None
    if epoch.started_at is not None and page.last_crawl_at >= epoch.started_at:
        return None
    return timedelta(minutes=page.shift)
