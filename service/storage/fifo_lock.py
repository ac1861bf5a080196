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
        self.take(None)

    def take(self, within_s: float | None) -> bool:
        """Wait for one's turn, at most for so many seconds; return whether it has come."""
        with self.changing:
            if not self.taken:
                self.taken = True
                return True
            mine = threading.Event()
            self.waiting.append(mine)
        if mine.wait(within_s):
            return True
        with self.changing:
            if mine.is_set():  # handed on at the last moment
                return True
            self.waiting.remove(mine)
            return False

    def __exit__(self, *_: object) -> None:
        """Hand on."""
        self.hand_on()

    def hand_on(self) -> None:
        """End one's turn."""
        with self.changing:
            if self.waiting:
                self.waiting.popleft().set()
            else:
                self.taken = False
