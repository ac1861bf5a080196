"""A path under which a proxy shows the service (`RECRAWL_ROOT_PATH`)."""

import re
from collections.abc import Iterable

from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.model.errors import InvalidSettings

ROOT = "app_root_path"
"""Key of a scope: the path of the setting; Starlette takes it for the base of addresses."""
ADDRESS = re.compile(rb"(<?)(/(?!/))")
"""The start of a header's value that is a path of the service."""
ADDRESSED = frozenset((b"location", b"link", b"hx-redirect"))
"""Headers whose value is such a path."""


def root_of(scope: Scope) -> str:
    """Return the path under which callers see the service, "" at the root."""
    root: str = scope.get(ROOT, "")
    return root


class PrefixMiddleware:
    """Plain ASGI middleware that takes the path off requests, and puts it before addresses.

    A proxy may remove the path or leave it, and probes of the port itself have none. Therefore
    both spellings are served, and routes, metrics and the log see the rest alone.
    """

    def __init__(self, app: ASGIApp, root_path: str) -> None:
        self.app = app
        self.root = root_path
        self.put = rb"\1" + root_path.encode() + rb"\2"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        below = scope["path"].removeprefix(self.root)
        if below[:1] in {"", "/"}:
            scope["path"] = below or "/"
        scope[ROOT] = self.root

        async def addressed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [self._addressed(*header) for header in message["headers"]]
                message = {**message, "headers": headers}
            await send(message)

        await self.app(scope, receive, addressed)

    def _addressed(self, name: bytes, value: bytes) -> tuple[bytes, bytes]:
        if name.lower() not in ADDRESSED or not ADDRESS.match(value):
            return name, value
        return name, ADDRESS.sub(self.put, value, count=1)


def refuse_own_path(root_path: str, routes: Iterable[BaseRoute]) -> None:
    """Raise `InvalidSettings` for the start of a path of the service itself.

    Behind a proxy that removes the path, /pages would be both the root and the pages.
    """
    first = f"{root_path}/"
    for path in (getattr(route, "path", "") for route in routes):
        if f"{path}/".startswith(first):
            raise InvalidSettings(
                f"RECRAWL_ROOT_PATH: {root_path} is a path of the service itself ({path}); choose "
                "another, such as /recrawl"
            )
