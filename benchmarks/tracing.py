"""Measure the cost of traces (`service.runtime.tracing`), on and off, as CPU of the server.

    python -m benchmarks.tracing [--against DIRECTORY] [--rounds 6] [--requests 3000]

Three servers run at a time, each on a SQLite file of its own, and are asked in turns:

- floor: the code in DIRECTORY, such as a checkout from before traces; without one this code, off
- off: this code without RECRAWL_TRACING; its distance from the floor is the cost of the feature
- on: with RECRAWL_TRACING, sending to a collector that is this process

Each figure is the CPU of the server for a request, divided by the floor's of the same round: the
median over rounds, and the second lowest and second highest.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median

import httpx
from rich.console import Console

HERE = Path(__file__).parents[1]
STARTED = datetime.now(UTC) - timedelta(days=30)


class Collector(BaseHTTPRequestHandler):
    """A collector that reads and forgets."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def collector() -> Iterator[str]:
    """Run a collector; yield its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


class Server:
    """A server process, its client, and the requests that it has answered."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.process, self.client, self.n_reports = process, httpx.Client(base_url=url), 0
        self.client.post("/pages", json=[{"url": "https://a.example/"}]).raise_for_status()

    def cpu_s(self) -> float:
        """Return the CPU time of the process."""
        threads = Path(f"/proc/{self.process.pid}/task").glob("*/schedstat")
        return sum(int(path.read_text().split()[0]) for path in threads) / 1e9

    def read(self) -> None:
        """Read the list of epochs."""
        self.client.get("/epochs").raise_for_status()

    def report(self) -> None:
        """Report a crawl."""
        self.n_reports += 1
        at = (STARTED + timedelta(seconds=self.n_reports)).isoformat()
        crawl = {"url": "https://a.example/", "observed_at": at, "changed": False}
        self.client.post("/observations", json=[crawl]).raise_for_status()

    def cost(self, kind: str, n: int) -> float:
        """Return the CPU of n requests."""
        before = self.cpu_s()
        for _ in range(n):
            getattr(self, kind)()
        return self.cpu_s() - before


@contextmanager
def serving(code: Path, folder: Path, **environment: str) -> Iterator[Server]:
    """Run a server of a checkout on a new file."""
    folder.mkdir()
    command = [sys.executable, "-m", "service", "serve", "--port", "0"]
    settings = {"RECRAWL_DATABASE_URL": f"sqlite:///{folder / 'recrawl.db'}", **environment}
    settings |= {"RECRAWL_EPOCH_INTERVAL_S": "86400", "RECRAWL_LOG_LEVEL": "error"}
    with (folder / "output.txt").open("w+") as output:
        process = subprocess.Popen(
            command, cwd=code, env={**os.environ, **settings}, stderr=output, text=True
        )
        try:
            while "serves at" not in (text := (folder / "output.txt").read_text()):
                if process.poll() is not None:
                    raise RuntimeError(text)
            yield Server(process, text.partition("serves at ")[2].split()[0])
        finally:
            process.terminate()
            process.wait()


def main() -> None:
    """Run the servers, and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", type=Path, default=HERE)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--requests", type=int, default=3_000)
    chosen = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        address = stack.enter_context(collector())
        traced = {"RECRAWL_TRACING": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": address}
        servers = {
            "floor": stack.enter_context(serving(chosen.against, folder / "floor")),
            "off": stack.enter_context(serving(HERE, folder / "off")),
            "on": stack.enter_context(serving(HERE, folder / "on", **traced)),
        }
        for kind in ("read", "report"):
            for server in servers.values():
                server.cost(kind, chosen.requests // 4)
            rounds = []
            for k in range(chosen.rounds):
                turns = [*servers][k % 3 :] + [*servers][: k % 3]
                rounds.append({name: servers[name].cost(kind, chosen.requests) for name in turns})
            show(kind, rounds, chosen.requests)


def show(kind: str, rounds: list[dict[str, float]], n: int) -> None:
    """Print the ratios of one kind of request."""
    floor = median(costs["floor"] for costs in rounds) / n
    Console().print(f"{kind}: floor {floor * 1e6:.0f} us of CPU a request")
    for name in ("off", "on"):
        ratios = sorted(costs[name] / costs["floor"] for costs in rounds)
        inner = ratios[1:-1] or ratios
        Console().print(f"  {name:4} {median(ratios):.3f}  ({inner[0]:.3f} to {inner[-1]:.3f})")


if __name__ == "__main__":
    main()
