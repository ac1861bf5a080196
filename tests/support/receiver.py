"""A receiver of webhooks: it verifies each request by the libraries of the two standards."""

import base64
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from cloudevents.core.formats.json import JSONFormat
from standardwebhooks.webhooks import Webhook

BATCH = "application/cloudevents-batch+json"
SINGLE = "application/cloudevents+json"
SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef0123456789abcdef").decode()

Answer = Callable[[list[dict[str, Any]]], int]


def accept(_events: list[dict[str, Any]]) -> int:
    return 204


@dataclass
class Request:
    """A verified request."""

    delivery: str
    events: list[dict[str, Any]]
    status: int
    at: float = field(default_factory=time.time)


@dataclass
class Receiver:
    """A server on this machine and the requests that it received, in their order."""

    url: str
    answer: Answer = accept
    secret: str = SECRET
    headers: dict[str, str] = field(default_factory=dict)
    content: bytes = b""
    requests: list[Request] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    @property
    def accepted(self) -> list[dict[str, Any]]:
        """Return the events of confirmed requests in the order of their arrival."""
        return [e for one in self.requests if one.status < 300 for e in one.events]

    def take(self, headers: Any, content: bytes) -> int:
        try:
            events = verified(self.secret, dict(headers), content)
        except Exception as error:  # noqa: BLE001 - the test shows it
            self.faults.append(f"{error!r}: {content[:200]!r}")
            return 500
        status = self.answer(events)
        self.requests.append(Request(headers["webhook-id"], events, status))
        return status


def verified(secret: str, headers: dict[str, str], content: bytes) -> list[dict[str, Any]]:
    """Return the events of a request; raise an error for a wrong signature or a wrong event."""
    lowered = {name.lower(): value for name, value in headers.items()}
    payload = Webhook(secret).verify(content, lowered)
    batched = lowered["content-type"] == BATCH
    assert batched or lowered["content-type"] == SINGLE
    events = payload if batched else [payload]
    for event in events:
        JSONFormat().read(None, json.dumps(event))
    return events


@contextmanager
def receiving(answer: Answer = accept, port: int = 0) -> Iterator[Receiver]:
    """Run a receiver until the end of the block."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            status = receiver.take(self.headers, content)
            self.send_response(status)
            for name, value in receiver.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(receiver.content)))
            self.end_headers()
            self.wfile.write(receiver.content)

        def log_message(self, *_: Any) -> None:
            """Write nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    receiver = Receiver(f"http://127.0.0.1:{server.server_port}/hook", answer)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
