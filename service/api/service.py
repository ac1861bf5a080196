"""What every route works with: one service, put together from the settings."""

import asyncio
import gc
import hashlib
import hmac
import threading
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Annotated

import numpy as np
from fastapi import Depends, Request

from service.api.bodies import Body, read_body
from service.api.gathering import Gathering
from service.api.keychecks import KeyChecks
from service.api.looks import Look
from service.api.watch import Watch
from service.clock import Clock
from service.commits import Commits
from service.config import Settings
from service.crawls import Desk
from service.epoch import Plan, Runner
from service.errors import OUTAGES, Unauthorized
from service.ingest import Rules
from service.leasing import Leasing
from service.opening import opened
from service.registering import Registering
from service.storage import SubscriptionStore
from service.telemetry import Telemetry

MOST_THREADS = 16
"""Requests at work in threads at once: fewer than a store has connections, so that writers of
evidence always find one."""


@dataclass(frozen=True, slots=True)
class Service:
    """The parts that routes use; frozen, shared by all threads."""

    store: SubscriptionStore
    rules: Rules
    commits: Commits
    gathering: Gathering
    desk: Desk
    leasing: Leasing
    registering: Registering
    lease_ttl: timedelta
    plan: Plan
    runner: Runner
    watch: Watch
    readers: asyncio.Semaphore
    """Requests that read the schedule at a time: on SQLite one, as the driver lets go of the
    interpreter at every row and waits for whoever is encoding meanwhile."""
    readiness: Look
    scraping: Look
    embedded: bool
    """Whether epochs run in a thread of this process."""
    now: Clock
    telemetry: Telemetry
    max_items: int
    max_body_bytes: int
    key_hashes: tuple[bytes, ...]
    key_checks: KeyChecks | None
    """Where IndexNow keys are checked."""


def open_service(
    settings: Settings,
    *,
    now: Clock | None = None,
    rng: np.random.Generator | None = None,
) -> Service:
    """Open the store and put the service together; raises what `opened` does."""
    base = opened(settings, now=now, rng=rng, batch=False)
    store, rules, runner, embedded = base.store, base.rules, base.runner, base.embedded
    now = base.now
    watch, telemetry = Watch(store), Telemetry(store, now)
    polite, (one, other) = settings.politeness(), rules.rng.spawn(2)
    desk = Desk(polite, runner.ahead, one)
    n_writers = 1 if embedded else 2
    commits = Commits(store, rules, desk, n_writers=n_writers, watch=telemetry.count_commit)
    telemetry.watch("recrawl_waiting", "Requests that wait for an epoch", lambda: watch.n_waiting)
    telemetry.watch(
        "recrawl_waiting_items", "Items that wait to be written", lambda: commits.n_waiting
    )
    return Service(
        store=store,
        rules=rules,
        commits=commits,
        gathering=Gathering(commits, telemetry, now),
        desk=desk,
        leasing=Leasing(store, polite, other),
        registering=Registering(store, desk, n_writers),
        lease_ttl=timedelta(seconds=settings.lease_ttl_s),
        plan=base.plan,
        runner=runner,
        watch=watch,
        readers=asyncio.Semaphore(1 if embedded else MOST_THREADS),
        readiness=Look(),
        scraping=Look(),
        embedded=embedded,
        now=now,
        telemetry=telemetry,
        max_items=settings.max_items,
        max_body_bytes=settings.max_body_bytes,
        key_checks=KeyChecks(now) if settings.indexnow_check else None,
        key_hashes=tuple(hashed(key.get_secret_value()) for key in settings.api_keys),
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
    with suppress(*OUTAGES):  # the runner tries again
        service.store.keep_time()
    run = partial(service.runner.run_every, after_each=keep_for_good)
    thread = threading.Thread(target=run, name="epochs", daemon=True)
    thread.start()
    return thread


def keep_for_good() -> None:
    """Spare the garbage collector what was loaded: looking at all of it holds every request up."""
    gc.collect()
    gc.freeze()


TheService = Annotated[Service, Depends(the_service)]
TheBody = Annotated[Body, Depends(read_body)]
