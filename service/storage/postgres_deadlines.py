"""Limits on what Postgres may take, by kind of work.

| work | statement | lock | silence | reason |
| --- | --- | --- | --- | --- |
| request | 10 s | 5 s | 12 s | callers wait; they send it again after Retry-After |
| check | 1 s | 0.5 s | 1 s | `/readyz` answers within 2 s |
| batch | none | 60 s | asks after 30 s | an epoch of 20 million pages indexes for minutes |
| migration | none | 10 s | asks after 30 s | writers queue behind one that waits |

A server that is stopped acknowledges what is sent and ends nothing itself. The limit on silence is
therefore the client's: a connection on which nothing arrives for so long is closed. Batches ask
on another connection first: a busy server answers there, a stopped one does not.
"""

from typing import NamedTuple

REQUEST_TIMEOUT_S = 10.0
"""Default limit on one statement of a request, seconds."""


class Deadlines(NamedTuple):
    """Limits of one connection, seconds."""

    statement_s: float
    """The server cancels a statement after this; 0: never."""
    lock_s: float
    """The server cancels a statement that waits this long for a lock."""
    silence_s: float
    """The client gives up after this without a byte from the server."""
    asks: bool = False
    """Whether the client first asks on another connection if the server answers anybody."""


CHECK = Deadlines(1, 0.5, 1)
BATCH = Deadlines(0, 60, 30, asks=True)


def request_deadlines(timeout_s: float = REQUEST_TIMEOUT_S) -> Deadlines:
    """Return the limits of a request whose statements may take this many seconds."""
    return Deadlines(timeout_s, timeout_s / 2, timeout_s + 2)
