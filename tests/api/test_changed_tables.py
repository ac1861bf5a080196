"""Columns that an operator gives another type while the service runs on Postgres."""

import psycopg
import pytest
from support.live_server import running

CHANGES = {
    "page_states": "ALTER TABLE page_states ALTER n_failures TYPE integer",
    "host_queues": "ALTER TABLE host_queues ALTER n_failures TYPE integer",
    "hosts": "ALTER TABLE hosts ALTER host TYPE varchar(400)",
    "due_pages": "ALTER TABLE due_pages ADD more integer DEFAULT 7",
    "pages": "ALTER TABLE pages ALTER url TYPE varchar(4000)",
    "epochs": "ALTER TABLE epochs ALTER status TYPE varchar(40)",
}


@pytest.fixture
def live(empty_postgres_url):
    from service.storage import migrations, open_store

    store = open_store(empty_postgres_url, 2)
    migrations.upgrade(store.engine)
    store.close()
    with running(empty_postgres_url, host_delay_s=0, host_concurrency=0) as live:
        yield live


def use(live, n: int) -> None:
    """Send requests of every kind; all succeed."""
    at = live.clock().isoformat()
    urls = [f"https://{host}{n}.example/" for host in "abc"]
    assert len(live.register(*urls)) == 3
    sent = [
        live.post("/observations", [{"url": url, "observed_at": at, "digest": "1"}]) for url in urls
    ]
    sent.append(live.post("/pings", [{"url": urls[0], "changed_at": at}]))
    leased = live.post("/leases", {"count": 2})
    sent.append(leased)
    report = [
        {"lease": item["lease"], "observed_at": at, "digest": "2"}
        for item in leased.json()["items"]
    ]
    sent.append(live.post("/leases", {"count": 1, "report": report}))
    paths = "/pages", "/hosts", "/schedule", "/epochs", "/leases", "/changes", "/readyz"
    sent += [live.get(path) for path in paths]
    sent.append(live.get("/pages", url=urls[0]))
    assert [(each.request.url.path, each.status_code) for each in sent if each.is_error] == []


@pytest.mark.dear
def test_every_request_succeeds_after_a_column_has_another_type(live):
    live.epoch()
    for n in range(3):
        use(live, n)
    with psycopg.connect(live.service.store.url, autocommit=True) as operator:
        for n, change in enumerate(CHANGES.values()):
            operator.execute(change)
            use(live, 10 + n)
    assert live.epoch()["status"] == "published"
