"""The server under attack, with all key files on one port of this machine.

python -m benchmarks.strangers.server FILE PORT
"""

import sys
from functools import partial
from typing import Any

import httpcore
import httpx

from service.api.server import running
from service.api.service import open_service
from service.connectors.guarded import FetchLimits, guarded_client
from service.connectors.indexnow import FETCH_S, MAX_KEY_FILE, shows_key
from service.runtime.bootstrap import configure_logging
from service.runtime.settings import read_settings

API_KEY = "the key of the operator"


class Sites(httpcore.SyncBackend):
    """Connections to any address, which all lead to the port of the sites."""

    def __init__(self, port: int) -> None:
        self.port = port

    def connect_tcp(self, _host: str, _port: int, timeout: Any, *_: Any, **__: Any) -> Any:
        return super().connect_tcp("127.0.0.1", self.port, timeout)


def main() -> None:
    """Serve until standard input ends."""
    path, port = sys.argv[1], int(sys.argv[2])
    settings = read_settings(
        database_url=f"sqlite:///{path}",
        indexnow_check=True,
        api_keys=(API_KEY,),
        epoch_interval_s=86_400,
    )
    configure_logging("warning")  # standard output carries the address only
    service = open_service(settings)

    def client() -> httpx.Client:
        bounds = FetchLimits(FETCH_S, MAX_KEY_FILE)
        return guarded_client(bounds, look_up=lambda *_: ["8.8.8.8"], network=Sites(port))

    service.key_checks.look = partial(shows_key, client=client)
    with running(service) as url:
        print(url, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
