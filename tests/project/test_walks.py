"""The modules that one observation, one lease and one epoch run, by running each.

`pytest -s tests/project/test_walks.py` prints the modules.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.dear

ROOT = Path(__file__).parents[2]
APART = ("recrawl_cluster", "recrawl_lab", "recrawl_client", "service.connectors", "service.cli")
"""Packages that no request and no epoch of one database runs."""


@pytest.fixture(scope="module")
def walks():
    """Return the first and the last call in each module, by walk and module."""
    command = [sys.executable, ROOT / "tools/walks.py", "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert ended.returncode == 0, ended.stderr
    observed = {
        name: {module: (first, last) for module, first, last in walk}
        for name, walk in json.loads(ended.stdout).items()
    }
    for name, walk in observed.items():
        print(f"\n{len(walk)} modules run by one {name}", *walk, sep="\n    ")  # noqa: T201
    return observed


def calls(walk, room):
    """Return the places of the first and the last call in a room of the service."""
    spans = [span for module, span in walk.items() if module.startswith(f"service.{room}.")]
    assert spans, f"nothing of {room} runs"
    return min(first for first, _ in spans), max(last for _, last in spans)


def rooms(walk):
    return {module.split(".")[1] for module in walk if module.startswith("service.")}


@pytest.mark.parametrize("walk", ["observation", "lease with report"])
def test_a_report_goes_from_bytes_to_rules_to_storage_and_back(walks, walk):
    """The API decodes, a batch begins, ingest learns, storage writes, and the API answers."""
    of = {
        room: calls(walks[walk], room)
        for room in ("api", "batching", "ingest", "estimation", "storage")
    }
    (api, answer), (_, written) = of["api"], of["storage"]
    assert api < of["batching"][0] < of["ingest"][0] < of["estimation"][0] < written < answer


def test_an_observation_runs_no_room_above_or_beside_its_way(walks):
    assert rooms(walks["observation"]).isdisjoint({"console", "epochs", "events", "transfer"})


def test_a_lease_learns_nothing(walks):
    """A lease reads what crawls and epochs left, so no crawl is judged and nothing is estimated."""
    walk = walks["lease"]
    assert rooms(walk).isdisjoint({"ingest", "estimation", "epochs", "console", "events"})
    (api, answer), (batched, _), (read, _), (_, leased) = (
        calls(walk, room) for room in ("api", "batching", "storage.sqlite", "leases")
    )
    assert api < batched < read < leased < answer


def test_an_epoch_reads_then_estimates_then_allocates_then_writes(walks):
    """An epoch answers no request: neither the API nor the batches of requests run."""
    walk = walks["epoch"]
    assert rooms(walk).isdisjoint({"api", "batching", "ingest", "console", "events"})
    begun, _ = calls(walk, "epochs")
    read, published = calls(walk, "storage")
    estimated, _ = calls(walk, "estimation")
    allocated, solved = calls(walk, "core.allocation")
    assert begun < read < estimated < allocated < solved < published


def test_only_the_page_of_an_operator_runs_the_console(walks):
    assert {name for name, walk in walks.items() if "console" in rooms(walk)} == {"console page"}


def test_one_database_needs_neither_cluster_nor_laboratory_nor_connectors(walks):
    run = {module for name, walk in walks.items() if name != "webhook" for module in walk}
    assert not [module for module in run if module.startswith(APART)]
