"""`recrawl serve --processes`: several processes serve one port."""

import shutil
import signal
import socket
import sys
import tempfile
import time
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import structlog
from sqlalchemy import make_url

from service.api.assembly import Service, open_service
from service.api.server import GracefulServer, address_of, bind
from service.cli import reason, refuse
from service.cli.options import console
from service.cli.serving import may_have_keys, mistake_without_keys, server_config
from service.model.errors import InvalidSettings, RecrawlError, StoreUnavailable
from service.runtime.access import open_gate
from service.runtime.bootstrap import configure_logging, opened
from service.runtime.settings import Settings
from service.runtime.siblings import Siblings
from service.runtime.supervisor import Supervisor, follow_parent

RETRY_S = 1.0
"""Time between two attempts of a process to open a database that is away, seconds."""

log = structlog.get_logger()


def serve_in_processes(chosen: Settings, host: str, port: int, n: int) -> int:
    """Serve until a signal comes; return the exit status.

    Raises
    ------
    InvalidSettings
        The database is a file, or there is no key by mistake.
    StartupRefused
        What `opened` and `bind` refuse.
    """
    refuse_file(chosen, n)
    check(chosen, host)
    sockets = bind(host, port)
    folder = shared_folder()
    work = partial(serve_place, chosen, host, port, sockets)
    places = [Siblings(folder, place) for place in range(n)]
    url = address_of(sockets[0])
    supervisor = Supervisor(work, places, lambda: console.print(f"Recrawl serves at {url}"))
    try:
        status = supervisor.run()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if supervisor.signal is not None:  # as a single process ends
        signal.signal(supervisor.signal, signal.SIG_DFL)
        signal.raise_signal(supervisor.signal)
    return status


def refuse_file(chosen: Settings, n: int) -> None:
    """Raise `InvalidSettings` if the database is a file of SQLite."""
    url = make_url(chosen.database_url.get_secret_value())
    if url.get_backend_name() == "sqlite":
        raise InvalidSettings(
            f"--processes {n} needs Postgres, because one process alone writes to a file of "
            "SQLite; leave --processes out, or set RECRAWL_DATABASE_URL=postgresql://…"
        )


def check(chosen: Settings, host: str) -> None:
    """Refuse at once what each process would refuse."""
    mistake = mistake_without_keys(host, chosen)
    if mistake is not None and not may_have_keys(chosen):
        raise mistake
    base = opened(chosen, batch=False)
    try:
        gate = open_gate(base.store, chosen, base.store.clock, chosen.outgoing)
        if mistake is not None and gate.open:
            raise mistake
    finally:
        base.store.close()


def shared_folder() -> Path:
    """Return a new folder for what the processes share; raise `InvalidSettings` without room."""
    try:
        return Path(tempfile.mkdtemp(prefix="recrawl-"))
    except OSError as error:
        raise InvalidSettings(
            f"--processes needs a folder for temporary files: {error.strerror}; set TMPDIR to a "
            "folder that the service may write to"
        ) from error


def serve_place(
    chosen: Settings,
    host: str,
    port: int,
    sockets: list[socket.socket],
    siblings: Siblings,
    news: Connection,
) -> None:
    """Serve in one of several processes; send its parent its place when it is ready."""
    follow_parent()
    configure_logging(chosen.log_level)
    try:
        service = open_patiently(chosen, siblings)
    except RecrawlError as error:
        refuse(reason(error))
    config = server_config(service, chosen, host, port)
    server = GracefulServer(config, service, lambda _: news.send(siblings.place))
    server.run(sockets)
    if not server.started:
        sys.exit(3)


def open_patiently(chosen: Settings, siblings: Siblings) -> Service:
    """Return the service once the database answers; the other processes go on meanwhile."""
    while True:
        try:
            return open_service(chosen, siblings=siblings)
        except StoreUnavailable as error:
            log.warning("the database is away; trying again", reason=str(error))
            time.sleep(RETRY_S)
