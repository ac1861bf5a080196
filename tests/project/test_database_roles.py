"""The page on database roles, run on Postgres as it stands: what each role can and cannot do."""

import uuid

import numpy as np
import psycopg
import pytest
import sqlalchemy as sa
from support.access_cases import COMMAND, new_key
from support.feed_cases import change_columns
from support.pages import DOCS, block, shell
from support.store_cases import register

from service.access.audit import write_audit
from service.access.keys import revoke_key
from service.core.estimators.gamma import Gamma
from service.epochs.plan import Plan
from service.epochs.run import run_epoch
from service.model.access import AuditFilter
from service.model.changes import FeedPlace
from service.storage import open_store

PAGE = (DOCS / "how-to" / "database-roles.md").read_text()
ROLES = ("owner", "service", "reader")

pytestmark = pytest.mark.slow


@pytest.fixture
def addresses(empty_postgres_url, tmp_path):
    """Make the roles under names of this test, migrate, and return the address of each role."""
    prefix = f"r{uuid.uuid4().hex[:12]}"
    admin = sa.make_url(empty_postgres_url)
    urls = {
        role: admin.set(username=f"{prefix}_{role}").render_as_string(hide_password=False)
        for role in ROLES
    }

    def run(title):
        text = block(PAGE, title).text.replace("recrawl_", f"{prefix}_")
        with psycopg.connect(empty_postgres_url, autocommit=True) as connection:
            connection.execute(text)

    run("roles")
    shell(block(PAGE, "migrate").text.replace("$OWNER_URL", urls["owner"]), tmp_path)
    run("restrict")
    yield urls
    with psycopg.connect(empty_postgres_url, autocommit=True) as connection:
        for name in (f"{prefix}_{role}" for role in ROLES):
            connection.execute(f"DROP OWNED BY {name} CASCADE")
            connection.execute(f"DROP ROLE {name}")


def refused(url, statement):
    """Return whether a role lacks the right to a statement."""
    with psycopg.connect(url) as connection:
        try:
            connection.execute(statement)
        except psycopg.errors.InsufficientPrivilege:
            return True
    return False


def test_the_service_works_with_its_role_and_cannot_change_the_audit(addresses):
    store = open_store(addresses["service"], 2)
    store.check_ready()
    register(store, 5, importance=np.ones(5))
    for _ in range(4):  # partitions are created, attached and dropped
        epoch = run_epoch(store, Plan(Gamma()), store.clock)
        assert epoch.status.name == "published", epoch.reason
    with store.begin() as tx:
        tx.append_changes(change_columns([1, 2], store.clock()))
    with store.begin(write=False) as tx:
        assert len(tx.changes(FeedPlace(0), 10).changes) == 2
        assert tx.newest_change() <= tx.feed_bounds().latest
        assert not tx.end_stuck_commit()
    _, key_id = new_key(store)
    with store.begin() as tx:
        revoke_key(tx, COMMAND, key_id)
        tx.mark_used([key_id], tx.now())
        write_audit(tx, COMMAND, "page.delete", "https://a.example/")
    with store.begin() as tx:
        assert len(tx.audit(None, 10, AuditFilter())) == 3
        assert tx.cut_audit(tx.now(), 10) == 0
    store.close()
    for statement in (
        "UPDATE audit SET key = 'x'",
        "DELETE FROM audit",
        "TRUNCATE audit",
        "DROP TABLE audit",
        "ALTER TABLE audit DISABLE TRIGGER ALL",
        "DELETE FROM api_keys",
        "DROP TABLE api_keys",
    ):
        assert refused(addresses["service"], statement), statement


def test_the_reader_reads_and_sees_no_key_and_no_secret(addresses):
    for table in ("pages", "page_states", "observations", "schedule", "epochs", "audit", "hosts"):
        assert not refused(addresses["reader"], f"SELECT * FROM {table}")
        assert refused(addresses["reader"], f"DELETE FROM {table}")
    for table in ("api_keys", "websub", "webhooks"):
        assert refused(addresses["reader"], f"SELECT * FROM {table}")
    assert refused(addresses["reader"], "CREATE TABLE mine (x int)")


def test_the_owner_migrates_down_and_up_and_cuts_the_audit(addresses, recrawl):
    with psycopg.connect(addresses["owner"]) as connection:
        connection.execute(block(PAGE, "retention").text)
    down = recrawl("migrate", "--down", "base", "--yes", database_url=addresses["owner"])
    assert down.status == 0, down.err
    assert recrawl("migrate", database_url=addresses["owner"]).status == 0
