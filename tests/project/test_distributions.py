"""The four distributions: what each needs, what it holds, what it says of one that is missing."""

import shlex
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from service.cli import plugins

ROOT = Path(__file__).parents[2]
CLIENT = ROOT / "recrawl_client"
OTHERS = ("recrawl_client", "recrawl_cluster", "recrawl_lab")
PROJECTS = {"recrawl": ROOT, **{name: ROOT / name for name in OTHERS}}
HEAVY = {"numpy", "scipy", "sqlalchemy", "pydantic", "fastapi", "typer"}
HEAVY |= {"service", "recrawl_cluster", "recrawl_lab"}


def requirements(project: Path) -> set[str]:
    declared = tomllib.loads((project / "pyproject.toml").read_text())["project"]["dependencies"]
    return {requirement.partition(">")[0] for requirement in declared}


def test_the_client_needs_httpx_msgspec_and_protego_only():
    assert requirements(CLIENT) == {"httpx", "msgspec", "protego"}


def test_the_service_needs_the_client_and_laboratory_and_cluster_need_the_service():
    assert "recrawl-client" in requirements(ROOT)
    assert not requirements(ROOT) & {"recrawl-lab", "recrawl-cluster", "dask", "distributed"}
    for name in ("recrawl_lab", "recrawl_cluster"):
        assert "recrawl" in requirements(PROJECTS[name])
    assert {"dask", "distributed"} <= requirements(PROJECTS["recrawl_cluster"])


def test_no_module_of_the_client_loads_the_service_or_what_only_the_service_needs():
    modules = [
        "recrawl_client." + ".".join(path.relative_to(CLIENT).with_suffix("").parts)
        for path in CLIENT.rglob("*.py")
        if not path.stem.startswith(("__init__", "scrapy"))
    ]
    code = f"import sys, {', '.join(modules)}; print(*sys.modules)"
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=180
    )
    loaded = set(ended.stdout.split())
    assert loaded.issuperset(modules)
    assert not loaded & HEAVY


def test_the_installs_name_every_distribution_of_this_tree():
    paths = shlex.split(plugins.INSTALL)[2:]
    named = {(ROOT / path).resolve() for path in paths}
    assert named == {*PROJECTS.values()} - {PROJECTS["recrawl_cluster"]}
    extra = shlex.split(plugins.INSTALL_CLUSTER)[2].partition("[")[2].rstrip("]")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert extras["optional-dependencies"][extra] == ["recrawl-cluster>=0.1,<1"]


@pytest.fixture
def bare(monkeypatch) -> typer.Typer:
    """A command line beside which nothing else is installed."""
    monkeypatch.setattr(plugins, "entry_points", lambda **_: ())
    app = typer.Typer(context_settings={"help_option_names": ["-h", "--help"]})
    app.command()(lambda: None)
    plugins.add_commands(app)
    return app


@pytest.mark.parametrize("name", plugins.LABORATORY)
@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"], ["--pages", "7", "x"]])
def test_without_the_laboratory_its_commands_name_their_install(bare, name, arguments):
    ended = CliRunner().invoke(bare, [name, *arguments])
    assert ended.exit_code == 2
    sentence = " ".join(ended.stderr.replace("│", " ").split())
    assert f"`recrawl {name}` is part of the laboratory" in sentence
    assert f"in a checkout, install it by: {plugins.INSTALL}" in sentence


@pytest.mark.parametrize("arguments", [["status"], ["--help"], ["move", "7", "--to", "x"]])
def test_without_the_cluster_its_command_names_its_install(bare, arguments):
    ended = CliRunner().invoke(bare, ["shards", *arguments])
    assert ended.exit_code == 2
    sentence = " ".join(ended.stderr.replace("│", " ").split())
    assert "`recrawl shards` is for several databases" in sentence
    assert f"install it by: {plugins.INSTALL_CLUSTER}" in sentence


def test_without_the_laboratory_a_folder_is_refused_with_the_install_named(
    recrawl, tmp_path, monkeypatch
):
    monkeypatch.setattr(plugins, "entry_points", lambda **_: ())
    ended = recrawl("import", tmp_path)
    assert ended.status == 2
    assert plugins.INSTALL in " ".join(ended.err.replace("│", " ").split())


BUILD = (sys.executable, "-m", "hatchling", "build")


def built(project: Path, target: str, out: Path) -> Path:
    subprocess.run([*BUILD, "-t", target, "-d", out], cwd=project, check=True)
    (path,) = out.iterdir()
    return path


SAFE = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
"""Arguments of `extractall`, which knows filters from Python 3.11.4 on."""


@pytest.mark.slow
@pytest.mark.parametrize("name", PROJECTS)
def test_a_wheel_of_the_sdist_is_the_wheel_of_the_tree(tmp_path, name):
    sdist = built(PROJECTS[name], "sdist", tmp_path / "sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "unpacked", **SAFE)
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    sources = {"tree": PROJECTS[name], "sdist": unpacked}
    wheels = {
        where: zipfile.ZipFile(built(source, "wheel", tmp_path / where / "wheel"))
        for where, source in sources.items()
    }
    tree, again = ({n: wheel.read(n) for n in wheel.namelist()} for wheel in wheels.values())
    assert again == tree
    package = "service" if name == "recrawl" else name
    assert f"{package}/__init__.py" in tree
    assert not [file for file in tree if file.endswith(".pyc")]
    if name == "recrawl":
        assert "service/migrations/env.py" in tree
        assert not [file for file in tree if file.startswith(("recrawl_client/", "tests/"))]
    if name == "recrawl_lab":
        example = (ROOT / "examples" / "crawler.py").read_bytes()
        assert tree["recrawl_lab/demo/crawler.py"] == example, "the live demo runs it"
