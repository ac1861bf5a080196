"""A database with keys, for servers of their own."""

import secrets
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import sqlalchemy as sa

from service.access.keys import KeySettings, create_key
from service.model.access import Actor, Role
from service.storage import Store, migrations, open_store

ADMIN = "an administrator of the environment"
"""Key of the environment."""


def with_keys(url: str, roles: Sequence[Role]) -> list[str]:
    """Migrate a database, and return a new key of each role."""
    driver = "postgresql+psycopg" if url.startswith("postgresql") else "sqlite"
    engine = sa.create_engine(sa.make_url(url).set(drivername=driver), poolclass=sa.NullPool)
    migrations.upgrade(engine)
    with closing(open_store(url, 3)) as store:
        return [new_key(store, role) for role in roles]


def new_key(store: Store, role: Role) -> str:
    """Return the text of a new key."""
    with store.begin() as tx:
        wish = KeySettings(f"{role.name} of a benchmark", role)
        return create_key(tx, Actor("command-line"), wish, secrets.token_bytes).text


def sqlite_url(folder: Path) -> str:
    """Return the URL of a new file."""
    return f"sqlite:///{folder / 'access.db'}"
