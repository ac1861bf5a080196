"""A leader on Postgres that is frozen keeps its connections; its lease runs out all the same."""

from contextlib import ExitStack, closing

import psycopg
import pytest
from support.live_server import until
from support.store_cases import T0, register

from service.core.estimators.gamma import Gamma
from service.epochs.plan import Plan
from service.epochs.run import Runner
from service.model.domain import EpochStatus
from service.model.errors import (
    ArchiveRunning,
    EpochRunning,
    LeadershipLost,
    StoreUnavailable,
)
from service.storage import open_store
from service.storage.postgres import leading

LATER = "UPDATE leads SET expires_at = clock_timestamp() - interval '1 second'"
LEASE = "SELECT token, sessions, expires_at > clock_timestamp() FROM leads WHERE name = 'epochs'"
LEADS = {"lead": EpochRunning, "archiving": ArchiveRunning}


@pytest.fixture
def other(postgres_url):
    """Open the store of a second process."""
    with closing(open_store(postgres_url, 2)) as store:
        yield store


@pytest.fixture
def look(postgres_url):
    with closing(psycopg.connect(postgres_url, autocommit=True)) as session:
        yield session.execute


def frozen(store, monkeypatch, name="lead"):
    """Take a lead whose thread does not renew it, as in a stopped process."""
    monkeypatch.setattr(leading, "RENEW_EVERY_S", 3600.0)
    stack = ExitStack()
    return stack, stack.enter_context(getattr(store, name)())


@pytest.mark.parametrize("name", LEADS)
def test_a_lead_whose_lease_has_run_out_is_taken_over(
    postgres_store, other, look, monkeypatch, name
):
    stack, lead = frozen(postgres_store, monkeypatch, name)
    with pytest.raises(LEADS[name]), getattr(other, name)():
        pass
    look(LATER)
    with getattr(other, name)() as successor:
        for _ in range(2):
            with pytest.raises((LeadershipLost, StoreUnavailable)), lead.begin() as tx:
                tx.put_meta("estimator", "late")
        stack.close()  # the sleeper ends its block, and keeps out of the new lead
        with successor.begin() as tx:
            assert tx.estimator() is None
        with pytest.raises(LEADS[name]), getattr(postgres_store, name)():
            pass
    with getattr(postgres_store, name)():
        pass
    assert look("SELECT count(*) FROM leads").fetchone() == (0,)


@pytest.mark.dear
def test_rows_that_a_sleeper_has_locked_are_free_again(postgres_store, other, look, monkeypatch):
    ids = register(postgres_store)
    stack, lead = frozen(postgres_store, monkeypatch)
    sleeping = stack.enter_context(ExitStack())
    tx = sleeping.enter_context(lead.begin())
    tx.run("UPDATE page_states SET n_failures = 7 WHERE page_id = %(id)s", id=int(ids[0]))
    beside = ExitStack()
    of_pool = beside.enter_context(postgres_store.begin())
    of_pool.lock_states(ids[1:])
    heartbeat = lead.heartbeat
    heartbeat.renew()  # names all sessions of the process
    look(LATER)
    with other.lead(), other.begin() as tx:
        tx.hurry()
        assert len(tx.lock_states(ids)) == 3
        assert (tx.lock_states(ids).n_failures == 0).all()
    for each in (stack, beside):
        with pytest.raises((StoreUnavailable, LeadershipLost, psycopg.Error)):
            each.close()


def test_a_sleeper_cannot_publish_and_the_epoch_of_its_successor_stands(
    postgres_store, other, look, monkeypatch
):
    register(postgres_store)
    stack, lead = frozen(postgres_store, monkeypatch)
    with lead.begin() as tx:
        epoch = tx.start_epoch(T0).epoch
    look(LATER)
    published = Runner(other, Plan(Gamma()), T0 - T0, lambda: T0).run_once()
    assert published.status is EpochStatus.published
    with pytest.raises((LeadershipLost, StoreUnavailable)), lead.begin() as tx:
        tx.fail_epoch(epoch, "late", T0)
    stack.close()
    with other.begin(write=False) as tx:
        assert tx.epoch_in_force().epoch == published.epoch
        assert tx.epoch(epoch).status is EpochStatus.failed


def test_a_leader_at_work_renews_its_lease_and_keeps_the_lead(
    postgres_store, other, look, monkeypatch
):
    monkeypatch.setattr(leading, "RENEW_EVERY_S", 0.01)
    with postgres_store.lead() as lead:
        look(LATER)
        until(lambda: look(LEASE).fetchone()[2], "the lease is renewed")
        with pytest.raises(EpochRunning), other.lead():
            pass
        with lead.begin() as tx:
            tx.start_epoch(T0)


def test_a_lease_that_another_process_has_written_is_lost(postgres_store, look):
    with postgres_store.lead() as lead:
        look("UPDATE leads SET token = token + 1")
        lead.heartbeat.renew()
        with pytest.raises(LeadershipLost), lead.begin():
            pass
    look("DELETE FROM leads")


def test_sessions_of_others_are_never_ended(postgres_store, other, look, monkeypatch):
    """A lease whose holder has not the lock ends no session, whatever the lease names."""
    with postgres_store.begin(write=False) as tx:
        (pid,) = tx.run("SELECT pg_backend_pid()").__iter__().__next__()
    look(f"INSERT INTO leads VALUES ('epochs', 1, '[{pid}]', clock_timestamp(), clock_timestamp())")
    with postgres_store.lead():
        look("DELETE FROM leads")  # the moment between the lock and the lease
        look(
            f"INSERT INTO leads VALUES ('epochs', 1, '[{pid + 100000}, {pid}]', "
            "clock_timestamp(), clock_timestamp() - interval '1 hour')"
        )
        with pytest.raises(EpochRunning), other.lead():
            pass
