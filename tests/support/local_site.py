"""A web site on this machine whose pages a test chooses: status, headers and body by path."""

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Answer = tuple[int, dict[str, str], bytes]
"""Status, headers and body."""


def page(text: str) -> Answer:
    return 200, {}, text.encode()


def redirect(status: int, location: str) -> Answer:
    return status, {"Location": location}, b"the body of a redirect"


@dataclass
class LocalSite:
    """Pages by path; `hits` counts the requests."""

    pages: Mapping[str, Answer]
    port: int = 0
    hits: Counter[str] = field(default_factory=Counter)

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"


@contextmanager
def serving(pages: Mapping[str, Answer]) -> Iterator[LocalSite]:
    """Serve these pages on a free port; any other path is a 404."""
    site = LocalSite(pages)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            site.hits[self.path] += 1
            status, headers, body = site.pages.get(self.path, (404, {}, b"no such page"))
            self.send_response(status)
            defaults = {"Content-Type": "text/html", "Content-Length": str(len(body))}
            for name, value in {**defaults, **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        site.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield site
        finally:
            server.shutdown()
            thread.join()
