"""The service behind a real socket: uvicorn in a thread, a clock that tests set, httpx."""

import asyncio
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import numpy as np
import sqlalchemy as sa
import uvicorn
from pydantic import SecretStr
from typing_extensions import override

from service.api.assembly import Service, open_service
from service.api.protocol import BoundedConnection
from service.console.app import create_app_with_console
from service.runtime.settings import PREFIX, Settings, read_settings

START = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
PATIENCE_S = 180.0
"""Maximum wait for an event that comes soon, seconds: enough for a busy machine."""


class Clock:
    """A clock that stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now

    def advance(self, **span: float) -> datetime:
        self.now += timedelta(**span)
        return self.now


@dataclass(frozen=True)
class Live:
    """One running service and a client of it."""

    service: Service
    clock: Clock
    client: httpx.Client
    url: str

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def post(self, path: str, items: Any, **query: Any) -> httpx.Response:
        return self.client.post(path, json=items, params=query)

    def get(self, path: str, **query: Any) -> httpx.Response:
        return self.client.get(path, params=query)

    def register(self, *urls: str, **fields: Any) -> list[int]:
        response = self.post("/pages", [{"url": url, **fields} for url in urls])
        assert response.status_code == 200, response.text
        return response.json()["page_ids"]

    def epoch(self) -> dict[str, Any]:
        """Request an epoch, run the scheduler once, and return the epoch."""
        response = self.client.post("/epochs")
        assert response.status_code == 202, response.text
        self.service.runner.run_once()
        return self.get(response.headers["Location"]).json()

    def schedule(self, **query: Any) -> list[dict[str, Any]]:
        """Return all pages of the schedule, by its cursors."""
        items: list[dict[str, Any]] = []
        cursor = None
        while True:
            parameters = {**query, "cursor": cursor} if cursor else query
            page = self.get("/schedule", **parameters).json()
            items += page["items"]
            cursor = page["next_cursor"]
            if cursor is None:
                return items

    def alive(self) -> bool:
        return self.get("/healthz").status_code == self.get("/readyz").status_code == 200


class PromptServer(uvicorn.Server):
    """A server that starts and ends at once: uvicorn polls, and pauses 0.1 s before its end."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ending = asyncio.Event()
        self.begun = threading.Event()

    @override
    def run(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            super().run(sockets)
        finally:
            self.begun.set()

    @override
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self.loop = asyncio.get_running_loop()
        await super().startup(sockets)
        self.begun.set()

    @override
    async def main_loop(self) -> None:
        await self.on_tick(0)
        await self.ending.wait()

    @override
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for listening in [*self.servers, *(sockets or [])]:
            listening.close()
        state = self.server_state
        for connection in list(state.connections):
            connection.shutdown()
        while state.connections or state.tasks:  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.001)
        for server in self.servers:
            await server.wait_closed()
        await self.lifespan.shutdown()

    def end(self) -> None:
        if self.started:
            self.loop.call_soon_threadsafe(self.ending.set)


_read: dict[str, Settings] = {}
"""Settings by options and variables of the environment: reading them costs 10 ms."""


def settings_of(database_url: str, **options: Any) -> Settings:
    """Return the settings of a service."""
    variables = sorted(pair for pair in os.environ.items() if pair[0].upper().startswith(PREFIX))
    key = repr((database_url.partition(":")[0], variables, sorted(options.items())))
    if key not in _read:
        _read[key] = read_settings(database_url=database_url, **options)
    return _read[key].model_copy(update={"database_url": SecretStr(database_url)})


def lease_freely(live: Live) -> None:
    """Grant leases without a budget; that of the plan stays."""
    live.service.watch.follow = lambda _: None
    live.service.keeper.terms = None


@contextmanager
def running(
    database_url: str,
    *,
    clock: Clock | None = None,
    embedded: bool = False,
    stands_in: bool = False,
    max_connections: int | None = None,
    **options: Any,
) -> Iterator[Live]:
    """Serve this database on a free port; epochs run when the test calls for one, or `embedded`.

    All new pages are due at once, unless the test asks for `admission="learned"`.
    """
    clock = clock or Clock()
    options.setdefault("admission", "all")
    settings = settings_of(database_url, **options)
    service = open_service(settings, now=clock, rng=np.random.default_rng(7))
    service = replace(service, embedded=embedded, stands_in=stands_in)
    config = uvicorn.Config(
        create_app_with_console(service),
        access_log=False,
        log_level="warning",
        server_header=False,
        http=BoundedConnection,
        limit_concurrency=max_connections,
    )
    server = PromptServer(config)
    listening = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    assert server.begun.wait(PATIENCE_S), "the server does not start"
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    headers = {"Authorization": f"Bearer {options['api_keys'][0]}"} if "api_keys" in options else {}
    try:
        with httpx.Client(
            base_url=url, headers=headers, timeout=PATIENCE_S, verify=False
        ) as client:
            yield Live(service, clock, client, url)
    finally:
        server.end()
        thread.join()
        listening.close()


def until(condition: Any, what: str, patience_s: float = PATIENCE_S) -> Any:
    """Poll until the condition is true, and return its value."""
    deadline = time.monotonic() + patience_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited {patience_s} s in vain until {what}"
        time.sleep(0.01)
    return value


@contextmanager
def cloned(server: sa.URL, template: sa.URL) -> Iterator[str]:
    """Create a migrated Postgres database, and drop it after the block."""
    url = server.set(database=f"recrawl_test_{uuid.uuid4().hex}")
    command(server, f"CREATE DATABASE {url.database} TEMPLATE {template.database}")
    command(server, f"ALTER DATABASE {url.database} SET synchronous_commit = off")
    try:
        yield url.render_as_string(hide_password=False)
    finally:
        command(server, f"DROP DATABASE {url.database} WITH (FORCE)")


@contextmanager
def created(server: sa.URL) -> Iterator[str]:
    """Create a Postgres database without tables, and drop it after the block."""
    url = server.set(database=f"recrawl_test_{uuid.uuid4().hex}")
    command(server, f"CREATE DATABASE {url.database}")
    try:
        yield url.render_as_string(hide_password=False)
    finally:
        command(server, f"DROP DATABASE {url.database} WITH (FORCE)")


def command(server: sa.URL, statement: str) -> None:
    """Run one statement that cannot run in a transaction."""
    engine = sa.create_engine(
        server.set(drivername="postgresql+psycopg"),
        poolclass=sa.NullPool,
        isolation_level="AUTOCOMMIT",
    )
    with engine.connect() as connection:
        connection.execute(sa.text(statement))
