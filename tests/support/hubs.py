"""A WebSub hub and publisher on one free port of this machine."""

import hmac
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

import httpx

LEASE_S = 864_000
CHALLENGE = "a challenge+&%é"


class Hub:
    """A hub that publishes, accepts and verifies subscriptions, and distributes content."""

    def __init__(self) -> None:
        self.documents: dict[str, tuple[dict[str, str], bytes]] = {}
        self.subscribers: list[dict[str, str]] = []
        self.refusal: int | None = None
        self.redirects: dict[str, tuple[int, str]] = {}
        """Status and Location of the answer to POST, by path."""
        self.lease_s: Any = LEASE_S
        self.is_silent = False
        """True where the hub takes requests and never calls back."""
        self.asked: list[tuple[str, dict[str, str]]] = []
        """Path and form of each POST."""
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                headers, content = hub.documents.get(self.path, ({}, None))
                status = 404 if content is None else 302 if "Location" in headers else 200
                self.answer(status, content or b"", headers)

            def do_POST(self):
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                subscription = {name: values[0] for name, values in form.items()}
                hub.asked.append((self.path, subscription))
                if self.path in hub.redirects:
                    status, location = hub.redirects[self.path]
                    self.answer(status, b"", {"Location": location} if location else {})
                    return
                status = hub.refusal or 202
                if not (400 <= status < 500 or hub.is_silent):
                    hub.take(subscription)
                self.answer(status, b"a hub's reason" if status >= 400 else b"", {})

            def answer(self, status, content, headers):
                self.send_response(status)
                for header in {**headers, "Content-Length": str(len(content))}.items():
                    self.send_header(*header)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def take(self, subscription: dict[str, str]) -> None:
        """Verify a request; then add or remove its callback."""
        if self.verify(subscription).text != CHALLENGE:
            return
        callback = subscription["hub.callback"]
        self.subscribers = [s for s in self.subscribers if s["hub.callback"] != callback]
        if subscription["hub.mode"] == "subscribe":
            self.subscribers.append(subscription)

    def deny(self, subscription: dict[str, str], reason: str | None) -> httpx.Response:
        """Inform the subscriber that the hub refuses."""
        return self.verify(
            subscription, mode="denied", challenge=None, lease_seconds=None, reason=reason
        )

    def verify(self, subscription: dict[str, str], **changed: Any) -> httpx.Response:
        """Send a verification request to the subscriber."""
        query = {
            "hub.mode": subscription["hub.mode"],
            "hub.topic": subscription["hub.topic"],
            "hub.challenge": CHALLENGE,
            "hub.lease_seconds": self.lease_s,
            **{f"hub.{name}": value for name, value in changed.items()},
        }
        parameters = {name: value for name, value in query.items() if value is not None}
        return httpx.get(subscription["hub.callback"], params=parameters)

    def distribute(self, content: bytes, *, method: str = "sha256") -> list[httpx.Response]:
        """Send content to all subscribers, signed."""
        return [
            httpx.post(
                of["hub.callback"],
                content=content,
                headers={"X-Hub-Signature": signature(content, of["hub.secret"], method)},
            )
            for of in self.subscribers
        ]


def signature(content: bytes, secret: str, method: str = "sha256") -> str:
    """Return the signature of a hub."""
    return f"{method}={hmac.new(secret.encode(), content, method).hexdigest()}"


@contextmanager
def open_hub() -> Iterator[Hub]:
    """Run a hub during the block."""
    hub = Hub()
    thread = threading.Thread(target=hub.server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield hub
    finally:
        hub.server.shutdown()
        thread.join()
        hub.server.server_close()
