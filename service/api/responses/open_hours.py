"""Open hours of hosts and groups as answers show them."""

from datetime import UTC, datetime, timedelta

import numpy as np

from recrawl_client.wire.hosts import OpenHoursAnswer, OpenStretch
from service.core.open_hours import LAST
from service.model.arrays import instant, moment
from service.model.calendars import HourRules, hours_of

SHOWN = timedelta(days=7)
"""Time whose stretches are shown."""


OPEN = OpenHoursAnswer(blackouts=[], is_open=True, share=1.0, week=[])
"""Answer for a host that is open at all times."""


def open_hours_answer(rules: HourRules, now: datetime) -> OpenHoursAnswer | None:
    """Return when a host may be crawled; None: at all times."""
    if rules.is_open:
        return None
    hours, at = hours_of(rules, now), instant(now)
    opens, closes = hours.opens, hours.closes + LAST
    coming = (closes > at) & (opens < instant(now + SHOWN))
    stretches = zip(opens[coming].tolist(), closes[coming].tolist(), strict=True)
    (opens_at,) = hours.opening(np.array([at]))
    (closes_at,) = hours.closing(np.array([at]))
    return OpenHoursAnswer(
        windows=None if rules.windows is None else list(rules.windows),
        blackouts=list(rules.blackouts),
        is_open=bool(opens_at == at),
        opens_at=None if opens_at in (at, hours.until) else moment(opens_at),
        closes_at=None if closes_at >= hours.until else moment(closes_at),
        share=0.0 if hours.is_never_open else hours.share,
        week=[OpenStretch(opens_at=_utc(begin), closes_at=_utc(end)) for begin, end in stretches],
    )


def _utc(at: datetime) -> datetime:
    return at.replace(tzinfo=UTC)
