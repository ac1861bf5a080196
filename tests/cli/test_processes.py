"""`recrawl serve --processes`: one port, one set of metrics, limits that hold for all processes."""

import os
import re
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import httpx
import psycopg
import pytest
from support.live_server import PATIENCE_S, cloned, until
from support.processes import free_port, started

KEY = "a-key-of-twenty-characters-or-more"
ACCEPTED_LINE = 'recrawl_items_total{kind="observation",outcome="accepted"}'
ACCEPTED = re.escape(ACCEPTED_LINE)
N = 2
STARTS_WITHIN_S = 900.0
"""Maximum time for processes to begin, seconds: each needs some seconds of a busy machine."""


def test_a_file_of_sqlite_is_refused_with_the_remedy(recrawl, sqlite_url):
    refusal = recrawl("serve", "--processes", N, "--port", 0, database_url=sqlite_url).refusal()
    assert "--processes 2 needs Postgres" in refusal
    assert "leave --processes out, or set RECRAWL_DATABASE_URL=postgresql://" in refusal


def test_what_every_process_would_refuse_is_refused_once(recrawl, empty_postgres_url):
    ended = recrawl("serve", "--processes", N, "--port", 0, database_url=empty_postgres_url)
    assert ended.status == 2
    assert ended.err.count("recrawl migrate") == 1


@dataclass
class Server:
    """A server of several processes; each client is a connection of its own."""

    url: str
    parent: int
    log: Path

    def client(self) -> httpx.Client:
        headers = {"Authorization": f"Bearer {KEY}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=PATIENCE_S)

    def children(self) -> list[int]:
        """Return the processes that serve."""
        listed = Path(f"/proc/{self.parent}/task/{self.parent}/children").read_text().split()
        names = {int(pid): Path(f"/proc/{pid}/cmdline").read_text() for pid in listed}
        return sorted(pid for pid, name in names.items() if "spawn_main" in name)

    def metric(self, line: str) -> float:
        """Return the sum of the time series that a pattern matches."""
        with self.client() as client:
            text = client.get("/metrics").text
        return sum(map(float, re.findall(rf"^{line} (\S+)$", text, re.MULTILINE)))

    def ready(self) -> bool:
        return "Recrawl serves at" in self.log.read_text()


@contextmanager
def serving(folder: Path, url: str, **settings) -> Iterator[Server]:
    port = free_port()
    options = ("serve", "--port", str(port), "--processes", str(N))
    with started(folder, *options, database_url=url, api_keys=KEY, **settings) as running:
        server = Server(f"http://127.0.0.1:{port}", running.popen.pid, running.log)
        until(lambda: server.ready() or running.ended(), "all processes serve", STARTS_WITHIN_S)
        assert server.ready(), running.log.read_text()
        yield server
        if not running.ended():
            running.terminate()
        assert "Traceback" not in running.log.read_text()


@pytest.fixture(scope="module")
def server(tmp_path_factory, postgres_server, postgres_template):
    """One server for tests that leave it as they found it: to start it takes seconds."""
    with (
        cloned(postgres_server, postgres_template) as url,
        serving(tmp_path_factory.mktemp("server"), url) as server,
    ):
        yield server


@contextmanager
def one_each(server: Server) -> Iterator[list[httpx.Client]]:
    """Yield a client of each process: two connections whose sockets two processes have."""
    clients: dict[int, httpx.Client] = {}

    def found() -> bool:
        client = server.client()
        client.get("/healthz")
        (stream,) = client._transport._pool.connections  # type: ignore[attr-defined]
        port = stream._connection._network_stream.get_extra_info("client_addr")[1]
        if clients.setdefault(owner_of(server, port), client) is not client:
            client.close()
        return len(clients) == N

    try:
        until(found, "each process has a connection", STARTS_WITHIN_S)
        yield list(clients.values())
    finally:
        for client in clients.values():
            client.close()


def owner_of(server: Server, port: int) -> int:
    """Return the process that has the other end of a connection from a local port."""
    own = f":{int(server.url.rpartition(':')[2]):04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    # a table that changes while it is read may have a row twice
    inodes = {r[9] for r in rows if r[1].endswith(own) and r[2].endswith(f":{port:04X}")}
    (inode,) = inodes - {"0"}
    for pid in server.children():
        for each in Path(f"/proc/{pid}/fd").iterdir():
            try:
                if str(each.readlink()) == f"socket:[{inode}]":
                    return pid
            except FileNotFoundError:
                continue
    raise AssertionError(port)


def observed(url: str) -> list[dict[str, object]]:
    return [{"url": url, "observed_at": datetime.now(UTC).isoformat(), "digest": "a"}]


@pytest.mark.slow
def test_requests_at_any_process_are_one_service(server):
    with one_each(server) as (first, second):
        page = first.post("/pages", json=[{"url": "https://a.example/1"}]).json()["page_ids"][0]
        assert second.get(f"/pages/{page}").json()["url"] == "https://a.example/1"

        # counts of both processes are in the metrics of either
        before = server.metric(ACCEPTED)
        for client in (first, second, first):
            assert client.post("/observations", json=observed("https://a.example/1")).is_success
        for client in (first, second):
            text = client.get("/metrics").text
            assert f"{ACCEPTED_LINE} {before + 3}" in text
            assert len(re.findall(r"^process_resident_memory_bytes\{", text, re.MULTILINE)) == N
            assert 'recrawl_build_info{database="postgres"' in text
            assert "pid=" not in text
        until(lambda: server.metric("recrawl_connections") >= N, "all connections are counted")

        # an order of an operator holds at the other process too
        assert first.post("/pause", json={"for_s": 3_600}).is_success
        until(
            lambda: second.post("/leases", json={"count": 1}).json().get("paused_until"),
            "the other process gives no lease",
        )
        assert first.delete("/pause").is_success

        # so does the end of a key
        key = first.post("/keys", json={"name": "k", "role": "read"}).json()
        shown = {"Authorization": f"Bearer {key['key']}"}
        status = lambda: second.get("/pages", headers=shown).status_code  # noqa: E731
        until(lambda: status() == 200, "the other process knows the key")
        assert first.delete(f"/keys/{key['key_id']}").is_success
        until(lambda: status() == 401, "the other process refuses the key")


@pytest.mark.slow
def test_the_rate_of_a_key_holds_for_all_processes(server):
    with one_each(server) as clients:
        made = {"name": "k", "role": "report", "items_per_s": 0.1}
        key = clients[0].post("/keys", json=made).json()["key"]
        shown = {"Authorization": f"Bearer {key}"}

        def send(client):
            item = observed("https://a.example/1")
            return client.post("/observations", json=item, headers=shown).status_code

        until(lambda: all(send(client) != 401 for client in clients), "both know the key")
        # one item a bucket of ten seconds; it has been used by now, whichever process took it
        assert {send(client) for client in clients for _ in range(3)} == {429}


@pytest.mark.slow
@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM])
def test_a_process_that_ends_is_replaced_and_its_counts_stay(server, signum):
    before, first = server.children(), server.metric(ACCEPTED)
    with one_each(server) as clients:
        for client in clients:
            assert client.post("/observations", json=observed("https://a.example/1")).is_success
    assert server.metric(ACCEPTED) == first + N
    os.kill(before[0], signum)
    until(lambda: len(server.children()) == N and before[0] not in server.children(), "replaced")
    with one_each(server) as clients:
        for client in clients:
            assert client.post("/observations", json=observed("https://a.example/1")).is_success
    assert server.metric(ACCEPTED) == first + 2 * N
    assert "a process of the server ended; another one begins" in server.log.read_text()


