"""The command line: put the parts together and run them."""

import ipaddress
import json
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.text import Text

from service import __version__
from service.cli.demos import demo
from service.cli.experiments import experiment
from service.cli.feeds import sitemap
from service.cli.files import export, import_
from service.cli.hosts import hosts
from service.cli.parts import DatabaseUrl, console, settings
from service.cli.replays import replay
from service.cli.websub import websub
from service.errors import InvalidSettings, RecrawlError

if TYPE_CHECKING:
    from service.config import Settings

LOOK_S = 1.0
"""Time between two looks of a worker at the thread of its rounds, seconds."""
GRACE_S, ABORTED_S = 5.0, 3.0
"""Time for a worker to end its round, and then to notice that it failed, seconds."""

app = typer.Typer(
    name="recrawl",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="markdown",
    help="Decide when to crawl which page again.\n\n"
    "Everything else is set by the environment (or a file .env): RECRAWL_DATABASE_URL, "
    "RECRAWL_BANDWIDTH, RECRAWL_EPOCH_INTERVAL_S, … The README lists them.",
)


def main() -> None:
    """Run a command; one sentence and status 2 end it where it cannot go on.

    That is a condition the service names, or a file or disk that will not be read or written.
    """
    try:
        app()
    except RecrawlError as error:
        refuse(reason(error))
    except OSError as error:
        refuse(f"{error.filename or 'a file'}: {error.strerror or error}")


def reason(error: RecrawlError) -> str:
    """Give its sentence, and what Postgres said when it did not do as asked; no password."""
    cause: BaseException | None = error
    while cause := cause and cause.__cause__:
        orig = getattr(cause, "orig", cause)
        said = getattr(getattr(orig, "diag", None), "message_primary", None)
        if said is None and (found := re.search("FATAL: *(.+)", str(orig))):
            said = found[1]
        if said is not None and said not in error.detail:
            return f"{error.detail} ({said})"
    return error.detail


def refuse(reason: str) -> NoReturn:
    """End with one sentence and status 2."""
    console.print("[bold red]recrawl:[/]", Text(reason), highlight=False, soft_wrap=True)
    sys.exit(2)


def show_version(wanted: bool) -> None:
    """Print the version and stop."""
    if wanted:
        typer.echo(f"recrawl {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="The version.")
    ] = False,
) -> None:
    """Take the options that stand before every command."""


