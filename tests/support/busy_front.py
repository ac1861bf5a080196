"""A proxy before a service that answers some requests itself, as one does before a busy service."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx


@dataclass
class Front:
    """A proxy: statuses that it answers itself, in order, and the requests that it saw."""

    target: str
    refusals: list[tuple[int, str]] = field(default_factory=list)
    """Statuses with their Retry-After."""
    seen: list[tuple[str, str, str]] = field(default_factory=list)
    """Method, path and Idempotency-Key of each request."""
    bodies: list[bytes] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def fronting(target: str, *refusals: tuple[int, str]) -> Iterator[Front]:
    """Serve a proxy on a free port."""
    front = Front(target, [*refusals])

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            key = self.headers.get("Idempotency-Key", "")
            front.seen.append((self.command, self.path, key))
            front.bodies.append(body)
            if front.refusals:
                status, wait = front.refusals.pop(0)
                self.reply(status, b"busy", {"Retry-After": wait})
                return
            kept = {"content-type", "authorization", "idempotency-key"}
            headers = {n: v for n, v in self.headers.items() if n.lower() in kept}
            answer = httpx.request(
                self.command, front.target + self.path, content=body, headers=headers, timeout=60
            )
            media = {"Content-Type": answer.headers.get("Content-Type", "text/plain")}
            self.reply(answer.status_code, answer.content, media)

        def reply(self, status: int, body: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
        setattr(Handler, f"do_{method}", Handler.do)

    class Server(ThreadingHTTPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        front.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield front
        finally:
            server.shutdown()
            thread.join()