def answered(client: httpx.Client, items: list[dict[str, object]]) -> int:
    """Return the status of the answer; send again, as clients do, while a process is killed."""
    while True:
        try:
            return client.post("/observations", json=items).status_code
        except (httpx.ReadError, httpx.RemoteProtocolError, httpx.WriteError):
            continue  # a refused connection is an error: the port stays open


@pytest.mark.slow
def test_requests_go_on_while_a_process_is_killed_again_and_again(server):
    statuses: list[int] = []

    def send(n: int) -> None:
        with server.client() as client:
            batches = (observed(f"https://a.example/{n}/{i}") for i in range(60))
            statuses.extend(answered(client, items) for items in batches)

    with ThreadPoolExecutor(4) as pool:
        senders = [pool.submit(send, n) for n in range(4)]
        for _ in range(2):
            victim = server.children()[0]
            os.kill(victim, signal.SIGKILL)
            until(lambda v=victim: len(server.children()) == N and v not in server.children(), "")
        for sender in senders:
            sender.result()
    assert set(statuses) == {200}


@pytest.mark.slow
def test_a_signal_ends_all_processes_in_order(tmp_path, postgres_url):
    with serving(tmp_path, postgres_url) as server:
        children = server.children()
        with ThreadPoolExecutor(1) as pool, one_each(server) as (client, _):
            waits = pool.submit(client.get, "/schedule", params={"wait_s": 30})
            until(lambda: server.metric("recrawl_waiting_requests") == 1, "a request waits")
            os.kill(server.parent, signal.SIGTERM)
            assert waits.result().status_code == 200
        until(lambda: not any(map(alive, [server.parent, *children])), "all have ended")


@pytest.mark.slow
def test_the_processes_end_when_their_parent_is_killed(tmp_path, postgres_url):
    with serving(tmp_path, postgres_url) as server:
        children = server.children()
        os.kill(server.parent, signal.SIGKILL)
        until(lambda: not any(map(alive, children)), "all have ended")


def alive(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.slow
def test_a_process_that_is_replaced_during_an_outage_waits_for_the_database(tmp_path, postgres_url):
    name = psycopg.conninfo.conninfo_to_dict(postgres_url)["dbname"]
    server_url = postgres_url.replace(str(name), "postgres")
    with (
        serving(tmp_path, postgres_url) as server,
        psycopg.connect(server_url, autocommit=True) as admin,
    ):
        admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        try:
            os.kill(server.children()[0], signal.SIGKILL)
            until(lambda: "the database is away" in server.log.read_text(), "it waits")
        finally:
            admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
        with one_each(server) as clients:
            assert all(client.get("/readyz").status_code == 200 for client in clients)