@app.command()
def serve(
    host: Annotated[str, typer.Option(help="Address to listen on")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one")] = 8000,
    database_url: DatabaseUrl = None,
) -> None:
    """Serve the HTTP API.

    On SQLite (the default, ./recrawl.db) this is all there is to run: the file is migrated and
    epochs run in a thread. On Postgres run `recrawl migrate` first and `recrawl worker` beside;
    any number of servers may share one database.
    """
    import uvicorn

    from service.api.app import served
    from service.api.descriptors import max_connections
    from service.api.live import GRACEFUL_S, Announced
    from service.api.service import open_service
    from service.api.wire import Connection
    from service.logs import configure_logging

    chosen = settings(database_url)
    refuse_strangers(host, chosen)
    configure_logging(chosen.log_level)
    service = open_service(chosen)
    config = uvicorn.Config(
        served(service), host=host, port=port, access_log=False, log_level="warning",
        http=Connection, proxy_headers=bool(chosen.trusted_proxies),
        forwarded_allow_ips=list(chosen.trusted_proxies),
        timeout_graceful_shutdown=GRACEFUL_S, server_header=False,
        limit_concurrency=max_connections(),
    )  # fmt: skip
    server = Announced(config, service, lambda url: console.print(f"Recrawl serves at {url}"))
    server.run()
    if not server.started:
        raise typer.Exit(3)


def refuse_strangers(host: str, chosen: "Settings") -> None:
    """Raise `InvalidSettings` where a server without keys would serve everybody.

    That is a key under the name that clients use, or an address that other machines reach.
    """
    if chosen.api_keys:
        return
    if os.environ.get("RECRAWL_API_KEY"):
        raise InvalidSettings(
            "RECRAWL_API_KEY is the key that clients show, and RECRAWL_API_KEYS, which the service "
            "asks for, is not set; set it too, or unset the other"
        )
    if not (chosen.open or is_loopback(host)):
        raise InvalidSettings(
            f"--host {host} admits other machines, and no key is set; set RECRAWL_API_KEYS, or "
            "RECRAWL_OPEN=true where everybody who reaches the port may read and write"
        )


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address.

    >>> [is_loopback(host) for host in ("127.0.0.2", "::1", "localhost", "0.0.0.0", "::", "")]
    [True, True, True, False, False, False]
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@app.command()
def worker(database_url: DatabaseUrl = None) -> None:
    """Run epochs: by the clock, and when POST /epochs asks for one.

    Any number of workers may run; one leads at a time, another takes over when it dies. SIGTERM
    ends an epoch that takes more than 5 s; the next worker starts it over.
    """
    from service.logs import configure_logging
    from service.opening import joined, opened

    chosen = settings(database_url)
    configure_logging(chosen.log_level)
    base = opened(chosen)
    stopping = threading.Event()
    rounds = threading.Thread(target=base.runner.run_every, name="epochs", daemon=True)
    with closing(base.store), stopped_by_signals(stopping.set):
        rounds.start()
        while rounds.is_alive() and not stopping.wait(LOOK_S):
            pass
        base.runner.stop()
        if not joined([rounds], GRACE_S):
            base.store.abort()
            joined([rounds], ABORTED_S)


@app.command()
def migrate(
    database_url: DatabaseUrl = None,
    down: Annotated[
        str | None, typer.Option(help="Go back to this revision instead (`base`: drop everything)")
    ] = None,
) -> None:
    """Bring the database to the schema this version needs."""
    from alembic.util import CommandError

    from service.estimates import width
    from service.storage import migrations, open_store

    chosen = settings(database_url)
    url = chosen.database_url.get_secret_value()
    opened: Any = open_store(url, width(chosen.plan().estimator))
    with closing(opened) as store:
        if down is None:
            migrations.upgrade(store.engine)
        elif not down:
            raise typer.BadParameter("name a revision, or base", param_hint="--down")
        else:
            try:
                migrations.downgrade(store.engine, down)
            except CommandError as error:
                raise typer.BadParameter(str(error), param_hint="--down") from error
        with store.engine.connect() as connection:
            revision = migrations.current(connection)
    typer.echo(f"the database is at revision {revision or 'base'}")


@app.command()
def rebuild(database_url: DatabaseUrl = None) -> None:
    """Replay the kept observation log into fresh estimates, as after a change of estimator.

    Stop the service first. What retention has cut from the log is forgotten by this, and what was
    imported as states, of which there is no log.
    """
    import numpy as np
    from rich.progress import Progress

    from service.clock import system_clock
    from service.estimates import width
    from service.ingest import Rules, rules_in_force
    from service.rebuild import rebuild
    from service.storage import open_store

    chosen = settings(database_url)
    plan = chosen.plan()
    rules = Rules(plan.estimator, plan.timing, np.random.default_rng())
    with closing(
        open_store(chosen.database_url.get_secret_value(), width(plan.estimator))
    ) as store:
        store.check()
        with store.begin(write=False) as tx:
            rules = rules_in_force(tx, rules)
            in_force = tx.epoch_in_force()
        total = in_force.certificate.n_pages if in_force and in_force.certificate else None
        with Progress(console=console) as progress:
            task = progress.add_task(f"rebuilding {plan.estimator.name} states", total=total)
            done = 0
            for n_pages in rebuild(store, rules):
                done += n_pages
                progress.update(task, completed=done)
    typer.echo(f"{done} pages rebuilt at {system_clock():%Y-%m-%d %H:%M:%S}Z")


app.command()(demo)
app.command()(experiment)
app.command()(replay)
app.command(name="import")(import_)
app.command()(export)
app.add_typer(sitemap, name="sitemap")
app.add_typer(hosts, name="hosts")
app.add_typer(websub, name="websub")


@app.command()
def openapi(
    output: Annotated[
        Path | None, typer.Option(help="Write here instead of to standard output")
    ] = None,
    check: Annotated[
        Path | None, typer.Option(help="Compare with this file; status 1 if it differs")
    ] = None,
) -> None:
    """Write the OpenAPI document that clients are generated from."""
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


@contextmanager
def stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Let SIGTERM and SIGINT end a loop after the round it is in."""

    def handle(_signal: int, _frame: object) -> None:
        threading.Thread(target=stop).start()

    previous = {s: signal.signal(s, handle) for s in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for signum, handler in previous.items():
            signal.signal(signum, handler)
