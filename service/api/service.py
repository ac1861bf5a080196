"""What every route works with: one service, put together from the settings."""

import hashlib
import hmac
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated

import numpy as np
from fastapi import Depends, Request

from service.api.bodies import Body, read_body
from service.api.keychecks import KeyChecks
from service.api.watch import Watch
from service.commits import Commits
from service.config import Settings
from service.crawls import Desk
from service.epoch import Plan, Runner
from service.errors import EstimatorMismatch, RecrawlError, Unauthorized
from service.estimates import width
from service.ingest import Rules
from service.leasing import Leasing
from service.storage import Store, SubscriptionStore, migrations, open_store
from service.storage.sqlite import SqliteStore
from service.telemetry import Telemetry


@dataclass(frozen=True, slots=True)
class Service:
    """The parts that routes use; frozen, shared by all threads."""

    store: SubscriptionStore
    rules: Rules
    commits: Commits
    desk: Desk
    leasing: Leasing
    lease_ttl: timedelta
    plan: Plan
    runner: Runner
    watch: Watch
    embedded: bool
    """Whether epochs run in a thread of this process."""
    now: Callable[[], datetime]
    telemetry: Telemetry
    max_items: int
    max_body_bytes: int
    key_hashes: tuple[bytes, ...]
    key_checks: KeyChecks | None
    """Where IndexNow keys are checked."""


def system_clock() -> datetime:
    """Give the time of day, UTC."""
    return datetime.now(UTC)


def open_service(
    settings: Settings,
    *,
    now: Callable[[], datetime] = system_clock,
    rng: np.random.Generator | None = None,
) -> Service:
    """Open the store and put the service together.

    A SQLite file is brought to the revision this code needs; a Postgres database must be there.

    Raises
    ------
    StartupRefused
        The schema is behind, or the database holds another estimator's states.
    StoreUnavailable
        The database does not answer.
    """
    plan = settings.plan()
    store = open_store(settings.database_url.get_secret_value(), width(plan.estimator))
    embedded = isinstance(store, SqliteStore)
    try:
        if isinstance(store, SqliteStore):
            migrations.upgrade(store.engine)
        store.check()
        claim_estimator(store, plan.estimator.name)
    except RecrawlError:
        store.close()
        raise
    rules = Rules(
        plan.estimator, plan.timing, rng or np.random.default_rng(), settings.ping_delay_s
    )
    watch, telemetry = Watch(store), Telemetry(store, now)
    interval = timedelta(seconds=settings.epoch_interval_s)
    polite, (one, other) = settings.politeness(), rules.rng.spawn(2)
    runner = Runner(store, plan, interval, now)
    desk = Desk(polite, runner.ahead, one)
    commits = Commits(
        store, rules, desk, n_writers=1 if embedded else 2, watch=telemetry.count_commit
    )
    telemetry.watch("recrawl_waiting", "Requests that wait for an epoch", lambda: watch.n_waiting)
    telemetry.watch(
        "recrawl_waiting_items", "Items that wait to be written", lambda: commits.n_waiting
    )
    return Service(
        store=store,
        rules=rules,
        commits=commits,
        desk=desk,
        leasing=Leasing(store, polite, other),
        lease_ttl=timedelta(seconds=settings.lease_ttl_s),
        plan=plan,
        runner=runner,
        watch=watch,
        embedded=embedded,
        now=now,
        telemetry=telemetry,
        max_items=settings.max_items,
        max_body_bytes=settings.max_body_bytes,
        key_checks=KeyChecks(now) if settings.indexnow_check else None,
        key_hashes=tuple(hashed(key.get_secret_value()) for key in settings.api_keys),
    )


def claim_estimator(store: Store, name: str) -> None:
    """Make sure the stored states are this estimator's; raises `EstimatorMismatch`."""
    with store.begin() as tx:
        stored = tx.estimator()
        if stored is None:
            tx.set_estimator(name)
        elif stored != name:
            raise EstimatorMismatch(
                f"the database holds states of estimator {stored}, the settings ask for {name}; "
                "stop the service and run `recrawl rebuild` to replay the log, or set "
                "RECRAWL_ESTIMATOR back"
            )


def hashed(key: str) -> bytes:
    """Hash an API key; only hashes are kept and compared."""
    return hashlib.sha256(key.encode()).digest()


def the_service(request: Request) -> Service:
    """Give the service of this application."""
    service: Service = request.app.state.service
    return service


def authorised(request: Request) -> None:
    """Let a call with one of the API keys pass; without keys set, every call passes."""
    service = the_service(request)
    if not service.key_hashes:
        return
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    given = hashed(key.strip()) if scheme.lower() == "bearer" else b""
    known = [hmac.compare_digest(given, key_hash) for key_hash in service.key_hashes]
    if not any(known):
        raise Unauthorized


def start_runner(service: Service) -> threading.Thread | None:
    """Run epochs in a thread of this process, if that is this process's part."""
    if not service.embedded:
        return None
    thread = threading.Thread(target=service.runner.run_every, name="epochs", daemon=True)
    thread.start()
    return thread


TheService = Annotated[Service, Depends(the_service)]
TheBody = Annotated[Body, Depends(read_body)]
