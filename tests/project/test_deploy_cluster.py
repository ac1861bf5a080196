"""The compose file of several databases, run as processes on four real databases."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
import sqlalchemy as sa
import yaml
from support.access_cases import ADMIN, bearer
from support.compose import check_health, eventually, running, substituted
from support.image import finish
from support.live_server import PATIENCE_S, created, until
from support.nginx import program
from support.processes import free_port
from support.shard_cases import host_in_shards

from recrawl_cluster.epochs.actors import ENVIRONMENT
from recrawl_cluster.store.shard_map import read_map
from service.runtime.settings import Settings

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy/cluster"
COMPOSE = yaml.safe_load((FOLDER / "docker-compose.yml").read_text())
SINGLE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES = COMPOSE["services"]
DATABASES = ("postgres-1", "postgres-2", "postgres-3", "postgres-4")
ONE_SHOT = ("migrate", "join")
RECRAWL = (*ONE_SHOT, "api", "worker")
DASK = ("dask-scheduler", "dask-worker")
KEY = "a-key-of-twenty-characters-or-more"
FILE = {"POSTGRES_PASSWORD": "secret", "RECRAWL_API_KEYS": KEY}
SETTINGS = {f"RECRAWL_{name}".upper() for name in Settings.model_fields}


class Here(NamedTuple):
    """What the names and ports of the file are on this machine."""

    folder: Path
    urls: list[str]
    words: dict[str, str]

    def command(self, service: str, **own: str) -> list[str]:
        """Return the command of a service as it is written, with this machine's places."""
        return [self.placed(word, own) for word in SERVICES[service]["command"]]

    def placed(self, word: str, own: dict[str, str]) -> str:
        """Return a word with each name of a place replaced."""
        places = {**self.words, **own}
        return re.sub("|".join(map(re.escape, places)), lambda name: places[name[0]], word)

    def environment(self, service: str) -> dict[str, str]:
        """Return what compose sets for a service by a file .env."""
        named = {
            name: self.placed(substituted(str(value), FILE), {})
            for name, value in SERVICES[service]["environment"].items()
        }
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        home = {name: os.environ[name] for name in ("HOME",) if name in os.environ}
        return home | named | {"PATH": path, "PYTHONPATH": str(ROOT)}

    def finish(self, service: str) -> str:
        """Run a service that ends, twice: the second run changes nothing."""
        for _ in range(2):
            done = subprocess.run(
                self.command(service),
                env=self.environment(service),
                cwd=self.folder,
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
                check=False,
            )
            assert done.returncode == 0, done.stderr
        return done.stdout

    @contextmanager
    def running(self, service: str, **own: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run a service until the block ends."""
        command, environment = self.command(service, **own), self.environment(service)
        with running(command, environment, self.folder) as process:
            yield process


WRITTEN = {
    "api": "8000",
    "other": "8000",
    "worker": "8001",
    "dask": ":8787",
    "first": ":8790",
    "second": ":8790",
}
"""Port of each process in the file."""


def written_at(name: str, port: int) -> str:
    """Return what stands for a port of the file on this machine."""
    return f"127.0.0.1:{port}" if WRITTEN[name].startswith(":") else str(port)


@pytest.fixture
def here(postgres_server: sa.URL, tmp_path: Path) -> Iterator[Here]:
    """Four empty databases, and the file of their map with their addresses."""
    with ExitStack() as stack:
        urls = [stack.enter_context(created(postgres_server)) for _ in DATABASES]
        text = (FOLDER / "cluster.toml").read_text()
        for name, url in zip(DATABASES, urls, strict=True):
            written = f"postgresql://recrawl@{name}/recrawl"
            assert written in text
            text = text.replace(written, url)
        (tmp_path / "cluster.toml").write_text(text)
        (tmp_path / "tmp").mkdir()
        words = {
            "/etc/recrawl/cluster.toml": str(tmp_path / "cluster.toml"),
            "dask-scheduler:8786": f"127.0.0.1:{free_port()}",
            "/tmp": str(tmp_path / "tmp"),
            "0.0.0.0": "127.0.0.1",
        }
        words["8786"] = words["dask-scheduler:8786"].partition(":")[2]
        yield Here(tmp_path, urls, words)


def health_of(service: str) -> list[str]:
    command: list[str] = SERVICES[service]["healthcheck"]["test"]
    assert command[0] == "CMD"
    return command[1:]


@pytest.mark.slow
def test_its_commands_bring_up_four_databases_two_servers_and_epochs_on_dask(here: Here) -> None:
    here.finish("migrate")
    here.finish("join")
    ports = {name: free_port() for name in WRITTEN}
    place = {name: {WRITTEN[name]: written_at(name, port)} for name, port in ports.items()}
    with ExitStack() as stack:
        scheduler = stack.enter_context(here.running("dask-scheduler", **place["dask"]))
        health = f"http://127.0.0.1:{ports['dask']}/health"
        eventually(lambda: httpx.get(health).is_success, scheduler)
        check_health(health_of("dask-scheduler"), ports["dask"], os.environ.copy())
        for name in ("first", "second"):
            worker = stack.enter_context(here.running("dask-worker", **place[name]))
            health = f"http://127.0.0.1:{ports[name]}/health"
            eventually(lambda url=health: httpx.get(url).is_success, worker)
            check_health(health_of("dask-worker"), ports[name], os.environ.copy())
        clients = []
        for name in ("api", "other"):
            api = stack.enter_context(here.running("api", **place[name]))
            client = stack.enter_context(
                httpx.Client(base_url=f"http://127.0.0.1:{ports[name]}", timeout=PATIENCE_S)
            )
            eventually(lambda own=client: own.get("/readyz").is_success, api)
            client.headers["Authorization"] = f"Bearer {KEY}"
            clients.append(client)
        one, other = clients
        leader = stack.enter_context(here.running("worker", **place["worker"]))
        shard_map = read_map(here.folder / "cluster.toml")
        hosts = [host_in_shards(each.shards, shard_map.logical) for each in shard_map.databases]
        pages = [{"url": f"https://{host}/{i}"} for host in hosts for i in range(5)]
        assert one.post("/pages", json=pages).json()["created"] == 20
        at = datetime.now(UTC).isoformat()
        crawls = [{**page, "observed_at": at, "changed": True} for page in pages]
        answer = other.post("/observations", json=crawls)
        assert answer.json()["accepted"] == 20, answer.text
        epoch = other.post("/epochs").json()["epoch"]
        found = eventually(lambda: finished(one, epoch), leader)
        assert found["status"] == "published", found
        items = other.get("/schedule").json()["items"]
        shards = {item["page_id"] >> 42 for item in items}
        assert len(items) == 20
        assert [len(shards & each.shards) for each in shard_map.databases] == [1] * 4
        check_health(health_of("worker"), ports["worker"], os.environ.copy())
        assert "joined" not in here.finish("join"), "no database is new"
        counted = httpx.get(f"http://127.0.0.1:{ports['dask']}/metrics").text
        assert re.search(r'task_prefix_name="PartActor"} [1-9]', counted), "Dask computed it"
    assert leader.returncode in (0, -signal.SIGTERM)


def finished(client: httpx.Client, epoch: int) -> dict[str, Any] | None:
    """Return an epoch that has ended."""
    answer: dict[str, Any] = client.get(f"/epochs/{epoch}").json()
    return answer if answer["status"] in ("published", "failed") else None


def test_it_differs_from_the_file_of_one_database_by_its_parts_alone() -> None:
    for key in ("command", "restart", "shm_size", "healthcheck"):
        assert all(SERVICES[name][key] == SINGLE["services"]["postgres"][key] for name in DATABASES)
    for name in ("migrate", "api", "worker"):
        ours, theirs = SERVICES[name], SINGLE["services"][name]
        for key in ("command", "read_only", "tmpfs", "cap_drop", "security_opt", "env_file"):
            assert ours[key] == theirs[key], (name, key)
    images = {name: service["image"] for name, service in SERVICES.items()}
    assert {images[name] for name in DATABASES} == {SINGLE["services"]["postgres"]["image"]}
    assert {images[name] for name in (*RECRAWL, *DASK)} == {
        f"{SINGLE['services']['api']['image']}-cluster"
    }
    assert (ROOT / "deploy/requirements-cluster.txt").exists()
    assert SERVICES["api"]["build"] == {"context": "../..", "args": {"EXTRA": "cluster"}}


def test_every_variable_is_a_setting_of_what_reads_it() -> None:
    for name in RECRAWL:
        ours = [key for key in SERVICES[name]["environment"] if key.startswith("RECRAWL_")]
        assert set(ours) <= SETTINGS
    for name in DASK:
        named = set(SERVICES[name]["environment"])
        assert named == {"PGPASSWORD", *ENVIRONMENT}
        assert SERVICES[name]["environment"].items() >= ENVIRONMENT.items()
    for name in (*RECRAWL, *DASK):
        assert SERVICES[name]["environment"]["PGPASSWORD"].startswith("${POSTGRES_PASSWORD:?")


@pytest.mark.parametrize("name", FILE)
def test_it_does_not_start_without_a_password_and_keys(name: str) -> None:
    ours = SERVICES["api"]["environment"].values()
    assert all(substituted(str(value), FILE) for value in ours)
    with pytest.raises(ValueError, match=f"{name}: set it in .env"):
        [substituted(str(value), FILE | {name: ""}) for value in ours]


def test_the_map_names_the_databases_of_the_file_and_no_password() -> None:
    shard_map = read_map(FOLDER / "cluster.toml")
    urls = [sa.make_url(database.url) for database in shard_map.databases]
    assert tuple(url.host for url in urls) == DATABASES
    for name, url in zip(DATABASES, urls, strict=True):
        environment = SERVICES[name]["environment"]
        assert (url.username, url.database) == (
            environment["POSTGRES_USER"],
            environment["POSTGRES_DB"],
        )
        assert url.password is None
    mounted = dict(volume.split(":", 1) for volume in SERVICES["api"]["volumes"])
    assert mounted == {"./cluster.toml": f"{SERVICES['api']['environment']['RECRAWL_CLUSTER']}:ro"}


def test_things_start_in_the_order_they_need() -> None:
    conditions = {
        name: {on: how["condition"] for on, how in service.get("depends_on", {}).items()}
        for name, service in SERVICES.items()
    }
    done, healthy = "service_completed_successfully", "service_healthy"
    assert conditions["migrate"] == dict.fromkeys(DATABASES, healthy)
    assert conditions["join"] == {"migrate": done}
    assert conditions["api"] == {"join": done}
    assert conditions["worker"] == {"join": done, "dask-scheduler": healthy}
    assert conditions["dask-worker"] == {"dask-scheduler": healthy}
    assert SERVICES["proxy"]["depends_on"]["api"] == {"condition": healthy, "restart": True}
    assert all(
        f"{name}:/var/lib/postgresql/data" in SERVICES[name]["volumes"] for name in DATABASES
    )
    assert COMPOSE["volumes"].keys() == {*DATABASES}


def test_one_port_is_open_to_this_machine_and_none_to_others() -> None:
    ports = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert ports == {"proxy": ["127.0.0.1:${API_PORT:-8000}:8080"]}
    (subnet,) = COMPOSE["networks"]["default"]["ipam"]["config"]
    assert SERVICES["api"]["environment"]["RECRAWL_TRUSTED_PROXIES"] == subnet["subnet"]
    assert "listen 8080;" in (FOLDER / "nginx.conf").read_text()
    assert "./nginx.conf:/etc/nginx/conf.d/default.conf:ro" in SERVICES["proxy"]["volumes"]


def test_nginx_has_the_lines_of_the_page_on_proxies() -> None:
    """The page has TLS, restricts callers and has one server; all other lines are the same."""
    page = (ROOT / "docs/how-to/reverse-proxy.md").read_text()
    lines = re.findall(r"^    ((?:client|proxy)_\w+ .*;)$", page, re.MULTILINE)
    assert len(lines) == 10
    ours = (FOLDER / "nginx.conf").read_text()
    for line in lines:
        assert line.replace("Host $host", "Host $http_host") in ours


@pytest.mark.external
def test_the_proxy_goes_on_with_one_server_when_the_other_has_gone(tmp_path: Path) -> None:
    ports = free_port(), free_port()
    listening = free_port()
    text = (FOLDER / "nginx.conf").read_text()
    for written, real in (
        ("server api:8000;", "".join(f"server 127.0.0.1:{port};" for port in ports)),
        ("listen 8080;", f"listen 127.0.0.1:{listening};"),
    ):
        assert written in text
        text = text.replace(written, real)
    file = tmp_path / "nginx.conf"
    file.write_text(
        f"daemon off; pid {tmp_path}/pid; error_log stderr; events {{}}\n"
        f"http {{ access_log off; client_body_temp_path {tmp_path}/bodies;"
        f" proxy_temp_path {tmp_path}/answers;\n{text}}}"
    )
    serve = [sys.executable, "-m", "service", "serve", "--port"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RECRAWL_API_KEYS": ADMIN}
    folders = tmp_path / "one", tmp_path / "other"
    for folder in folders:
        folder.mkdir()
    finish([program(), "-t", "-c", str(file), "-p", str(tmp_path)])
    with (
        running([*serve, str(ports[0])], environment, folders[0]) as one,
        running([*serve, str(ports[1])], environment, folders[1]) as other,
        running([program(), "-c", str(file), "-p", str(tmp_path)], environment, tmp_path) as nginx,
        httpx.Client(base_url=f"http://127.0.0.1:{listening}", timeout=PATIENCE_S) as client,
    ):
        client.headers.update(bearer(ADMIN))
        for process, port in zip((one, other), ports, strict=True):
            eventually(lambda p=port: httpx.get(f"http://127.0.0.1:{p}/readyz").is_success, process)
        until(lambda: client.get("/readyz").is_success, "nginx serves")
        one.kill()
        one.wait()
        answers = [
            client.post("/pages", json=[{"url": f"https://a.example/{i}"}]) for i in range(40)
        ]
        assert {answer.status_code for answer in answers} == {200}
        assert nginx.poll() is None
