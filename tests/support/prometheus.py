"""Prometheus from apt: a server that scrapes live services and evaluates the rules in a hurry."""

import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from support import apt
from support.live_server import until
from support.processes import ROOT, free_port

FOLDER = ROOT / "deploy" / "prometheus"
RULES = FOLDER / "recrawl.rules.yml"
PATIENCE_S = 30.0
"""Maximum time from a trouble to its alert, with windows of seconds."""
EVERY_S = 0.5
"""Time between two scrapes, seconds."""
N_SCRAPES = 8
"""Scrapes in the range of a hurried rule."""


def program(name: str) -> str:
    """Return a program of Debian's package, installed where apt-get may."""
    return apt.program(name, "prometheus")


def rules() -> list[dict[str, Any]]:
    """Return all alerts."""
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def hurried(text: str, range_s: float) -> str:
    r"""Return the rules with ranges of seconds, and without the time that a condition must last.

    >>> hurried("for: 2h\nexpr: rate(a[1h]) < avg_over_time(b[1d] offset 1h)", 4)
    'for: 0s\nexpr: rate(a[4s]) < avg_over_time(b[4s] offset 4s)'
    """
    text = re.sub(r"\bfor: \w+", "for: 0s", text)
    text = re.sub(r"\boffset \w+", f"offset {range_s:g}s", text)
    return re.sub(r"\[\w+\]", f"[{range_s:g}s]", text)


@dataclass(frozen=True)
class Prometheus:
    """A running Prometheus."""

    client: httpx.Client

    def ready(self) -> bool:
        try:
            return self.client.get("/-/ready").status_code == 200
        except httpx.TransportError:
            return False

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the time series of an expression, as of now."""
        answer = self.client.get("/api/v1/query", params={"query": expression}).json()
        assert answer["status"] == "success", answer
        return answer["data"]["result"]

    def firing(self, alert: str) -> list[dict[str, str]]:
        """Return the labels of the firing alerts of a name."""
        alerts = self.client.get("/api/v1/alerts").json()["data"]["alerts"]
        return [a["labels"] for a in alerts if a["labels"]["alertname"] == alert]

    def fires(self, alert: str) -> dict[str, str]:
        """Wait until an alert fires, and return its labels."""
        (first, *_) = until(lambda: self.firing(alert), f"{alert} fires", PATIENCE_S)
        return first

    def is_quiet(self, alert: str) -> None:
        """Wait until an alert fires no more, or never has, for a whole range of its rule."""
        self.evaluated(3)
        until(lambda: not self.firing(alert), f"{alert} is quiet", PATIENCE_S)

    def evaluated(self, n: int) -> None:
        """Wait until all rules have been evaluated a number of times more."""
        first = self.n_rounds()
        until(lambda: self.n_rounds() >= first + n, "the rules are evaluated", PATIENCE_S)

    def n_rounds(self) -> float:
        text = self.client.get("/metrics").text
        name = "prometheus_rule_group_iterations_total"
        rounds = re.findall(rf"^{name}{{.*}} (\S+)$", text, re.MULTILINE)
        return min(map(float, rounds), default=0.0)


@contextmanager
def prometheus(
    folder: Path,
    targets: Mapping[str, Sequence[str]],
    key: str | None = None,
    every_s: float = EVERY_S,
) -> Iterator[Prometheus]:
    """Run a Prometheus that scrapes base URLs by job, and evaluates the rules twice a second."""
    (folder / RULES.name).write_text(hurried(RULES.read_text(), N_SCRAPES * every_s))
    access = {"authorization": {"credentials": key}} if key else {}
    every = f"{round(1_000 * every_s)}ms"
    config = {
        "global": {"scrape_interval": every, "scrape_timeout": every},
        "rule_files": [RULES.name],
        "scrape_configs": [
            {
                "job_name": job,
                "static_configs": [{"targets": [url.removeprefix("http://") for url in urls]}],
                **access,
            }
            for job, urls in targets.items()
        ],
    }
    config["global"] |= {"evaluation_interval": "500ms"}
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    port = free_port()
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                program("prometheus"),
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'series'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
            env={"PATH": os.environ["PATH"], "GOMAXPROCS": "1"},
        )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
            server = Prometheus(client)
            until(server.ready, "Prometheus is ready", PATIENCE_S)
            up = "count(up == 0) or vector(0)"
            until(
                lambda: server.query("up") and server.query(f"({up}) == 0"),
                "it scrapes",
                PATIENCE_S,
            )
            yield server
    finally:
        process.terminate()
        process.wait()
