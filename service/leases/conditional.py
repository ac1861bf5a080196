"""Conditional requests: which of them carry the validators that the store has. Pure.

A site's 304 is believed as far as it has been right (`ingest.false_304` has what proves it wrong):

1. One request in twenty goes without validators, so that a wrong 304 shows itself.
2. So does the next request of a page whose last crawl was requested and answered 304.
3. For `DISTRUST` after a 304 of a host was proved wrong, no request to the host has validators.
"""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import TypeVar

import numpy as np

from service.model.arrays import NO_TIME, Bools, Instants, instant
from service.storage.pages.validators import StoredValidators
from service.storage.queue.columns import DuePages

PLAIN_SHARE = 0.05
"""Share of the requests without validators."""
DISTRUST_DAYS = 30
"""Time for which a host's 304 is not believed after a proof, days."""
DISTRUST = np.timedelta64(DISTRUST_DAYS, "D")

StoredT = TypeVar("StoredT", StoredValidators, DuePages)


def withheld(stored: StoredT, at: np.datetime64, rng: np.random.Generator) -> Bools:
    """Return which of (N,) pages with validators are requested without them at an instant."""
    has: Bools = (stored.etag != "") | ~np.isnat(stored.last_modified)
    if not has.any():
        return has
    plain: Bools = stored.doubted | distrusted(stored.false_304_at, at)
    plain |= rng.random(len(has)) < PLAIN_SHARE
    return np.logical_and(plain, has)


def distrusted(false_304_at: Instants, at: np.datetime64) -> Bools:
    """Return whether the 304 of each host is not believed, by the times of its proofs.

    A time after now does not count yet: an operator chose it, or a clock ran ahead.
    """
    recent: Bools = (false_304_at > at - DISTRUST) & (false_304_at <= at)
    return recent


def handed_out(stored: StoredT, at: np.datetime64, rng: np.random.Generator) -> StoredT:
    """Return (N,) pages, without the validators of those that are requested without them."""
    plain = withheld(stored, at, rng)
    if not plain.any():
        return stored
    etag = stored.etag.copy()
    etag[plain] = ""
    return replace(stored, etag=etag, last_modified=np.where(plain, NO_TIME, stored.last_modified))


def distrusted_until(false_304_at: datetime | None, now: datetime) -> datetime | None:
    """Return the time from which a host's validators are handed out again; None: they are now."""
    if false_304_at is None or not distrusted(np.array([instant(false_304_at)]), instant(now))[0]:
        return None
    return false_304_at + timedelta(days=DISTRUST_DAYS)
