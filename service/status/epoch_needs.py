"""Needs of epochs. Pure."""

from collections.abc import Iterator
from datetime import timedelta

from service.status.facts import PATIENCE, Facts
from service.status.kinds import Found, NeedKind, length_in_words

LATE_AFTER = 3
"""Number of intervals after which an epoch is late, as in the alert `RecrawlEpochOld`."""
LEAST_LATE = timedelta(minutes=2)
"""Minimum time after which an epoch is late, however short the interval is."""


def epochs_failing(facts: Facts) -> Iterator[Found]:
    """Yield that the last epochs failed; one that died with its worker and runs again is none."""
    n, since, reason = facts.epochs.failures
    if since is not None and (n > 1 or not facts.epochs.runs):
        epochs = "the last epoch" if n == 1 else f"the last {n:,} epochs"
        yield Found("epochs", since, {"epochs": epochs, "reason": (reason or "").rstrip(".")})


EPOCH_FAILING = NeedKind(
    "epoch_failing",
    epochs_failing,
    "Mend the cause, because {epochs} failed: {reason}. The old schedule stays in force.",
    "recrawl epochs --limit 5",
)


def epochs_late(facts: Facts) -> Iterator[Found]:
    """Yield that no epoch has begun for several intervals, or that one does not end."""
    epochs = facts.epochs
    act = "See the log of the server" if epochs.in_server else "Start a worker"
    values = {"act": act, "interval": length_in_words(epochs.interval)}
    remedy = "recrawl epochs --limit 5" if epochs.in_server else "recrawl worker"
    if epochs.began_at is None:
        since, what = epochs.first_page_at, "no epoch has ever begun"
        late = since is not None and facts.at - since >= first_epoch_late(epochs.interval)
    else:
        since, ago = epochs.began_at + epochs.interval, length_in_words(facts.at - epochs.began_at)
        what = f"an epoch has run for {ago}" if epochs.runs else f"no epoch has begun for {ago}"
        late = facts.at - epochs.began_at > epoch_late(epochs.interval)
    if late and since is not None:
        yield Found("epochs", since, {**values, "what": what, "remedy": remedy})


EPOCH_LATE = NeedKind(
    "epoch_late",
    epochs_late,
    "{act}: {what}, and one is due every {interval}.",
    "{remedy}",
)


def epoch_late(interval: timedelta) -> timedelta:
    """Return the time from the begin of an epoch after which the next one is late."""
    return max(LATE_AFTER * interval, LEAST_LATE)


def first_epoch_late(interval: timedelta) -> timedelta:
    """Return the time from the first page on after which the first epoch is late."""
    return min(epoch_late(interval), PATIENCE)
