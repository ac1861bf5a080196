"""`recrawl keys`: create, list, revoke and rotate API keys in the database.

The commands need the database and no service. So they make the first key, and replace the lost key
of an administrator.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli.confirming import Yes, confirm
from service.cli.options import (
    DatabaseUrl,
    console,
    finite,
    missing_file,
    print_new,
    settings,
)
from service.cli.output import AsJson, echo_lines

if TYPE_CHECKING:
    from service.access.keys import NewKey
    from service.model.access import ApiKey
    from service.storage import Store

keys = typer.Typer(no_args_is_help=True, help="Create, list, revoke and rotate API keys.")

KeyId = Annotated[str, typer.Argument(help="Id of a key: the part after rcr_")]
OF_KEYS = (
    *("key_id", "name", "role", "revoked_at", "hosts", "url_prefixes", "items_per_s"),
    *("last_used_at", "expires_at", "created_at"),
)
"""Columns of the table of keys."""
PART = 1_000
"""Number of keys that one statement lists."""
MAX_DAYS = 36_500
DAY_S = 86_400
NEW = "a service refuses this key unless its RECRAWL_DATABASE_URL names this file"
"""Warning that a key may be in another database than that of the service."""
MAX_NAME = 100
"""Maximum length of a name, characters."""


@keys.command()
def create(
    name: Annotated[str, typer.Argument(help="Name of the key for people")],
    role: Annotated[str, typer.Option(help="read, report, crawl or admin")],
    expires_days: Annotated[
        float | None,
        typer.Option(min=0.001, max=MAX_DAYS, callback=finite, help="Lifetime, days; else no end"),
    ] = None,
    items_per_s: Annotated[
        float | None,
        typer.Option(min=0.001, max=1e6, callback=finite, help="Maximum rate of items, 1/second"),
    ] = None,
    host: Annotated[
        list[str] | None, typer.Option(help="Limit the key to this host; may be repeated")
    ] = None,
    url_prefix: Annotated[
        list[str] | None, typer.Option(help="Limit the key to URLs that begin so; may be repeated")
    ] = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Create a key and print it; it is not shown again.

    The first key closes the service to callers without a key.
    """
    import secrets

    from service.access.keys import KeySettings, create_key

    with opened(database_url, existing=False) as store, store.begin() as tx:
        wish = KeySettings(
            name=checked_name(name),
            role=role_of(role),
            expires_at=None if expires_days is None else tx.now() + timedelta(days=expires_days),
            items_per_s=items_per_s,
            hosts=tuple(host or ()),
            url_prefixes=tuple(url_prefix or ()),
        )
        new = create_key(tx, _actor(), wish, secrets.token_bytes)
    _show(new)


@keys.command(name="list")
def list_(database_url: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """List all keys, revoked and expired ones too."""
    with opened(database_url) as store:
        empty = "no keys in the database; `recrawl keys create` makes one"
        echo_lines(map(_line, _all(store)), *OF_KEYS, as_json=as_json, empty=empty)


def _all(store: "Store") -> "Iterator[ApiKey]":
    """Yield all keys."""
    with store.begin(write=False) as tx:
        after = ""
        while part := tx.keys(after, PART):
            yield from part
            after = part[-1].key_id


@keys.command()
def revoke(key_id: KeyId, yes: Yes = False, database_url: DatabaseUrl = None) -> None:
    """Revoke a key, after a question; every server refuses it within 5 s."""
    from service.access.keys import revoke_key

    with opened(database_url) as store:
        with store.begin(write=False) as tx:
            key = tx.key(key_id)
        used = (
            f"used last at {key.last_used_at:%Y-%m-%d %H:%MZ}" if key.last_used_at else "never used"
        )
        confirm(
            f"this revokes the key {key_id} of {key.name!r}, role {key.role.name}, {used}", yes=yes
        )
        with store.begin() as tx:
            revoke_key(tx, _actor(), key_id)
    typer.echo(f"{key_id}: revoked")


@keys.command()
def rotate(
    key_id: KeyId,
    grace_s: Annotated[
        float,
        typer.Option(
            min=0, max=90 * DAY_S, callback=finite, help="Time for which the old key works, seconds"
        ),
    ] = DAY_S,
    database_url: DatabaseUrl = None,
) -> None:
    """Print a new key with the settings of an old one, which expires after the grace."""
    import secrets

    from service.access.keys import rotate_key

    with opened(database_url) as store, store.begin() as tx:
        new = rotate_key(tx, _actor(), key_id, timedelta(seconds=grace_s), secrets.token_bytes)
    _show(new)
    console.print(f"{key_id} works for {grace_s:g} s more", highlight=False)


@contextmanager
def opened(database_url: str | None, *, existing: bool = True) -> "Iterator[Store]":
    """Yield the store of the settings; raise `SchemaBehind` before its migration.

    Raise `NoDatabase` for a missing SQLite file. Unless it must be `existing`, it is created, as by
    `recrawl serve`, and named.
    """
    from service.estimation.estimates import width
    from service.model.errors import NoDatabase
    from service.storage import open_store

    chosen = settings(database_url)
    url = chosen.database_url.get_secret_value()
    with closing(open_store(url, width(chosen.plan().estimator))) as store:
        try:
            store.prepare(existing=True)
        except NoDatabase:
            if existing:
                raise
            new = missing_file(url)
            store.prepare()
            print_new(new, NEW)
        store.check()
        yield store


def role_of(name: str) -> Any:
    """Return a role by its name."""
    from service.model.access import Role, role_names

    if name not in Role.__members__:
        raise typer.BadParameter(f"{name!r} is no role; use {role_names()}", param_hint="--role")
    return Role[name]


def checked_name(name: str) -> str:
    """Return the name of a key; refuse an empty or long one, and control characters."""
    if not (0 < len(name) <= MAX_NAME and name.isprintable()):
        raise typer.BadParameter(f"use 1 to {MAX_NAME} printable characters", param_hint="NAME")
    return name


def _actor() -> Any:
    from service.model.access import Actor

    return Actor("command-line")


def _show(new: "NewKey") -> None:
    """Print the key alone to standard output, and its id for people to standard error."""
    typer.echo(new.text)
    console.print(
        f"key {new.key.key_id} of role {new.key.role.name}; it is not shown again", highlight=False
    )


def _line(key: "ApiKey") -> dict[str, Any]:
    from msgspec import to_builtins

    from service.access.keys import shown

    fields = {"key_id": key.key_id, **shown(key)}
    instants = {"created_at": key.created_at, "last_used_at": key.last_used_at}
    builtins: dict[str, Any] = to_builtins({**fields, **instants})
    return builtins
