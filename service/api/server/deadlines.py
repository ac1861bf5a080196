"""Deadlines of a request that arrives: its head at once, its body at a least rate."""

from enum import Enum

HEAD_S = 10.0
"""Maximum time for a head, from the opening of its connection or from its first byte, seconds."""

BODY_GRACE_S = 10.0
"""Time that a body may take before its rate counts, seconds."""

BODY_RATE = 1_000
"""Minimum rate of a body, bytes per second."""

MAX_PAUSE_S = 60.0
"""Maximum pause in a body, however fast the body came before, seconds."""

RECHECK_S = 1.0
"""Delay before a missed deadline counts, seconds: a busy process reads late what came in time."""


class Stage(Enum):
    """The part of a request that a connection reads."""

    HEAD = 1
    BODY = 2
    NOTHING = 3


class Arrival:
    """The part of a request that arrives now, and the deadline of that part.

    Instants are seconds of the event loop's clock. Every byte of a body moves its deadline by
    1 / BODY_RATE.

    >>> arrival = Arrival(now=0)
    >>> arrival.begin(Stage.BODY)
    >>> arrival.progress(20 * BODY_RATE)
    >>> arrival.left(now=5)
    25.0
    """

    __slots__ = ("deadline", "now", "stage")
    deadline: float
    now: float
    stage: Stage

    def __init__(self, now: float) -> None:
        self.now = now
        self.begin(Stage.HEAD)

    def receive(self, now: float) -> None:
        """Set the instant of what is read next; a first byte begins a head."""
        self.now = now
        if self.stage is Stage.NOTHING:
            self.stage, self.deadline = Stage.HEAD, now + HEAD_S

    def begin(self, stage: Stage) -> None:
        """Start the deadline of a part."""
        self.stage = stage
        self.deadline = self.now + (BODY_GRACE_S if stage is Stage.BODY else HEAD_S)

    def progress(self, n_bytes: int) -> None:
        """Move the deadline of a body by the bytes that have come."""
        self.deadline = min(self.deadline + n_bytes / BODY_RATE, self.now + MAX_PAUSE_S)

    def excuse(self, now: float) -> None:
        """Start the deadline again, after a delay that the client did not cause."""
        before, self.now = self.deadline, now
        self.begin(self.stage)
        self.deadline = max(before, self.deadline)

    def left(self, now: float) -> float:
        """Return the seconds until the next check, zero or less where the deadline is missed."""
        return HEAD_S if self.stage is Stage.NOTHING else self.deadline - now
