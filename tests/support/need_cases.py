"""Facts of a service that needs nothing."""

from datetime import UTC, datetime, timedelta

from service.status.facts import CrawlerFacts, EpochFacts, Facts
from service.storage.epochs.contract import EpochFailures

T0 = datetime(2026, 5, 8, 12, tzinfo=UTC)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
STEP = 10 * MINUTE
WELL = Facts(
    at=T0,
    epochs=EpochFacts(STEP, T0, False, EpochFailures(), None, False),
    crawlers=CrawlerFacts(None, None, None, None, None),
    pauses=(),
    webhooks=(),
    subscriptions=(),
    budget=None,
    steps=(),
    stopped=(),
    workers=(),
    returned=(),
    n_workers=0,
    n_leased=0,
    n_running=0,
)
