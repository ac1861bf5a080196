"""No container engine is needed to know that what the containers run, runs."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import psycopg
import pytest
import yaml
from support.compose import check_health, eventually, running, substituted
from support.live_server import PATIENCE_S
from support.processes import free_port

from service.runtime.settings import Settings, read_settings
from service.storage import open_store

ROOT = Path(__file__).parents[2]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
DOCKERFILE = (ROOT / "Dockerfile").read_text()
KEY = "a-key-of-twenty-characters-or-more"
OUR_SERVICES = ("migrate", "api", "worker")
MONITORING = ("prometheus", "grafana")


def environment(database_url: str, given: dict[str, str]) -> dict[str, str]:
    """What compose sets for our services by a file .env, on a database that exists."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    kept["PATH"] = f"{Path(sys.executable).parent}:{kept.get('PATH', '')}"
    assert COMPOSE["services"]["api"]["env_file"] == ".env"
    told = given | {
        name: substituted(str(value), given)
        for name, value in COMPOSE["services"]["api"]["environment"].items()
    }
    assert re.fullmatch(
        r"postgresql://recrawl:secret@postgres:5432/recrawl", told["RECRAWL_DATABASE_URL"]
    )
    return {**kept, **told, "RECRAWL_DATABASE_URL": database_url}


def command_of(service: str, port: int) -> list[str]:
    """The command as it is written, on a port that is free here."""
    words: list[str] = COMPOSE["services"][service]["command"]
    return [str(port) if word in ("8000", "8001") else word for word in words]


@pytest.mark.slow
def test_the_commands_of_compose_bring_up_the_whole_service(
    empty_postgres_url: str, tmp_path: Path
) -> None:
    file = {
        "POSTGRES_PASSWORD": "secret",
        "RECRAWL_API_KEYS": KEY,
        "RECRAWL_ESTIMATOR": "lognormal",
    }
    env = environment(empty_postgres_url, file)
    port, worker_port = free_port(), free_port()
    too_early = subprocess.run(
        command_of("api", port),
        env=env,
        cwd=tmp_path,
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert too_early.returncode == 2
    assert b"run `recrawl migrate`" in too_early.stderr
    for _ in range(2):  # a second run of the one-shot service changes nothing
        subprocess.run(
            command_of("migrate", port), env=env, cwd=tmp_path, check=True, timeout=PATIENCE_S
        )
    with (
        running(command_of("api", port), env, tmp_path) as api,
        running(command_of("worker", worker_port), env, tmp_path) as worker,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S) as client,
    ):
        eventually(lambda: client.get("/readyz").is_success, api)
        client.headers["Authorization"] = f"Bearer {KEY}"
        pages = [{"url": f"https://example.com/{i}"} for i in range(10)]
        assert client.post("/pages", json=pages).json()["created"] == 10
        epoch = client.post("/epochs").json()["epoch"]
        eventually(lambda: client.get(f"/epochs/{epoch}").json()["status"] == "published", worker)
        assert len(client.get("/schedule").json()["items"]) == 10
        assert client.get("/pages/1").json()["estimate"]["estimator"] == "lognormal"
        check_health(health_of_the_image(), port, env)
        check_health(COMPOSE["services"]["worker"]["healthcheck"]["test"][1:], worker_port, env)
        metrics = f"http://127.0.0.1:{worker_port}/metrics"
        of_others = {"X-Forwarded-For": "203.0.113.7"}
        assert httpx.get(metrics, headers=of_others).status_code == 401
        key = {"Authorization": f"Bearer {KEY}"}
        assert "recrawl_up 1.0" in httpx.get(metrics, headers=of_others | key).text
    assert api.returncode in (0, -signal.SIGTERM), "uvicorn passes the signal on when it is done"
    assert worker.returncode == 0


def health_of_the_image() -> list[str]:
    written = re.search(r"HEALTHCHECK[^\[]*\\\n\s*CMD (\[.*\])", DOCKERFILE)
    assert written
    command: list[str] = yaml.safe_load(written[1])
    return command


