"""Sockets that date what they receive by the kernel, also while their process stands still.

The kernel stamps each segment as it arrives (`SO_TIMESTAMPNS`, Linux), however late it is read.
"""

import socket
import struct
import time

SO_TIMESTAMPNS = 35
"""Option of the stamps and type of their messages, which the module `socket` does not name."""
STAMP = struct.Struct("@ll")
"""Seconds and nanoseconds of the wall clock."""


class ArrivalSocket(socket.socket):
    """A socket that writes down when its last bytes arrived; so do the connections it accepts."""

    arrived: dict[int, float]
    """Instant of the last arrival of each connection by its descriptor, on the monotonic clock."""

    @classmethod
    def listening(cls, address: str, port: int, arrived: dict[int, float]) -> "ArrivalSocket":
        """Return a socket that listens on an address; `arrived` takes the arrivals."""
        one = cls(socket.AF_INET, socket.SOCK_STREAM)
        one.arrived = arrived
        try:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
            one.bind((address, port))
            one.listen()
        except OSError:
            one.close()
            raise
        return one

    def accept(self) -> tuple["ArrivalSocket", tuple[str, int]]:
        """Return the next connection, which has the options of this socket."""
        connection, address = super().accept()
        one = ArrivalSocket(fileno=connection.detach())
        one.arrived = self.arrived
        return one, address

    def recv(self, size: int, flags: int = 0, /) -> bytes:
        """Return what has arrived, and write down when its last bytes did."""
        data, stamps, _, _ = self.recvmsg(size, socket.CMSG_SPACE(STAMP.size), flags)
        if data:
            self.arrived[self.fileno()] = time.monotonic() - late_s(stamps)
        return data


def late_s(stamps: list[tuple[int, int, bytes]]) -> float:
    """Return the time since the newest stamp, seconds; 0 without one."""
    for level, kind, value in stamps:
        if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS):
            seconds, nanoseconds = STAMP.unpack_from(value)
            return max(0.0, time.time() - seconds - nanoseconds * 1e-9)
    return 0.0
