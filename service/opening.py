"""What every process of the service opens before it works, as the settings say, and its end."""

import threading
import time
from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta

import numpy as np

from service.clock import Clock
from service.config import Settings
from service.core.estimators import ESTIMATORS
from service.epoch import Plan, Runner
from service.errors import EstimatorMismatch, RecrawlError
from service.estimates import width
from service.ingest import Rules
from service.storage import Store, SubscriptionStore, migrations, open_store
from service.storage.sqlite import SqliteStore


@dataclass(frozen=True, slots=True)
class Opened:
    """A store that fits the settings, and what works on it; frozen, shared by all threads."""

    store: SubscriptionStore
    plan: Plan
    rules: Rules
    runner: Runner
    now: Clock
    """The store's time."""
    embedded: bool
    """Whether one process is the whole service: on SQLite."""


def opened(
    settings: Settings,
    *,
    now: Clock | None = None,
    rng: np.random.Generator | None = None,
    existing: bool = False,
    batch: bool = True,
) -> Opened:
    """Open the store; whoever asks for it closes it. `now` replaces the store's clock.

    A SQLite file is brought to the revision this code needs, and made where it is not there unless
    it is to be `existing`; a Postgres database must be there. A `batch` takes its time; for callers
    who wait, each statement has the limit of the settings.

    Raises
    ------
    StartupRefused
        The schema is not this version's, the database holds another estimator's states, or the
        file is not there.
    StoreUnavailable
        The database does not answer.
    """
    url = settings.database_url.get_secret_value()
    asked = plan = settings.plan()
    timeout_s = None if batch else settings.database_timeout_s
    store = open_store(url, width(plan.estimator), clock=now, timeout_s=timeout_s)
    embedded = isinstance(store, SqliteStore)
    try:
        if isinstance(store, SqliteStore):
            if existing:
                store.find()
            migrations.upgrade(store.engine)
        store.check()
        found = _claimed_by(store, plan.estimator.name)
        if settings.estimator is None and found in ESTIMATORS:
            plan = settings.plan(found)
        elif found != plan.estimator.name:
            otherwise = ", or unset RECRAWL_ESTIMATOR" if found in ESTIMATORS else ""
            raise EstimatorMismatch(
                f"the database holds states of estimator {found}, the settings ask for "
                f"{plan.estimator.name}; stop the service and run `recrawl rebuild` to replay the "
                f"log{otherwise}"
            )
    except RecrawlError:
        store.close()
        raise
    if plan != asked:
        store.close()
        store = open_store(url, width(plan.estimator), clock=now, timeout_s=timeout_s)
    rules = Rules(
        plan.estimator, plan.timing, rng or np.random.default_rng(), settings.ping_delay_s
    )
    interval = timedelta(seconds=settings.epoch_interval_s)
    runner = Runner(store, plan, interval, store.clock, settings.politeness())
    return Opened(store, plan, rules, runner, store.clock, embedded)


def joined(threads: Collection[threading.Thread], within_s: float) -> bool:
    """Wait for threads to end, for so many seconds at most; return whether all have."""
    deadline = time.monotonic() + within_s
    for thread in threads:
        thread.join(max(deadline - time.monotonic(), 0.0))
    return not any(thread.is_alive() for thread in threads)


def _claimed_by(store: Store, name: str) -> str:
    """Tell whose states are stored; a store that holds none yet is claimed for an estimator."""
    with store.begin() as tx:
        tx.now()
        stored = tx.estimator()
        if stored is None:
            tx.set_estimator(name)
        return stored or name
