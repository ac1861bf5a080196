"""A keep-alive socket that writes raw requests and reads whole answers."""

import re
import socket
from typing import NamedTuple, Self

TIMEOUT_S = 30.0
LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")
CHUNKED = re.compile(rb"(?i)\r\ntransfer-encoding: *chunked")


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    content: bytes


class Wire:
    """One connection, which opens again after the server has closed it."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.socket: socket.socket | None = None
        self.arrived = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self.socket is not None:
            self.socket.close()
        self.socket = None
        self.arrived = b""

    def send(self, data: bytes, *, head: bool) -> Answer | None:
        """Return the answer, or None if the server closed the connection instead."""
        new = self.socket is None
        if self.socket is None:
            self.socket = socket.create_connection(("127.0.0.1", self.port), TIMEOUT_S)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self.socket.sendall(data)
            return self._receive(head=head)
        except (ConnectionError, EOFError):
            self.close()
            return None if new else self.send(data, head=head)

    def _receive(self, *, head: bool) -> Answer:
        while True:
            top = self._until(b"\r\n\r\n")
            status = int(top[9:12])
            if status >= 200:
                break
        pairs = (line.partition(": ") for line in top.decode("latin-1").split("\r\n")[1:])
        headers = {name.lower(): value for name, _, value in pairs if name}
        content = b"" if head or status in (204, 304) else self._content(top)
        if headers.get("connection") == "close":
            self.close()
        return Answer(status, headers, content)

    def _content(self, top: bytes) -> bytes:
        if length := LENGTH.search(top):
            return self._exactly(int(length[1]))
        parts = []
        if CHUNKED.search(top):
            while size := int(self._until(b"\r\n"), 16):
                parts.append(self._exactly(size + 2)[:-2])
            self._until(b"\r\n")
        return b"".join(parts)

    def _until(self, end: bytes) -> bytes:
        while (at := self.arrived.find(end)) < 0:
            self._more()
        piece, self.arrived = self.arrived[: at + len(end)], self.arrived[at + len(end) :]
        return piece

    def _exactly(self, n: int) -> bytes:
        while len(self.arrived) < n:
            self._more()
        piece, self.arrived = self.arrived[:n], self.arrived[n:]
        return piece

    def _more(self) -> None:
        data = self.socket.recv(1 << 20) if self.socket else b""
        if not data:
            raise EOFError
        self.arrived += data
