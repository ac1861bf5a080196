"""Threads that take turns."""

import threading
from collections import deque


class Turns:
    """A lock that is handed on in the order it was asked for: blocks of an epoch let others in."""

    def __init__(self) -> None:
        self.taken = False
        self.waiting: deque[threading.Event] = deque()
        self.changing = threading.Lock()

    def __enter__(self) -> None:
        """Wait for one's turn."""
        with self.changing:
            if not self.taken:
                self.taken = True
                return
            mine = threading.Event()
            self.waiting.append(mine)
        mine.wait()

    def __exit__(self, *_: object) -> None:
        """Hand on."""
        with self.changing:
            if self.waiting:
                self.waiting.popleft().set()
            else:
                self.taken = False
