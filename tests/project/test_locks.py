"""The pins of the image satisfy pyproject.toml, and each names the hashes of its files."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = PROJECT["project"]["optional-dependencies"]
DEPENDENCIES = PROJECT["project"]["dependencies"] + EXTRAS["jwt"]
"""Requirements of the service and of tokens, which each image has."""
CLUSTER = tomllib.loads((ROOT / "recrawl_cluster" / "pyproject.toml").read_text())["project"]
OURS = {"recrawl", "recrawl-client"}
"""Distributions that the image builds from the tree."""
LOCKS = {
    "requirements.txt": DEPENDENCIES,
    "requirements-arrow.txt": DEPENDENCIES + EXTRAS["arrow"],
    "requirements-s3.txt": DEPENDENCIES + EXTRAS["arrow"] + EXTRAS["s3"],
    "requirements-cluster.txt": DEPENDENCIES + EXTRAS["arrow"] + CLUSTER["dependencies"],
    "requirements-otel.txt": DEPENDENCIES + EXTRAS["otel"],
    "requirements-build.txt": PROJECT["build-system"]["requires"],
}
"""Each lock with the requirements that it pins."""


def pins(name: str) -> dict[str, str]:
    """Return the version of each pinned distribution."""
    text = (ROOT / "deploy" / name).read_text()
    pinned = re.findall(r"^([a-z0-9-]+)==(\S+)", text, re.MULTILINE)
    assert len(pinned) == len(dict(pinned))
    return dict(pinned)


@pytest.mark.parametrize("name", LOCKS)
def test_every_requirement_is_pinned_within_its_bounds(name: str) -> None:
    versions = pins(name)
    for line in LOCKS[name]:
        requirement = Requirement(line)
        project = canonicalize_name(requirement.name)
        if project not in OURS:
            assert project in versions, f"{line} is not pinned: run `make lock`"
            assert requirement.specifier.contains(versions[project]), f"{line}: run `make lock`"


@pytest.mark.parametrize("name", LOCKS)
def test_every_pin_has_hashes_and_no_line_names_a_host(name: str) -> None:
    text = (ROOT / "deploy" / name).read_text()
    entries = re.split(
        r"^(?=[a-z])", re.sub(r"^ *#.*\n?", "", text, flags=re.MULTILINE), flags=re.MULTILINE
    )
    for entry in filter(None, entries):
        assert re.fullmatch(r"\S+==\S+( \\\n    --hash=sha256:[0-9a-f]{64})+\n*", entry), entry[:80]
    assert "//" not in text


def test_arrow_adds_two_distributions_and_changes_no_pin() -> None:
    service, arrow = pins("requirements.txt"), pins("requirements-arrow.txt")
    assert {name: arrow.get(name) for name in service} == service
    assert arrow.keys() - service.keys() == {"fsspec", "pyarrow"}


def test_s3_adds_s3fs_and_what_it_needs_and_changes_no_pin() -> None:
    arrow, s3 = pins("requirements-arrow.txt"), pins("requirements-s3.txt")
    assert {name: s3.get(name) for name in arrow} == arrow
    own = {"s3fs", "aiobotocore", "botocore", "jmespath", "python-dateutil", "six", "urllib3"}
    aiohttp = {"aiohttp", "aiohappyeyeballs", "aioitertools", "aiosignal", "attrs", "frozenlist"}
    assert s3.keys() - arrow.keys() == own | aiohttp | {"multidict", "propcache", "wrapt", "yarl"}


def test_traces_add_opentelemetry_and_what_it_needs_and_change_no_pin() -> None:
    service, otel = pins("requirements.txt"), pins("requirements-otel.txt")
    assert {name: otel.get(name) for name in service} == service
    own = {name for name in otel.keys() - service.keys() if not name.startswith("opentelemetry-")}
    http = {"charset-normalizer", "requests", "urllib3"}
    assert own == http | {"googleapis-common-protos", "protobuf"}


def test_the_cluster_adds_dask_to_arrow_and_changes_no_pin() -> None:
    arrow, cluster = pins("requirements-arrow.txt"), pins("requirements-cluster.txt")
    assert {name: cluster.get(name) for name in arrow} == arrow
    own = {"cloudpickle", "dask", "distributed", "locket", "partd", "toolz", "zict"}
    carried = {"importlib-metadata", "lazy-importer", "msgpack", "packaging", "psutil"}
    carried |= {"sortedcontainers", "tblib", "tornado", "zipp"}
    assert cluster.keys() - arrow.keys() == own | carried


def test_the_image_installs_what_is_pinned_and_nothing_else() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    installs = re.findall(r"pip (?:--python \S+ )?install [^&\n]+", dockerfile)
    assert len(installs) == 3
    assert all("--require-hashes" in line or "--no-index" in line for line in installs)
    assert "--no-build-isolation" in dockerfile
