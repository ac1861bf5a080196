"""A web site on this machine whose pages a test chooses: status, headers and body by path."""

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TypeVar

Answer = tuple[int, dict[str, str | None], bytes]
"""Status, headers and body; a header that is None is left out."""

CONDITIONS = {"If-None-Match": "ETag", "If-Modified-Since": "Last-Modified"}
"""Headers of a conditional request, and the headers of an answer that they repeat."""


SiteT = TypeVar("SiteT", bound="LocalSite")


def page(text: str) -> Answer:
    return 200, {}, text.encode()


def redirect(status: int, location: str) -> Answer:
    return status, {"Location": location}, b"the body of a redirect"


@dataclass
class LocalSite:
    """Pages by path; `hits` counts the requests.

    `conditions` has the headers of the last conditional request for each path. The first of them
    decides whether the answer is a 304, as RFC 9110 says.
    """

    pages: Mapping[str, Answer]
    port: int = 0
    hits: Counter[str] = field(default_factory=Counter)
    conditions: dict[str, dict[str, str]] = field(default_factory=dict)

    def answer(self, path: str, headers: Message) -> Answer:
        """Count a request and return its answer."""
        self.hits[path] += 1
        status, own, body = self.pages.get(path, (404, {}, b"no such page"))
        sent = {name: headers[name] for name in CONDITIONS if name in headers}
        if sent:
            self.conditions[path] = sent
            name, value = next(iter(sent.items()))
            if own.get(CONDITIONS[name]) == value:
                return 304, own, b""
        return status, own, body

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"


@contextmanager
def serving(pages: Mapping[str, Answer], kind: type[SiteT] = LocalSite) -> Iterator[SiteT]:
    """Serve these pages on a free port; any other path is a 404."""
    site = kind(pages)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            status, headers, body = site.answer(self.path, self.headers)
            self.send_response(status)
            defaults = {"Content-Type": "text/html", "Content-Length": str(len(body))}
            for name, value in {**defaults, **headers}.items():
                if value is not None:
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
