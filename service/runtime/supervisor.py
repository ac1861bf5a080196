"""The processes of one server: start them, replace those that die, end them in order."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import FrameType

import structlog

from service.runtime.siblings import Siblings

SPAWN = multiprocessing.get_context("spawn")
"""Processes that begin anew: a fork would copy the threads' locks, and not the threads."""
FIRST_PAUSE_S, LAST_PAUSE_S = 0.5, 30.0
"""Pause before a process is replaced that was never ready: at first, and at most, seconds."""
ENDS_WITHIN_S = 13.0
"""Time for processes to end in order before they are killed, seconds; they need 10 s at most."""

log = structlog.get_logger()

Work = Callable[[Siblings, Connection], None]
"""Work of a process, which sends anything over the connection when it is ready."""


@dataclass(slots=True)
class Member:
    """The process at one place."""

    siblings: Siblings
    process: BaseProcess
    news: Connection
    ready: bool = False


class Supervisor:
    """The processes of one server, as their parent sees them."""

    def __init__(self, work: Work, places: list[Siblings], announce: Callable[[], None]) -> None:
        self.work = work
        self.places = places
        self.announce = announce
        self.announced = False
        self.members: dict[int, Member] = {}
        self.pauses: dict[int, float] = {}
        """Pause before the next process, by place, seconds."""
        self.begin_at = {siblings.place: 0.0 for siblings in places}
        """When a process begins at each place without one, seconds of the monotonic clock."""
        self.signal: int | None = None
        self.status = 0

    def run(self) -> int:
        """Run until a signal comes, or a process fails at the start; return the exit status."""
        with self._signals():
            try:
                while self.signal is None and not self.status:
                    self._begin()
                    self._hear(self._pause_s())
            finally:
                self._end()
        return self.status

    @contextmanager
    def _signals(self) -> Iterator[None]:
        def handle(number: int, _frame: FrameType | None) -> None:
            self.signal = number
            self._terminate()

        previous = {each: signal.signal(each, handle) for each in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for each, handler in previous.items():
                signal.signal(each, handler)

    def _begin(self) -> None:
        """Begin a process at each place whose pause is over."""
        for siblings in self.places:
            due = self.begin_at.get(siblings.place)
            if due is None or due > time.monotonic() or self.signal is not None:
                continue
            del self.begin_at[siblings.place]
            news, writer = SPAWN.Pipe(duplex=False)
            process = SPAWN.Process(target=self.work, args=(siblings, writer))
            process.start()
            writer.close()
            siblings.begin(process.pid or 0)
            self.members[siblings.place] = Member(siblings, process, news)
        if self.signal is not None:  # it came before the process was in the list
            self._terminate()

    def _pause_s(self) -> float | None:
        """Return the time until the next process begins; None: there is none to begin."""
        due = min(self.begin_at.values(), default=None)
        return None if due is None else max(due - time.monotonic(), 0.0)

    def _hear(self, within_s: float | None) -> None:
        """Wait until a process is ready or has ended, and act."""
        sources: dict[object, Member] = {}
        for member in self.members.values():
            sources[member.process.sentinel] = member
            if not member.ready:
                sources[member.news] = member
        for source in wait(list(sources), within_s):  # type: ignore[arg-type]
            member = sources[source]
            if source is member.news:
                self._note_ready(member)
            elif self.signal is None:
                self._replace(member)

    def _note_ready(self, member: Member) -> None:
        try:
            member.news.recv()
        except EOFError:  # it has ended, as its sentinel shows too
            member.process.join()
            return
        member.ready = True
        self.pauses.pop(member.siblings.place, None)
        if not self.announced and len(self.members) == len(self.places):
            self.announced = all(each.ready for each in self.members.values())
            if self.announced:
                self.announce()

    def _replace(self, member: Member) -> None:
        """Let another process begin at the place of a dead one; before the start is over, fail."""
        place, code = member.siblings.place, member.process.exitcode
        if self.members.pop(place, None) is None:
            return
        member.siblings.end()
        member.news.close()
        if not self.announced:
            self.status = code if code and code > 0 else 1
            return
        pause = 0.0
        if not member.ready:
            pause = min(2 * self.pauses.get(place, FIRST_PAUSE_S / 2), LAST_PAUSE_S)
            self.pauses[place] = pause
        self.begin_at[place] = time.monotonic() + pause
        log.warning(
            "a process of the server ended; another one begins",
            process=place,
            exit_status=code,
            pause_s=pause,
        )

    def _terminate(self) -> None:
        for member in list(self.members.values()):
            member.process.terminate()

    def _end(self) -> None:
        """End all processes in order, and kill those that take too long."""
        self._terminate()
        deadline = time.monotonic() + ENDS_WITHIN_S
        for member in self.members.values():
            member.process.join(max(deadline - time.monotonic(), 0.0))
            if member.process.is_alive():
                log.warning("a process did not end in time", process=member.siblings.place)
                member.process.kill()
                member.process.join()


def follow_parent() -> None:
    """End this process in order when its parent dies; else it would keep the port."""
    parent = multiprocessing.parent_process()

    def follow() -> None:
        if parent is not None:
            parent.join()
        os.kill(os.getpid(), signal.SIGTERM)

    if parent is not None:
        threading.Thread(target=follow, name="parent", daemon=True).start()