def test_compose_asks_for_keys_and_opens_the_service_to_nobody() -> None:
    for name in OUR_SERVICES:
        variables = COMPOSE["services"][name]["environment"]
        assert variables["RECRAWL_API_KEYS"].startswith("${RECRAWL_API_KEYS:?")
        assert "RECRAWL_OPEN" not in variables
    assert "RECRAWL_OPEN" not in DOCKERFILE


@pytest.mark.parametrize("name", ["POSTGRES_PASSWORD", "RECRAWL_API_KEYS"])
def test_compose_does_not_start_without_a_password_and_keys(name: str) -> None:
    variables = {"POSTGRES_PASSWORD": "secret", "RECRAWL_API_KEYS": KEY}
    ours = COMPOSE["services"]["api"]["environment"].values()
    assert all(substituted(str(value), variables) is not None for value in ours)
    with pytest.raises(ValueError, match=f"{name}: set it in .env"):
        [substituted(str(value), variables | {name: ""}) for value in ours]


def test_the_keys_of_compose_may_be_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The override of the page, merged as compose merges it: its variables win."""
    page = (ROOT / "docs/how-to/operate.md").read_text()
    written = re.search(r'```yaml title="docker-compose.override.yml"\n(.*?)```', page, re.DOTALL)
    assert written
    override = yaml.safe_load(written[1])
    (placeholder,) = re.findall(r"write `RECRAWL_API_KEYS=(\S+)` into `.env`", page)
    file = {"POSTGRES_PASSWORD": "secret", "RECRAWL_API_KEYS": placeholder}
    monkeypatch.chdir(tmp_path)
    Path("api_keys.txt").write_text(KEY)
    assert override["secrets"]["api_keys"]["file"] == "./api_keys.txt"
    assert set(override["services"]) == set(OUR_SERVICES)
    for name, ours in override["services"].items():
        assert ours["secrets"] == ["api_keys"]
        base = COMPOSE["services"][name]["environment"]
        merged = file | {each: substituted(str(value), file) for each, value in base.items()}
        merged |= ours["environment"]
        assert merged["RECRAWL_API_KEYS_FILE"] == "/run/secrets/api_keys"
        merged["RECRAWL_API_KEYS_FILE"] = "api_keys.txt"
        for variable, value in merged.items():
            monkeypatch.setenv(variable, value)
        keys = read_settings().api_keys
        assert [key.get_secret_value() for key in keys] == [KEY]


@pytest.mark.dear
def test_postgres_is_started_with_settings_that_it_knows(empty_postgres_url: str) -> None:
    program, *options = COMPOSE["services"]["postgres"]["command"]
    assert program == "postgres"
    given = dict(substituted(option, {}).removeprefix("-c").split("=") for option in options)
    with psycopg.connect(empty_postgres_url) as connection:
        known = connection.execute(
            "SELECT name, enumvals FROM pg_settings WHERE name = ANY(%s)", [[*given]]
        ).fetchall()
        assert {name for name, *_ in known} == given.keys()
        for name, words in known:
            if words is None:
                size = connection.execute("SELECT pg_size_bytes(%s)", [given[name]]).fetchone()
                assert size is not None
                assert size[0] >= 1 << 27
            else:
                assert given[name] in words or "lz4" not in words, "built without it here"


@pytest.mark.slow
def test_the_image_alone_serves_on_sqlite(tmp_path: Path) -> None:
    written = re.findall(r"^CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)
    port = free_port()
    command = [word.replace("8000", str(port)) for word in yaml.safe_load(written[-1])]
    assert "WORKDIR /data\nVOLUME /data\n" in DOCKERFILE
    assert "RECRAWL_" not in "".join(re.findall(r"^ENV .*(?:\n +.*)*", DOCKERFILE, re.MULTILINE))
    env = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    open_to_all = subprocess.run(
        command, env=env, cwd=tmp_path, capture_output=True, timeout=PATIENCE_S, check=False
    )
    assert open_to_all.returncode == 2
    assert b"set RECRAWL_API_KEYS, or RECRAWL_OPEN=true" in open_to_all.stderr
    env["RECRAWL_API_KEYS"], headers = KEY, {"Authorization": f"Bearer {KEY}"}
    with running(command, env, tmp_path) as process:
        base = f"http://127.0.0.1:{port}"
        eventually(lambda: httpx.get(f"{base}/readyz").is_success, process)
        page = {"url": "https://example.com/"}
        answer = httpx.post(f"{base}/pages", json=[page], headers=headers)
        assert answer.json()["created"] == 1
    store = open_store(f"sqlite:///{tmp_path}/recrawl.db", 2)
    with store.begin(write=False) as tx:
        assert tx.page(1).url == "https://example.com/"
    store.close()


def test_compose_starts_things_in_the_order_they_need() -> None:
    services = COMPOSE["services"]
    assert services["migrate"]["depends_on"]["postgres"]["condition"] == "service_healthy"
    for name in ("api", "worker"):
        waits = services[name]["depends_on"]["migrate"]["condition"]
        assert waits == "service_completed_successfully"
    assert services["postgres"]["healthcheck"]["test"][1] == "pg_isready"
    assert COMPOSE["volumes"].keys() == {"postgres", "prometheus"}


def test_images_are_pinned_and_run_without_root() -> None:
    assert re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE) == ["${BASE}", "${BASE}"]
    images = re.findall(r"^ARG BASE=(\S+)", DOCKERFILE, re.MULTILINE)
    images += [COMPOSE["services"][name]["image"] for name in ("postgres", *MONITORING)]
    assert len(images) == 4
    assert all(re.search(r":[\w.]*\d", image) for image in images)
    assert re.findall(r"^USER (\d+)", DOCKERFILE, re.MULTILINE) == ["10001"]
    for name in OUR_SERVICES:
        assert COMPOSE["services"][name]["cap_drop"] == ["ALL"]
        assert COMPOSE["services"][name]["read_only"] is True
        assert COMPOSE["services"][name]["tmpfs"] == ["/tmp"]


def test_every_variable_of_the_example_is_a_setting_or_used_by_compose() -> None:
    example = (ROOT / ".env.example").read_text()
    names = re.findall(r"^(\w+)=", example, re.MULTILINE)
    settings = {f"RECRAWL_{name}".upper() for name in Settings.model_fields}
    used = set(re.findall(r"\$\{(\w+)", (ROOT / "docker-compose.yml").read_text()))
    used |= {secret["environment"] for secret in COMPOSE["secrets"].values()}
    assert set(names) <= settings | used
    assert used <= set(names)


def test_monitoring_starts_on_request_alone_and_for_this_machine_alone() -> None:
    for name in MONITORING:
        service = COMPOSE["services"][name]
        assert service["profiles"] == ["monitoring"]
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
        assert service["cap_drop"] == ["ALL"]
        for volume in service["volumes"]:
            source = volume.partition(":")[0]
            assert (ROOT / source).exists() or source in COMPOSE["volumes"]
    for name, service in COMPOSE["services"].items():
        assert name in MONITORING or "profiles" not in service


def test_prometheus_scrapes_the_servers_and_the_workers_of_compose_with_the_key() -> None:
    config = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())
    assert COMPOSE["services"]["prometheus"]["secrets"] == [*COMPOSE["secrets"]]
    key = f"/run/secrets/{COMPOSE['services']['prometheus']['secrets'][0]}"
    for job, name in zip(config["scrape_configs"], ("api", "worker"), strict=True):
        assert job["authorization"] == {"credentials_file": key}
        command = COMPOSE["services"][name]["command"]
        port = int(command[command.index("--port") + 1])
        assert job["dns_sd_configs"] == [{"names": [name], "type": "A", "port": port}]


def test_grafana_finds_its_dashboard_and_its_data() -> None:
    folder = ROOT / "deploy/grafana/provisioning"
    (provider,) = yaml.safe_load((folder / "dashboards/recrawl.yml").read_text())["providers"]
    (source,) = yaml.safe_load((folder / "datasources/prometheus.yml").read_text())["datasources"]
    grafana = COMPOSE["services"]["grafana"]
    home = grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    mounted = dict(volume.removesuffix(":ro").split(":") for volume in grafana["volumes"])
    assert mounted["./deploy/grafana/recrawl.json"] == home
    assert provider["options"]["path"] == str(Path(home).parent)
    assert (source["url"], source["isDefault"]) == ("http://prometheus:9090", True)
