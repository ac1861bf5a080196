"""Clocks of hosts in answers, and the crawls of pages that an epoch moved by them."""

from datetime import datetime, timedelta
from typing import cast

from recrawl_client.wire.clocks import BusiestAnswer, ClockAnswer
from service.core.clocks.profile import Profiles, busiest, intensity
from service.model.arrays import moment
from service.model.columns import OUT_OF_TURN, ClockColumns
from service.model.domain import Epoch, Page

HOURS = 24
DIGITS = 4
"""Decimal places of weights, shares and intensities."""


def encode_clock(clocks: ClockColumns) -> ClockAnswer | None:
    """Return the clock of the only host of columns; None for a host without a clock."""
    if not len(clocks) or clocks.profile[0, 0] <= 0:
        return None
    profiles = Profiles(clocks.profile[:1, 1:], clocks.profile[:1, 0])
    start, end, share = (float(column[0]) for column in busiest(profiles))
    hourly = intensity(profiles)[0].reshape(HOURS, -1).mean(axis=1)
    return ClockAnswer(
        weight=round(float(profiles.weight[0]), DIGITS),
        busiest=BusiestAnswer(start=start, end=end, share=round(share, DIGITS)),
        intensity=hourly.round(DIGITS).tolist(),
        learnt_at=cast("datetime", moment(clocks.learnt_at[0])),
    )


def move_of(page: Page, epoch: Epoch) -> timedelta | None:
    """Return how much later the next crawl of a page is by the clock of its host.

    None: no clock counts, or the page was crawled after the epoch had read it.
    """
    if page.shift in {None, OUT_OF_TURN} or page.last_crawl_at is None:
        return None
    if epoch.started_at is not None and page.last_crawl_at >= epoch.started_at:
        return None
    return timedelta(minutes=page.shift)
