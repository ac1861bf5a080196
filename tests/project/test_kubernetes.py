"""deploy/kubernetes: by Kubernetes's schemas, its references, and its commands as processes."""

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import dask
import httpx
import kubernetes_validate
import pytest
import sqlalchemy as sa
import yaml
from distributed import Client
from distributed.security import Security
from support.certificates import certificate_authority
from support.compose import eventually, running
from support.kustomize import Resource, built
from support.processes import free_port

from recrawl_cluster.epochs.actors import ENVIRONMENT
from recrawl_cluster.store.shard_map import read_map
from service.api.server import GRACEFUL_S
from service.runtime.settings import Settings

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy/kubernetes"
PAGE = (ROOT / "docs/how-to/kubernetes.md").read_text()
COMPOSE = yaml.safe_load((ROOT / "deploy/cluster/docker-compose.yml").read_text())["services"]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
VERSIONS = ("1.29", "1.31", "1.34")
SETTINGS = {f"RECRAWL_{name}".upper() for name in Settings.model_fields}
WITH_PODS = ("Deployment", "StatefulSet", "Job")
SECRETS = {
    "recrawl-databases": {"PGPASSWORD"},
    "recrawl-keys": {"RECRAWL_API_KEYS"},
    "recrawl-dask-tls": {"tls.crt", "tls.key", "ca.crt"},
}
"""Secrets that a reader makes, with their keys."""

BASE = built(FOLDER / "base")
WITH_DATABASES = built(FOLDER / "with-databases")


def named(kind: str, resources: list[Resource] = WITH_DATABASES) -> dict[str, Resource]:
    return {one["metadata"]["name"]: one for one in resources if one["kind"] == kind}


def pods(resources: list[Resource] = WITH_DATABASES) -> dict[str, Any]:
    """Return the specification of each kind of pod by the name of its owner."""
    owners = [one for one in resources if one["kind"] in WITH_PODS]
    return {one["metadata"]["name"]: one["spec"]["template"]["spec"] for one in owners}


def containers(pod: Any) -> list[Any]:
    return [*pod.get("initContainers", []), *pod["containers"]]


def container(owner: str) -> Any:
    (one,) = pods()[owner]["containers"]
    return one


def labels(owner: Resource) -> dict[str, str]:
    found: dict[str, str] = owner["spec"]["template"]["metadata"]["labels"]
    return found


def selected(selector: dict[str, str]) -> list[str]:
    """Return the names of the owners whose pods have these labels."""
    owners = [one for one in WITH_DATABASES if one["kind"] in WITH_PODS]
    return [one["metadata"]["name"] for one in owners if selector.items() <= labels(one).items()]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "resource", WITH_DATABASES, ids=lambda one: f"{one['kind']}-{one['metadata']['name']}"
)
def test_each_resource_satisfies_the_schema_without_an_unknown_field(
    resource: Resource, version: str
) -> None:
    assert kubernetes_validate.validate(resource, version, strict=True) == version


