"""A server that answers with any bytes, by the path of the request."""

import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

Answer = Callable[[socket.socket], None]


def sends(*parts: bytes, closes: bool = True) -> Answer:
    """Return an answer of these bytes, after which the connection is closed or stays open."""

    def answer(connection: socket.socket) -> None:
        for part in parts:
            connection.sendall(part)
        if closes:
            connection.shutdown(socket.SHUT_RDWR)

    return answer


def drips(head: bytes, part: bytes, every_s: float = 0.05) -> Answer:
    """Return an answer that goes on for ever, slowly."""

    def answer(connection: socket.socket) -> None:
        connection.sendall(head)
        pause = threading.Event()
        while not pause.wait(every_s):
            connection.sendall(part)

    return answer


def floods(head: bytes, part: bytes) -> Answer:
    """Return an answer that goes on for ever, as fast as it is read."""

    def answer(connection: socket.socket) -> None:
        connection.sendall(head)
        while True:
            connection.sendall(part)

    return answer


def resets(head: bytes) -> Answer:
    """Return an answer whose connection is reset after its first bytes."""

    def answer(connection: socket.socket) -> None:
        connection.sendall(head)
        linger = b"\x01\x00\x00\x00\x00\x00\x00\x00"
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        connection.close()

    return answer


def silent(connection: socket.socket) -> None:
    """Wait for the end of the connection."""
    connection.recv(1)


@contextmanager
def answering(answers: dict[str, Answer]) -> Iterator[tuple[int, list[str]]]:
    """Run a server until the end of the block; return its port and the paths of its requests."""
    paths: list[str] = []
    listening = socket.create_server(("", 0), backlog=500)

    def serve(connection: socket.socket) -> None:
        with suppress(OSError), connection:
            content = b""
            while True:
                while b"\r\n\r\n" not in content:
                    content += _received(connection)
                    if content[:1] == b"\x16":  # TLS
                        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                        return
                head, _, rest = content.partition(b"\r\n\r\n")
                (length,) = re.findall(rb"(?i)content-length: (\d+)", head)
                while len(rest) < int(length):
                    rest += _received(connection)
                path = head.split()[1].decode()
                paths.append(path)
                answers[path.strip("/")](connection)
                content = rest[int(length) :]

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listening.accept()
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield listening.getsockname()[1], paths
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()


def _received(connection: socket.socket) -> bytes:
    part = connection.recv(65_536)
    if not part:
        raise ConnectionResetError
    return part
