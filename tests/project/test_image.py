"""The image is built from the Dockerfile, and its commands run from it on a real Postgres."""

import logging
import os
import re
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import psycopg
import pytest
from support import image as builder
from support.image import CannotBuild, Container, container
from support.live_server import PATIENCE_S, until
from support.own_postgres import OwnPostgres, own_postgres
from support.processes import ENDS_WITHIN_S, free_port

pytestmark = [pytest.mark.slow, pytest.mark.external]

LOG = logging.getLogger(__name__)
KEY = "a-key-of-twenty-characters-or-more"
MAX_OURS = 350e6
"""Maximum size of the layers above the base, bytes."""
UNCHECKED_HASH = (1).to_bytes(4, "little")
"""Flags of bytecode that no date of its source invalidates (PEP 552)."""


@pytest.fixture(scope="module")
def image() -> Iterator[Container]:
    """A container of the image; a machine that cannot build it fails the tests by name."""
    try:
        builder.prepare()
    except CannotBuild as error:
        pytest.fail(str(error))
    with builder.alone():
        began = time.monotonic()
        builder.build()
        LOG.info("built in %.0f s", time.monotonic() - began)
        with container() as ours:
            yield ours


@pytest.fixture(scope="module")
def cluster() -> Iterator[OwnPostgres]:
    """A Postgres that listens to TCP, as containers do not see the socket of another."""
    with own_postgres() as server:
        yield server


@pytest.fixture
def database(cluster: OwnPostgres) -> str:
    """An empty database of the cluster."""
    url = cluster.url.set(database=f"image_{uuid.uuid4().hex}")
    with psycopg.connect(cluster.url.render_as_string(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {url.database}")
    return url.render_as_string()


def finished(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


@contextmanager
def running(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(ENDS_WITHIN_S)


def answers(url: str, process: subprocess.Popen[bytes], log: Path) -> bool:
    assert process.poll() is None, log.read_text()
    try:
        return httpx.get(f"{url}/readyz").is_success
    except httpx.TransportError:
        return False


def on_port(words: list[str], port: int) -> list[str]:
    return [word.replace("8000", str(port)) for word in words]


def test_the_layers_above_the_base_are_small(image: Container) -> None:
    (_, base), *ours = builder.layers()
    LOG.info("%6.1f MB  the base", base / 1e6)
    for step, size in ours:
        LOG.info("%6.1f MB  %s", size / 1e6, step.removeprefix("/bin/sh -c ")[:60])
    assert sum(size for _, size in ours) <= MAX_OURS
    packages = {path.name for path in image.root.glob("opt/recrawl/lib/python*/site-packages/*")}
    assert {"service", "recrawl_client", "numpy"} <= packages
    assert not packages & {
        "pyarrow",
        "numba",
        "pip",
        "pytest",
        "recrawl_cluster",
        "recrawl_lab",
        "hatchling",
    }
    assert not [*image.root.glob("opt/recrawl/lib/python*/site-packages/scipy/**/tests")]


def test_the_bytecode_does_not_depend_on_the_time_of_the_build(image: Container) -> None:
    caches = [*image.root.glob("opt/recrawl/lib/python*/site-packages/service/**/*.pyc")]
    assert len(caches) > 100
    assert {path.read_bytes()[4:8] for path in caches} == {UNCHECKED_HASH}


def test_migrate_serve_and_worker_run_from_the_image(
    image: Container, database: str, tmp_path: Path
) -> None:
    env = {"RECRAWL_DATABASE_URL": database, "RECRAWL_API_KEYS": KEY}
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    serve = on_port(image.config["Cmd"], port)
    too_early = finished(image.run(*serve, **env))
    assert too_early.returncode != 0
    assert "run `recrawl migrate`" in too_early.stderr
    migrated = finished(image.run("recrawl", "migrate", **env))
    assert migrated.returncode == 0, migrated.stderr
    log = tmp_path / "serve.log"
    with (
        running(image.run(*serve, **env), log) as api,
        running(image.run("recrawl", "worker", **env), tmp_path / "worker.log") as worker,
        httpx.Client(base_url=url, timeout=PATIENCE_S) as client,
    ):
        until(lambda: answers(url, api, log), "the server is ready")
        client.headers["Authorization"] = f"Bearer {KEY}"
        pages = [{"url": f"https://example.com/{i}"} for i in range(10)]
        assert client.post("/pages", json=pages).json()["created"] == 10
        epoch = client.post("/epochs").json()["epoch"]
        until(
            lambda: client.get(f"/epochs/{epoch}").json()["status"] == "published",
            "the worker has published",
        )
        assert len(client.get("/schedule").json()["items"]) == 10
        assert worker.poll() is None
        kind, *check = on_port(image.config["Healthcheck"]["Test"], port)
        assert kind == "CMD"
        assert finished(image.run(*check)).returncode == 0
    assert finished(image.run(*check)).returncode != 0, "the health check sees that nobody serves"


def test_the_image_runs_without_root_on_files_it_cannot_change(
    image: Container, database: str, tmp_path: Path
) -> None:
    assert image.config["User"] == "10001"
    assert finished(image.run("id", "--user")).stdout.strip() == "10001"
    for path in ("/x", "/opt/recrawl/x", "/data/x"):
        refused = finished(image.run_read_only("touch", path))
        assert refused.returncode != 0
        assert re.search("Read-only file system|Permission denied", refused.stderr), path
    assert finished(image.run_read_only("touch", "/tmp/x")).returncode == 0
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    env = {"RECRAWL_DATABASE_URL": database, "RECRAWL_API_KEYS": KEY}
    migrated = finished(image.run_read_only("recrawl", "migrate", **env))
    assert migrated.returncode == 0, migrated.stderr
    log = tmp_path / "serve.log"
    command = image.run_read_only(*on_port(image.config["Cmd"], port), **env)
    with running(command, log) as process:
        until(lambda: answers(url, process, log), "the server is ready")
        assert httpx.get(f"{url}/hosts").status_code == 401
        headers = {"Authorization": f"Bearer {KEY}"}
        assert httpx.get(f"{url}/hosts", headers=headers).is_success
    assert process.returncode in (0, -signal.SIGTERM), log.read_text()


def test_the_image_serves_nobody_without_keys(image: Container) -> None:
    refused = finished(image.run(*on_port(image.config["Cmd"], free_port())))
    assert refused.returncode != 0
    assert "set RECRAWL_API_KEYS, or RECRAWL_OPEN=true" in refused.stderr


def test_a_volume_at_data_keeps_the_database_of_sqlite(image: Container, tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    log = tmp_path / "serve.log"
    (data := tmp_path / "data").mkdir()
    os.chown(data, 10001, 10001)
    mounted = replace(image, data=data)
    command = mounted.run_read_only(*on_port(image.config["Cmd"], port), RECRAWL_API_KEYS=KEY)
    with running(command, log) as process:
        until(lambda: answers(url, process, log), "the server is ready")
    assert image.config["Volumes"].keys() == {"/data"}
    assert (data / "recrawl.db").stat().st_uid == 10001