def test_a_misspelt_field_does_not_satisfy_the_schema() -> None:
    resource = yaml.safe_load(yaml.safe_dump(named("Deployment")["recrawl-api"]))
    resource["spec"]["template"]["spec"]["containers"][0]["readynessProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(resource, VERSIONS[0], strict=True)


def test_no_name_is_given_twice() -> None:
    counted = Counter((one["kind"], one["metadata"]["name"]) for one in WITH_DATABASES)
    assert set(counted.values()) == {1}
    assert len(WITH_DATABASES) == len(BASE) + 3


@pytest.mark.external
@pytest.mark.parametrize("name", ["base", "with-databases"])
def test_kubectl_makes_the_same_of_it(name: str) -> None:
    """kubectl adds a hash to the names of generated ConfigMaps, here and where they are used."""
    kubectl = shutil.which("kubectl")
    assert kubectl is not None, (
        "this test needs kubectl 1.27 or later, which Debian does not have: "
        "https://kubernetes.io/docs/tasks/tools/"
    )
    done = subprocess.run(
        [kubectl, "kustomize", FOLDER / name], capture_output=True, text=True, check=True
    )
    text = re.sub(r"\b(recrawl-(?:cluster|dask|settings))-[a-z0-9]{10}\b", r"\1", done.stdout)
    theirs, ours = list(yaml.safe_load_all(text)), built(FOLDER / name)
    key = lambda one: (one["kind"], one["metadata"]["name"])  # noqa: E731
    assert sorted(theirs, key=key) == sorted(ours, key=key)


def test_every_configmap_secret_and_volume_that_a_pod_names_exists() -> None:
    used: dict[str, set[str]] = {"ConfigMap": set(), "Secret": set()}
    for pod in pods().values():
        volumes = {volume["name"]: volume for volume in pod.get("volumes", [])}
        for volume in volumes.values():
            used["ConfigMap"] |= {volume["configMap"]["name"]} if "configMap" in volume else set()
            used["Secret"] |= {volume["secret"]["secretName"]} if "secret" in volume else set()
        for one in containers(pod):
            mounts = {mount["name"] for mount in one["volumeMounts"]}
            assert mounts <= volumes.keys() | {"data"}
            for source in one.get("envFrom", []):
                for field, kind in (("configMapRef", "ConfigMap"), ("secretRef", "Secret")):
                    used[kind] |= {source[field]["name"]} if field in source else set()
            for variable in one.get("env", []):
                if "valueFrom" in variable:
                    reference = variable["valueFrom"]["secretKeyRef"]
                    assert reference["key"] in SECRETS[reference["name"]]
                    used["Secret"].add(reference["name"])
    assert used["ConfigMap"] == named("ConfigMap").keys()
    assert used["Secret"] == SECRETS.keys()


def test_every_selector_selects_one_kind_of_pod_and_every_port_exists() -> None:
    for kind in ("Deployment", "StatefulSet"):
        for name, owner in named(kind).items():
            assert selected(owner["spec"]["selector"]["matchLabels"]) == [name]
    for name, budget in named("PodDisruptionBudget").items():
        assert selected(budget["spec"]["selector"]["matchLabels"]) == [name]
    for name, service in named("Service").items():
        assert selected(service["spec"]["selector"]) == [name]
        ports = {port["name"] for port in container(name)["ports"]}
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
    for owner, pod in pods().items():
        for constraint in pod.get("topologySpreadConstraints", []):
            assert selected(constraint["labelSelector"]["matchLabels"]) == [owner]
    assert named("StatefulSet")["postgres"]["spec"]["serviceName"] in named("Service")


def test_the_variables_of_recrawl_are_settings_and_those_of_dask_are_those_of_its_actors() -> None:
    maps = {name: one["data"] for name, one in named("ConfigMap").items()}
    own = {one["name"]: one["value"] for one in container("recrawl-worker")["env"]}
    assert set(maps["recrawl-settings"]) | SECRETS["recrawl-keys"] | own.keys() <= SETTINGS
    files = [own[f"RECRAWL_DASK_{name}"] for name in ("CA", "CERT", "KEY")]
    variables = maps["recrawl-dask"]
    assert ENVIRONMENT.items() <= variables.items()
    with dask.config.set(dask.config.collect_env(variables)):
        tls = "distributed.comm.tls"
        ca = dask.config.get(f"{tls}.ca-file")
        ends = [dask.config.get(f"{tls}.{role}") for role in ("scheduler", "worker")]
        assert dask.config.get("distributed.comm.require-encryption") is True
        assert dask.config.get("distributed.worker.profile.enabled") is False
    assert [[ca, end["cert"], end["key"]] for end in ends] == [files, files]
    assert {Path(name).name for name in files} == SECRETS["recrawl-dask-tls"]


def test_no_pod_gets_variables_that_recrawl_refuses() -> None:
    """Kubernetes adds RECRAWL_API_PORT for the Service recrawl-api, and it is no setting."""
    links = {f"{name}_PORT".upper().replace("-", "_") for name in named("Service")}
    assert "RECRAWL_API_PORT" in links
    assert not links & SETTINGS
    assert all(pod["enableServiceLinks"] is False for pod in pods().values())


def test_the_images_are_those_of_compose() -> None:
    uid = re.findall(r"^USER (\d+)", DOCKERFILE, re.MULTILINE)[-1]
    for name, pod in pods().items():
        service = "postgres-1" if name == "postgres" else "api"
        assert {one["image"] for one in containers(pod)} == {COMPOSE[service]["image"]}
        if name != "postgres":
            assert pod["securityContext"]["runAsUser"] == int(uid)


def test_the_commands_are_those_of_compose_up_to_tls() -> None:
    job = pods()["recrawl-migrate"]
    (migrate,), (join,) = job["initContainers"], job["containers"]
    assert (migrate["command"], join["command"]) == (
        COMPOSE["migrate"]["command"],
        COMPOSE["join"]["command"],
    )
    assert container("recrawl-api")["command"] == COMPOSE["api"]["command"]
    assert container("recrawl-worker")["command"] == COMPOSE["worker"]["command"]
    ours = set(container("recrawl-dask-worker")["command"])
    theirs = set(COMPOSE["dask-worker"]["command"])
    assert theirs - ours == {"tcp://dask-scheduler:8786"}
    assert ours - theirs == {"tls://recrawl-dask-scheduler:8786", "--worker-port", "8788"}


def test_every_pod_runs_without_root_rights_and_files_to_write() -> None:
    for pod in pods().values():
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        for one in containers(pod):
            assert one["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert {"cpu", "memory"} <= one["resources"]["requests"].keys()
            assert "memory" in one["resources"]["limits"]
            assert "/tmp" in [mount["mountPath"] for mount in one["volumeMounts"]]


def test_probes_ask_healthz_while_a_server_runs_and_readyz_before_its_first_request() -> None:
    """A database that is away makes /readyz fail if it is the coordinator; reports go on."""
    api, worker = container("recrawl-api"), container("recrawl-worker")
    asked = {name: api[name]["httpGet"]["path"] for name in api if name.endswith("Probe")}
    assert asked == {
        "startupProbe": "/readyz",
        "readinessProbe": "/healthz",
        "livenessProbe": "/healthz",
    }
    assert worker["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert worker["livenessProbe"]["httpGet"]["path"] == "/healthz"
    for owner, pod in pods().items():
        if owner == "recrawl-migrate":
            continue
        for one in containers(pod):
            ports = {port["name"] for port in one["ports"]}
            assert {"startupProbe"} < {name for name in one if name.endswith("Probe")}
            for name in one:
                if name.endswith("Probe") and "httpGet" in one[name]:
                    assert one[name]["httpGet"]["port"] in ports
    grace = pods()["recrawl-api"]["terminationGracePeriodSeconds"]
    assert grace > GRACEFUL_S + float(api["lifecycle"]["preStop"]["exec"]["command"][1])


def test_the_map_names_databases_of_the_stateful_set_and_no_password() -> None:
    shard_map = read_map(FOLDER / "base/cluster.toml")
    urls = [sa.make_url(database.url) for database in shard_map.databases]
    postgres = named("StatefulSet")["postgres"]["spec"]
    name = postgres["serviceName"]
    assert [url.host for url in urls] == [
        f"postgres-{n}.{name}" for n in range(postgres["replicas"])
    ]
    environment = {one["name"]: one.get("value") for one in container("postgres")["env"]}
    for url in urls:
        assert url.password is None
        assert (url.username, url.database) == (
            environment["POSTGRES_USER"],
            environment["POSTGRES_DB"],
        )
    mount = next(m for m in container("recrawl-api")["volumeMounts"] if m["name"] == "cluster")
    settings = named("ConfigMap")["recrawl-settings"]["data"]
    assert settings["RECRAWL_CLUSTER"] == f"{mount['mountPath']}/cluster.toml"


def test_dask_is_reached_by_pods_of_recrawl_alone() -> None:
    spec = named("NetworkPolicy")["recrawl-dask"]["spec"]
    guarded = spec["podSelector"]["matchExpressions"][0]["values"]
    assert guarded == ["dask-scheduler", "dask-worker"]
    (rule,) = spec["ingress"]
    allowed = rule["from"][0]["podSelector"]["matchExpressions"][0]["values"]
    components = {
        labels(one)["app.kubernetes.io/component"]
        for one in WITH_DATABASES
        if one["kind"] in WITH_PODS
    }
    assert set(guarded) < set(allowed) < components
    assert set(allowed) - set(guarded) == {"worker"}
    ports = {
        port["containerPort"]
        for name in ("recrawl-dask-scheduler", "recrawl-dask-worker")
        for port in container(name)["ports"]
        if port["name"] == "dask"
    }
    assert {port["port"] for port in rule["ports"]} == ports


def test_the_page_makes_each_secret_with_its_keys() -> None:
    for name, keys in SECRETS.items():
        (line,) = re.findall(
            rf"^kubectl create secret generic {name} (.*(?:\\\n.*)*)$", PAGE, re.MULTILINE
        )
        assert set(re.findall(r"--from-(?:literal|file)=['\"]?([\w.]+)", line)) == keys


@pytest.mark.slow
def test_schedulers_and_workers_of_dask_admit_nobody_without_a_certificate(tmp_path: Path) -> None:
    certificate_authority(tmp_path)
    port, health, worker_port, worker_health = (free_port() for _ in range(4))
    words = {
        "recrawl-dask-scheduler:8786": f"127.0.0.1:{port}",
        "8786": str(port),
        ":8787": f"127.0.0.1:{health}",
        "8788": str(worker_port),
        ":8790": f"127.0.0.1:{worker_health}",
        "/tmp": str(tmp_path),
    }

    def command(owner: str) -> list[str]:
        written = re.compile("|".join(map(re.escape, words)))
        return [
            written.sub(lambda word: words[word[0]], one) for one in container(owner)["command"]
        ]

    data = named("ConfigMap")["recrawl-dask"]["data"]
    tls = {name: value.replace("/etc/dask", str(tmp_path)) for name, value in data.items()}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {"PATH": path, "HOME": str(tmp_path), **tls}
    listen = ["--host", "127.0.0.1"]
    with ExitStack() as stack:
        scheduler = [*command("recrawl-dask-scheduler"), *listen]
        process = stack.enter_context(running(scheduler, environment, tmp_path))
        worker = [*command("recrawl-dask-worker"), *listen]
        stack.enter_context(running(worker, environment, tmp_path))
        address = f"tls://127.0.0.1:{port}"
        client = stack.enter_context(
            Client(address, timeout=60, direct_to_workers=True, security=security(tmp_path))
        )
        client.wait_for_workers(1, timeout=60)
        assert client.submit(sum, [1, 2]).result(timeout=60) == 3
        eventually(lambda: healthy(health), process)
        eventually(lambda: healthy(worker_health), process)
        certificate_authority(tmp_path / "strangers")
        with pytest.raises(OSError, match=r"[Tt]imed out|[Cc]ertificate"):
            Client(address, timeout=3, security=security(tmp_path / "strangers"))


def security(folder: Path) -> Security:
    """Return the TLS of a client with the certificates of a folder."""
    own = {"tls_client_cert": f"{folder}/tls.crt", "tls_client_key": f"{folder}/tls.key"}
    return Security(tls_ca_file=f"{folder}/ca.crt", require_encryption=True, **own)


def healthy(port: int) -> bool:
    return httpx.get(f"http://127.0.0.1:{port}/health").is_success
