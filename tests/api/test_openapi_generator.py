"""Clients of openapi-generator, made by the commands of the how-to, drive several databases.

Ids of pages begin with the logical shard, so they have more than 32 bits.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from support.apt import install, program
from support.image import finish
from support.npm import NODE
from support.pages import DOCS, blocks
from support.processes import ROOT
from support.receiver import SECRET, receiving
from support.shard_cases import host_in, serving_shards

pytestmark = [pytest.mark.slow, pytest.mark.external]

PROGRAMS = ROOT / "tools" / "openapi-generator"
VALIDATOR = Path("/usr/share/gocode/src/gopkg.in/validator.v2")
"""Debian's copy of the only module that the generated Go imports."""
PACKAGES = {"java": "default-jre-headless", "go": "golang-go"}
PAGE = (DOCS / "how-to" / "crawl-with-your-own-crawler.md").read_text()
(COMMANDS,) = (each.text for each in blocks(PAGE, "sh") if "openapi-generator-cli" in each.text)


@pytest.fixture(scope="module")
def clients(tmp_path_factory) -> Path:
    """Return a folder in which the commands of the page have run, with a Python of its own."""
    for name, package in PACKAGES.items():
        program(name, package)
    folder = tmp_path_factory.mktemp("generated")
    shutil.copytree(ROOT / "openapi", folder / "openapi")
    finish([os.fspath(NODE.parent / "python"), "-m", "venv", f"{folder}/.venv"])
    path = f"{folder}/.venv/bin{os.pathsep}{os.environ['PATH']}"
    ended = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", COMMANDS],
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    assert not re.search("ERROR|collision", ended.stdout + ended.stderr), ended.stdout
    return folder


def drive(command: Sequence[object], folder: Path, urls: Sequence[str]) -> None:
    """Run one of the programs against three databases; check what it reads."""
    url, clock = f"https://{host_in(2)}/news", lambda: datetime.now(UTC)
    options = {"clock": clock, "webhooks_private": True, "embedded": True, "bandwidth": 100.0}
    with receiving() as receiver, serving_shards(folder, urls, **options) as live:
        arguments = [live.url, url, receiver.url, SECRET]
        read = json.loads(finish([*map(str, command), *arguments]))
        (page_id,) = {*read["page_ids"]}
        assert page_id == live.get("/pages", url=url).json()["page_id"] > 2**42
        (hook,) = live.get("/webhooks").json()["items"]
    assert hook["max_items"] == 10
    assert not receiver.faults
    assert read["page_ids"] == [page_id] * 5
    assert {key: value for key, value in read.items() if key != "page_ids"} == {
        "none": None,
        "listed": [page_id],
        "leases_ended": 1,
        "epoch": ["published", 1],
        "max_crawl_rate": None,
        "importance": 3.5,
        "verdicts": [page_id, None],
        "host": [host_in(2), 3],
        "tested": 204,
        "missing": 404,
    }


def test_the_python_drives_several_databases(clients, shard_urls, tmp_path):
    drive([clients / ".venv/bin/python", PROGRAMS / "drive.py"], tmp_path, shard_urls)


def test_every_module_of_the_python_is_imported(clients):
    walk = (
        "import importlib, pkgutil, openapi_client as c\n"
        "names = [m.name for m in pkgutil.walk_packages(c.__path__, 'openapi_client.')]\n"
        "print(len([importlib.import_module(name) for name in names]))"
    )
    schemas = json.loads((ROOT / "openapi/openapi.json").read_text())["components"]["schemas"]
    assert int(finish([f"{clients}/.venv/bin/python", "-W", "error", "-c", walk])) > len(schemas)


def test_the_typescript_compiles_and_drives_several_databases(clients, tool, shard_urls, tmp_path):
    folder = tmp_path / "typescript"
    shutil.copytree(PROGRAMS / "typescript", folder)
    shutil.copytree(clients / "clients/typescript", folder / "client")
    compiled = tool("tsc", "--project", folder)
    assert compiled.returncode == 0, compiled.stdout
    drive([NODE, folder / "out" / "drive.js"], tmp_path, shard_urls)


def test_the_go_compiles_and_drives_several_databases(clients, shard_urls, tmp_path, monkeypatch):
    folder = tmp_path / "go"
    shutil.copytree(clients / "clients/go", folder, ignore=shutil.ignore_patterns("test"))
    shutil.copytree(PROGRAMS / "go", folder / "drive")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("GOFLAGS", "-mod=mod")
    take_validator_of_debian(tmp_path / "validator")
    finish(["go", "vet", "./..."])
    finish(["go", "build", "-o", "drive.out", "./drive"])
    drive([folder / "drive.out"], tmp_path, shard_urls)


def take_validator_of_debian(folder: Path) -> None:
    """Make Go build with Debian's copy where apt-get has it, without a registry of modules."""
    install({os.fspath(VALIDATOR): "golang-gopkg-validator.v2-dev"})
    if VALIDATOR.is_dir():
        name = "gopkg.in/validator.v2"
        shutil.copytree(VALIDATOR, folder, ignore=shutil.ignore_patterns("*_test.go"))
        (folder / "go.mod").write_text(f"module {name}\n")
        finish(["go", "mod", "edit", "-replace", f"{name}={folder}"])
