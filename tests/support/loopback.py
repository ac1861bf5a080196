"""Names and public addresses that all lead to one port of this machine."""

import httpcore


class Loopback(httpcore.SyncBackend):
    """Connections to any address that end at one port; `reached` lists the original addresses."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.reached: list[tuple[str, int]] = []

    def connect_tcp(self, host, port, timeout=None, local_address=None, socket_options=None):
        self.reached.append((host, port))
        return super().connect_tcp("127.0.0.1", self.port, timeout)


class Names:
    """A name service; `looked_up` lists the names."""

    def __init__(self, **addresses: str) -> None:
        self.addresses = {name.replace("_", "."): address for name, address in addresses.items()}
        self.looked_up: list[str] = []

    def __call__(self, host: str, timeout_s: float) -> list[str]:
        self.looked_up.append(host)
        if host not in self.addresses:
            raise OSError("unknown name")
        return self.addresses[host].split()
