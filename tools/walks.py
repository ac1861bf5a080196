"""Run one observation, lease, epoch, webhook and console page, and print the modules that worked.

python tools/walks.py            # a line for each module
python tools/walks.py --json     # with the first and the last call of each module

A small service on SQLite answers over HTTP. A module counts if one of its functions is called
during the act; an import counts nothing. Each act has run once before it is observed.
"""

import argparse
import json
import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import httpx

TOPS = ("service", "recrawl_client", "recrawl_cluster", "recrawl_lab")
N_PAGES = 20
IDLE_S = 1.5
"""Time in which nobody asks; a thread that works then is no part of a walk, seconds."""
QUIET_S = 0.1
"""Time that a server has after its answer to end the request, seconds."""


class Step(NamedTuple):
    """A module on a walk, and the places of its first and its last call among all calls."""

    module: str
    first: int
    last: int


Walk = list[Step]
"""Modules in the order of their first calls."""


class Recorder:
    """A profile function of all threads, which notes calls while it is on."""

    def __init__(self) -> None:
        self.on = False
        self.n_calls = 0
        self.steps: dict[tuple[int, str], list[int]] = {}
        self.background: set[int] = set()

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        """Note a call of a function of the product."""
        if not self.on or event != "call" or frame.f_code.co_name == "<module>":
            return
        module = frame.f_globals.get("__name__", "")
        if module.partition(".")[0] in TOPS:
            self.n_calls += 1
            place = self.steps.setdefault((threading.get_ident(), module), [self.n_calls, 0])
            place[1] = self.n_calls

    def during(self, act: Callable[[], object]) -> Walk:
        """Return the walk of an act, on all threads but those in the background."""
        time.sleep(QUIET_S)
        self.steps, self.n_calls, self.on = {}, 0, True
        act()
        time.sleep(QUIET_S)
        self.on = False
        walk: dict[str, Step] = {}
        for (thread, module), (first, last) in self.steps.items():
            if thread not in self.background:
                so_far = walk.get(module, Step(module, first, last))
                walk[module] = Step(module, min(first, so_far.first), max(last, so_far.last))
        return sorted(walk.values(), key=lambda step: step.first)

    def rest(self) -> None:
        """Note the threads that work while nobody asks."""
        self.during(lambda: time.sleep(IDLE_S))
        self.background = {thread for thread, _ in self.steps}


def defined(name: str) -> Any:
    """Return a public function of the service, from whichever module defines it."""
    spec = find_spec("service")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("there is no package `service`; run `make .venv/dev` first")
    root = Path(spec.submodule_search_locations[0])
    for path in sorted(root.rglob("*.py")):
        if re.search(rf"^def {name}\b", path.read_text(), re.MULTILINE):
            parts = path.relative_to(root.parent).with_suffix("").parts
            return getattr(import_module(".".join(parts)), name)
    raise SystemExit(f"no module of `service` defines {name}; correct tools/walks.py")


class Accepting(BaseHTTPRequestHandler):
    """A receiver of webhooks that accepts everything."""

    def do_POST(self) -> None:
        """Accept a request."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Write nothing."""


@contextmanager
def receiving() -> Iterator[str]:
    """Yield the URL of a receiver of webhooks."""
    server = HTTPServer(("127.0.0.1", 0), Accepting)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def now() -> str:
    """Return the present instant."""
    return datetime.now(UTC).isoformat()


class Caller:
    """A client that reports crawls, with and without leases."""

    def __init__(self, client: httpx.Client) -> None:
        self.client = client
        self.leases: list[str] = []

    def post(self, path: str, body: Any = None) -> Any:
        """Return the answer to a POST; raise for a refusal."""
        answer = self.client.post(path, json=body).raise_for_status().json()
        if answer.get("rejected"):
            raise SystemExit(f"{path} rejected an item: {answer['rejected']}")
        return answer

    def observe(self, *, changed: bool = False) -> None:
        """Report a crawl without a lease."""
        crawl = {"url": "https://example.com/", "observed_at": now(), "changed": changed}
        self.post("/observations", [crawl])

    def lease(self) -> None:
        """Take a lease on a page."""
        (item,) = self.post("/leases", {"worker": "w", "count": 1})["items"]
        self.leases.append(item["lease"])

    def report_and_lease(self) -> None:
        """Report a leased page, and take a lease on another one."""
        report = [{"lease": self.leases.pop(), "observed_at": now(), "changed": False}]
        (item,) = self.post("/leases", {"worker": "w", "count": 1, "report": report})["items"]
        self.leases.append(item["lease"])


def walks(folder: Path) -> dict[str, Walk]:
    """Return the walk of each act, by its name."""
    recorder = Recorder()
    threading.setprofile(recorder)
    defined("configure_logging")("error")
    settings = defined("read_settings")(
        database_url=f"sqlite:///{folder}/walks.db", webhooks_private=True, host_delay_s=0
    )
    service = replace(defined("open_service")(settings), embedded=False)  # epochs when called
    app = defined("create_app_with_console")(service)
    with (
        receiving() as receiver,
        defined("running")(service, app) as url,
        httpx.Client(base_url=url, timeout=60) as client,
    ):
        sys.setprofile(recorder)
        caller = Caller(client)
        caller.post("/pages", [{"url": f"https://host{k}.example/"} for k in range(N_PAGES)])

        def look() -> None:
            client.get("/console").raise_for_status()

        acts: dict[str, Callable[[], object]] = {
            "observation": caller.observe,
            "lease": caller.lease,
            "lease with report": caller.report_and_lease,
            "epoch": service.runner.run_once,
            "webhook": service.courier.run_once,
            "console page": look,
        }
        caller.post("/webhooks", {"url": receiver})
        caller.observe(changed=True)
        for act in acts.values():
            act()
        recorder.rest()
        caller.observe(changed=True)
        caller.post("/epochs")
        observed = {name: recorder.during(act) for name, act in acts.items()}
        sys.setprofile(None)
    threading.setprofile(None)
    return observed


def main() -> None:
    """Print the walks."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--json", action="store_true", help="write JSON")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="recrawl-walks-") as folder:
        observed = walks(Path(folder))
    if chosen.json:
        print(json.dumps(observed))
        return
    for name, walk in observed.items():
        print(f"{len(walk)} modules run by one {name}")
        for step in walk:
            print(f"    {step.module}")


if __name__ == "__main__":
    main()
