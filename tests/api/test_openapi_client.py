"""A client generated from openapi/openapi.json drives the live server."""

import importlib
import json
import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from support.live_server import START, running
from support.pages import DOCS, block

pytestmark = pytest.mark.slow

DOCUMENT = Path(__file__).parents[2] / "openapi" / "openapi.json"
PAGE = (DOCS / "how-to" / "crawl-with-your-own-crawler.md").read_text()
MEDIA_TYPES = {
    "application/x-ndjson",
    "application/xml",
    "text/plain",
    "application/gzip",
    "application/atom+xml",
    "application/rss+xml",
}
"""Further media types of bodies, which the generator does not know."""


@pytest.fixture(scope="module")
def generated(tmp_path_factory):
    """Give the generated package."""
    directory = tmp_path_factory.mktemp("client")
    names = block(PAGE, "openapi-python-client").text
    (directory / "config.yml").write_text(f"{names}\npost_hooks: []\n")
    command = [sys.executable, "-m", "openapi_python_client", "generate"]
    ended = subprocess.run(
        [
            *command,
            "--path",
            DOCUMENT,
            "--output-path",
            directory / "project",
            "--config",
            directory / "config.yml",
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    assert_nothing_dropped(ended.stdout + ended.stderr)
    project = directory / "project"
    assert 'name = "recrawl-http"' in (project / "pyproject.toml").read_text()
    sys.path.insert(0, str(project))
    yield importlib.import_module("recrawl_http")
    sys.path.remove(str(project))


def assert_nothing_dropped(output: str) -> None:
    """Check that the generator left out further media types of bodies, and nothing else."""
    warnings = [line for line in output.splitlines() if line.startswith(("WARNING", "ERROR"))]
    dropped = re.findall(r"^(?:WARNING|ERROR).*\n+(.*)$", output, re.MULTILINE)
    assert len(dropped) == len(warnings)
    assert {line.split()[-1] for line in dropped} <= MEDIA_TYPES, output
    assert all(line.startswith("Unsupported content type ") for line in dropped), output


def test_every_operation_is_generated(generated):
    paths = json.loads(DOCUMENT.read_text())["paths"].values()
    names = sorted(each["operationId"] for methods in paths for each in methods.values())
    modules = (Path(generated.__file__).parent / "api").glob("*/*.py")
    assert sorted(path.stem for path in modules if path.stem != "__init__") == names


def test_instants_are_generated_as_instants(generated):
    models = importlib.import_module("recrawl_http.models")
    text = "2026-05-01T12:00:00+00:00"
    fields = {"lease": "1-ff", "page_id": 1, "expires_at": text}
    assert models.LeaseAnswer.from_dict(fields).expires_at == START


def operation(tag: str, name: str):
    """Give the function of one operation that raises on what the document does not say."""
    return importlib.import_module(f"recrawl_http.api.{tag}.{name}").sync


def test_a_recrawl_http_registers_observes_and_reads_the_schedule(generated, sqlite_url):
    models = importlib.import_module("recrawl_http.models")
    url = "https://example.com/news"
    with (
        running(sqlite_url) as live,
        generated.Client(live.url, raise_on_unexpected_status=True) as client,
    ):
        page = models.Page(
            url=url, importance=10.0, observability=models.PageObservability.INCOMPLETE
        )
        taken = operation("pages", "post_pages")(client=client, body=[page])
        assert isinstance(taken, models.Registered)
        (page_id,) = taken.page_ids

        crawls = [
            models.Observation(url=url, observed_at=START, digest="a"),
            models.Observation(
                page_id=page_id, observed_at=START + timedelta(minutes=1), changed=True
            ),
        ]
        observed = operation("evidence", "post_observations")(client=client, body=crawls)
        assert (observed.accepted, observed.rejected) == (2, [])

        ping = models.Ping(url=url, changed_at=START + timedelta(minutes=2))
        answered = operation("evidence", "post_pings")(client=client, body=[ping])
        assert answered.decisions[0].page_id == page_id

        asked = operation("epochs", "post_epoch")(client=client)
        live.service.runner.run_once()
        epoch = operation("epochs", "get_epoch")(asked.epoch, client=client)
        assert epoch == operation("epochs", "get_latest_epoch")(client=client)
        assert (epoch.status.value, epoch.n_pages) == ("published", 1)

        (row,) = operation("schedule", "get_schedule")(client=client, limit=10).items
        assert (row.page_id, row.url) == (page_id, url)
        assert row.crawl_rate == pytest.approx(epoch.bandwidth_used)

        shown = operation("pages", "list_all_pages")(client=client, url_query=url)
        assert shown.estimate.n_changes == 1
        leased = operation("leases", "post_leases")(client=client, body=models.LeaseBody())
        assert leased.items == []
        (host,) = operation("hosts", "list_hosts")(client=client, limit=1).items
        assert host.host == "example.com"
        patch = models.PagePatchBody(importance=3.0, max_crawl_rate=None)
        patched = operation("pages", "patch_page")(page_id, client=client, body=patch)
        assert patched.importance == 3.0
        missing = operation("pages", "get_page")(page_id + 1, client=client)
        assert isinstance(missing, models.Problem)
        assert missing.status == 404
