"""`recrawl serve`, `worker` and `openapi`: run the processes, write the interface."""

import gc
import json
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import structlog
import typer

from service import __version__
from service.cli.options import DatabaseUrl, console, settings
from service.cli.serving import may_have_keys, mistake_without_keys, server_config
from service.model.errors import InvalidSettings, StartupRefused

if TYPE_CHECKING:
    from service.runtime.bootstrap import Opened
    from service.runtime.settings import Settings


Host = Annotated[
    str,
    typer.Option(help="Address to listen on; 0.0.0.0 for all of IPv4, :: for those of IPv6 too"),
]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 for any free port")]


MetricsPort = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=65535,
        help="Port for /healthz, /readyz and /metrics; 0 for any free port  [default: none]",
    ),
]


Processes = Annotated[
    int,
    typer.Option(
        min=1, max=64, help="Processes that serve the port; as many as cores, on Postgres only"
    ),
]


@contextmanager
def quick_imports() -> Iterator[None]:
    """Pause the collection of garbage, which takes a quarter of the time of large imports."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def serve(
    host: Host = "127.0.0.1",
    port: Port = 8000,
    database_url: DatabaseUrl = None,
    processes: Processes = 1,
) -> None:
    """Serve the HTTP API.

    On SQLite (the default, ./recrawl.db) no other command is necessary: this one migrates the file
    and runs epochs in a thread. On Postgres, run `recrawl migrate` first and `recrawl worker` in
    parallel; any number of servers may share one database, and a server may have several processes.
    """
    with quick_imports():
        from service.api.assembly import open_service
        from service.api.server import GracefulServer, bind
        from service.console.app import create_app_with_console  # noqa: F401 - for `server_config`
        from service.runtime.bootstrap import configure_logging, log_unused_proxies

    chosen = settings(database_url)
    if processes > 1:
        from service.cli.processes import serve_in_processes

        configure_logging(chosen.log_level)
        log_unused_proxies(chosen)
        raise typer.Exit(serve_in_processes(chosen, host, port, processes))
    mistake = mistake_without_keys(host, chosen)
    if mistake is not None and not may_have_keys(chosen):
        raise mistake
    configure_logging(chosen.log_level)
    log_unused_proxies(chosen)
    service = open_service(chosen)
    try:
        if mistake is not None and service.gate.open:
            raise mistake
        with service.store.serving():
            config = server_config(service, chosen, host, port)
            sockets = bind(host, port)
            server = GracefulServer(config, service, announce)
            server.run(sockets)
    except StartupRefused:
        service.store.close()
        raise
    if not server.started:
        raise typer.Exit(3)


def announce(url: str) -> None:
    """Print the address of a server that takes requests."""
    console.print(f"Recrawl serves at {url}")


LOOK_S = 1.0
"""Time between two checks that the worker's thread is alive, seconds."""
GRACE_S, ABORTED_S = 5.0, 3.0
"""Maximum time for a worker to end its round, and then to fail after an abort, seconds."""


def worker(
    host: Host = "127.0.0.1", port: MetricsPort = None, database_url: DatabaseUrl = None
) -> None:
    """Run epochs: at regular intervals, and at the request of POST /epochs. Deliver webhooks.

    With RECRAWL_ARCHIVE, one of the workers archives old days of the log. Subscriptions at hubs are
    renewed.

    Any number of workers may run. One worker leads; another one takes over when the leader dies.
    All workers deliver.
    SIGTERM stops an epoch that needs more than 5 s; the next worker starts that epoch again.
    """
    with quick_imports():
        from service.runtime.bootstrap import (
            configure_logging,
            joined,
            log_unused_proxies,
            opened,
            started_tracing,
        )
        from service.runtime.epoch_processes import chosen_processes

    chosen = settings(database_url)
    mistake = None if port is None else mistake_without_keys(host, chosen)
    if mistake is not None and not may_have_keys(chosen):
        raise mistake
    configure_logging(chosen.log_level)
    log_unused_proxies(chosen)
    tracing = started_tracing(chosen)
    processes = chosen_processes(chosen)
    base = opened(chosen, spread=processes.spread)
    log_start(base, chosen)
    stopping = threading.Event()
    rounds = threading.Thread(target=base.runner.run_every, name="epochs", daemon=True)
    deliveries = threading.Thread(target=base.courier.run_every, name="webhooks", daemon=True)
    archiving = threading.Thread(target=base.archivist.run_every, name="archive", daemon=True)
    renewals = threading.Thread(target=base.renewer.run_every, name="websub", daemon=True)
    threads = [rounds, deliveries, archiving, renewals]
    with (
        closing(base.store),
        closing(processes),
        observable(base, chosen, host, port, mistake),
        stopped_by_signals(stopping.set),
    ):
        for thread in threads:
            thread.start()
        while rounds.is_alive() and not stopping.wait(LOOK_S):
            pass
        base.runner.stop()
        base.courier.stop()
        base.archivist.stop()
        base.renewer.stop()
        if not joined(threads, GRACE_S):
            base.store.abort()
            processes.close()
            joined(threads, ABORTED_S)
    if tracing is not None:
        tracing.stop()
    structlog.get_logger().info("worker ended")


@contextmanager
def observable(
    base: "Opened",
    chosen: "Settings",
    host: str,
    port: int | None,
    mistake: InvalidSettings | None,
) -> Iterator[None]:
    """Serve the health and the metrics of a worker until the end of the block, on a port if any.

    Raises
    ------
    InvalidSettings
        The `mistake`, where the database has no keys either.
    AddressUnavailable
        The port is in use, or the worker may not listen there.
    """
    if port is None:  # then the worker need not load the HTTP server
        yield
        return
    from service.api.server import bind
    from service.api.worker_health import serving
    from service.runtime.access import open_gate

    gate = open_gate(base.store, chosen, base.store.clock, chosen.outgoing)
    if mistake is not None and gate.open:
        raise mistake
    with serving(base, gate, chosen.slow_request_s, bind(host, port)) as url:
        console.print(f"Metrics of the worker are at {url}/metrics")
        yield


def log_start(base: "Opened", chosen: "Settings") -> None:
    """Log the settings of a worker without the database's address, which contains a password."""
    structlog.get_logger().info(
        "worker started",
        version=__version__,
        database="sqlite" if base.store.embedded else "postgres",
        estimator=base.plan.estimator.name,
        objective=base.plan.objective,
        epoch_interval_s=chosen.epoch_interval_s,
    )


@contextmanager
def stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` in a thread at SIGTERM and SIGINT; a loop then ends after its round."""

    def handle(_signal: int, _frame: object) -> None:
        threading.Thread(target=stop).start()

    previous = {s: signal.signal(s, handle) for s in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for signum, handler in previous.items():
            signal.signal(signum, handler)


Output = Annotated[Path | None, typer.Option(help="Write here instead of to standard output")]
Check = Annotated[Path | None, typer.Option(help="Compare with this file; status 1 if it differs")]


def openapi(output: Output = None, check: Check = None) -> None:
    """Write the OpenAPI document, from which clients can be generated."""
    from service.api.app import create_app

    document = json.dumps(create_app().openapi(), indent=2, ensure_ascii=False) + "\n"
    if check is not None:
        if not check.is_file() or check.read_bytes() != document.encode():
            console.print(f"{check} differs; run `recrawl openapi --output {check}`")
            raise typer.Exit(1)
    elif output is None:
        typer.echo(document, nl=False)
    else:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(document, "utf-8")
