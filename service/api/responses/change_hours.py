"""Change hours of hosts and URL groups in answers, and the crawls that an epoch shifted."""

from datetime import datetime, timedelta
from typing import cast

import numpy as np

from recrawl_client.wire.change_hours import BusiestAnswer, ChangeHoursAnswer
from service.core.change_hours.profile import Profiles, busiest, intensity
from service.model.arrays import Floats, moment
from service.model.columns import OUT_OF_TURN, ChangeHours
from service.model.domain import Epoch, Page
from service.model.urls import bucket, directory, kind
from service.storage import Transaction

HOURS = 24
MOST_GROUPS = 20
"""Maximum number of URL groups in the answer of a host."""
DIGITS = 4
"""Decimal places of weights, shares and intensities."""


def encode_change_hours(change_hours: ChangeHours) -> ChangeHoursAnswer | None:
    """Return the change hours of the only host of columns; None for a host without change hours."""
    if not len(change_hours) or change_hours.profile[0, 0] <= 0:
        return None
    return _answer(change_hours.profile[:1], change_hours.learnt_at[0])


def hours_of_page(tx: Transaction, page: Page) -> ChangeHoursAnswer | None:
    """Return the change hours that a page follows: of its URL group, else of its host."""
    place = directory(page.url)
    group = tx.hours_of_group(page.host_id, bucket(place))
    if len(group) and group.in_force[0]:
        weight = group.profile[0, 0]
        return _answer(group.profile, group.seen_at[0], kind(place)) if weight > 0 else None
    return encode_change_hours(tx.change_hours(np.array([page.host_id])))


def own_hours(tx: Transaction, host_id: int) -> list[ChangeHoursAnswer]:
    """Return the hours of URL groups of a host that keep hours of their own."""
    groups = tx.own_group_hours(host_id, MOST_GROUPS)
    urls = tx.urls_of_pages(groups.page_id)
    rows = ((n, urls.get(page_id)) for n, page_id in enumerate(groups.page_id.tolist()))
    return [
        _answer(groups.profile[n : n + 1], groups.seen_at[n], kind(directory(url)))
        for n, url in rows
        if url is not None
    ]


def _answer(
    profile: Floats, learnt_at: np.datetime64, url_group: str | None = None
) -> ChangeHoursAnswer:
    """Return one profile as an answer."""
    profiles = Profiles(profile[:, 1:], profile[:, 0])
    start, end, share = (float(column[0]) for column in busiest(profiles))
    hourly = intensity(profiles)[0].reshape(HOURS, -1).mean(axis=1)
    return ChangeHoursAnswer(
        weight=round(float(profiles.weight[0]), DIGITS),
        busiest=BusiestAnswer(start=start, end=end, share=round(share, DIGITS)),
        intensity=hourly.round(DIGITS).tolist(),
        learnt_at=cast("datetime", moment(learnt_at)),
        url_group=url_group,
    )


def shift_of(page: Page, epoch: Epoch) -> timedelta | None:
    """Return how much later the next crawl of a page is by its change hours.

    None: no change hours count, or the page was crawled after the epoch had read it.
    """
    if page.shift in {None, OUT_OF_TURN} or page.last_crawl_at is None:
        return None
    if epoch.started_at is not None and page.last_crawl_at >= epoch.started_at:
        return None
    return timedelta(minutes=page.shift)
