"""Databases of other encodings, and poolers that give sessions away between transactions."""

import subprocess
import tempfile
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa
from support import apt
from support.live_server import command, created, until
from support.processes import free_port

from service.model.errors import DatabaseUnsuitable
from service.storage import open_store
from service.storage.postgres.connections import translated
from service.storage.postgres.sessions import SHARED, check_own


@contextmanager
def encoded(server, encoding):
    """Create a database of an encoding, and drop it after the block."""
    with created(server) as url:
        name = sa.make_url(url).database
        command(server, f"DROP DATABASE {name}")
        command(server, f"CREATE DATABASE {name} TEMPLATE template0 LOCALE 'C' {encoding}")
        yield url


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_a_database_of_another_encoding_is_refused_with_the_remedy(
    recrawl, postgres_server, encoding
):
    with encoded(postgres_server, f"ENCODING '{encoding}'") as url:
        for verb in ("serve", "worker", "migrate", "rebuild"):
            sentence = recrawl(verb, database_url=url).refusal()
            assert f"has the encoding {encoding}, and Recrawl needs UTF8; make another" in sentence
            assert "`createdb -E UTF8 -T template0 --locale=C NAME`" in sentence


def test_a_database_made_as_the_remedy_states_is_taken(recrawl, postgres_server):
    with encoded(postgres_server, "ENCODING 'UTF8'") as url:
        assert recrawl("migrate", database_url=url).status == 0
        with closing(open_store(url, 2)) as store:
            store.check()


class Pooled:
    """A client of a pooler whose transactions run on these sessions, the last one for ever."""

    def __init__(self, *sessions, own=1):
        self.sessions = list(sessions)
        self.pgconn = type("PgConn", (), {"backend_pid": own})

    def execute(self, _statement):
        number = self.sessions[0] if len(self.sessions) == 1 else self.sessions.pop(0)
        return type("Cursor", (), {"fetchone": lambda _: (number,)})()

    def rollback(self):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


@pytest.mark.parametrize(
    ("first", "other", "shared"),
    [
        ([1], None, False),  # no pooler: the number is the session's own
        ([7], [8], False),  # a pooler that keeps sessions
        ([7], [7], True),  # the other client gets the session that became free
        ([7, 9], [8], True),  # the next transaction gets another session
    ],
)
def test_a_session_that_changes_between_transactions_is_refused(first, other, shared):
    if not shared:
        check_own(Pooled(*first), lambda: Pooled(*other))
        return
    with pytest.raises(DatabaseUnsuitable, match="pool_mode=session"):
        check_own(Pooled(*first), lambda: Pooled(*other))


def test_a_session_that_another_client_has_used_is_named():
    with pytest.raises(DatabaseUnsuitable) as refused, translated():
        raise psycopg.errors.DuplicatePreparedStatement
    assert str(refused.value) == SHARED


@contextmanager
def pgbouncer(folder, url, mode, *settings):
    """Run PgBouncer before a server; yield the address of the database through it."""
    program = apt.program("pgbouncer", "pgbouncer")
    behind, port = sa.make_url(url), free_port()
    server = f"host={behind.host or '127.0.0.1'} port={behind.port or 5432}"
    user = behind.username or psycopg.connect(url).info.user
    lines = [
        "[databases]",
        f"* = {server} user={user}" + (f" password={behind.password}" if behind.password else ""),
        "[pgbouncer]",
        "listen_addr = 127.0.0.1",
        f"listen_port = {port}",
        "unix_socket_dir =",
        "auth_type = any",
        f"pool_mode = {mode}",
        *settings,
    ]
    file = folder / "pgbouncer.ini"
    file.write_text("\n".join(lines))
    folder.chmod(0o755)
    process = subprocess.Popen([program, "-q", "-u", "nobody", str(file)])
    through = behind.set(host="127.0.0.1", port=port, username=user, password=None)
    address = through.render_as_string(hide_password=False)
    try:
        until(lambda: answers(address), "PgBouncer answers")
        yield address
    finally:
        process.terminate()
        process.wait()


def answers(url):
    try:
        psycopg.connect(url).close()
    except psycopg.OperationalError:
        return False
    return True


@pytest.fixture
def readable():
    """A folder that PgBouncer's user may read."""
    with tempfile.TemporaryDirectory(prefix="recrawl-pgbouncer-") as path:
        yield Path(path)


@pytest.mark.external
@pytest.mark.parametrize("settings", [(), ("server_round_robin = 1",), ("default_pool_size = 1",)])
@pytest.mark.parametrize("verb", ["serve", "worker", "migrate"])
def test_pgbouncer_in_transaction_mode_is_refused(recrawl, readable, postgres_url, verb, settings):
    with pgbouncer(readable, postgres_url, "transaction", *settings) as url:
        assert "pool_mode=session" in recrawl(verb, database_url=url).refusal()


@pytest.mark.external
def test_pgbouncer_in_session_mode_is_taken(recrawl, readable, postgres_url):
    with pgbouncer(readable, postgres_url, "session", "default_pool_size = 60") as url:
        assert recrawl("migrate", database_url=url).status == 0
        with closing(open_store(url, 2)) as store:
            store.check()
            with store.begin() as tx:
                tx.keep_console_secret("kept")
