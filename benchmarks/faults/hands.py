"""The course of the faults: nemeses at random for some time, or kills spread over many changes."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

from benchmarks.faults.history import Book, Incident, now
from benchmarks.faults.nemeses import Nemesis, World
from benchmarks.http.processes import Failed

HARM_S, REST_S = (0.3, 4.0), (0.2, 1.5)
"""Ranges of the duration of a fault and of the rest after it, seconds."""
HANDS = 2
"""Number of nemeses at work at a time."""
TELL_EVERY_S = 10.0
CALM = 0.1
"""Share of the changes that are written before the first kill."""
STALLS_AFTER_S = 120.0
"""Time without a new change after which a campaign ends, seconds."""


@dataclass(frozen=True)
class Plan:
    """Parameters of a campaign."""

    store: str
    seconds: float
    seed: int
    nemeses: Sequence[str]
    folder: Path
    tell: Callable[[str], None]
    bulk: int = 0
    """Number of pages whose changes are reported in bursts."""
    n_changes: int = 0
    """Number of changes of these pages at which the campaign ends; 0: after `seconds`."""
    n_kills: int = 0
    """Number of faults, spread evenly over the changes."""


class Hands:
    """Threads that run nemeses, one per part of the deployment at a time."""

    def __init__(self, plan: Plan, world: World, nemeses: dict[str, Nemesis]) -> None:
        self.world = world
        self.nemeses = nemeses
        self.book = Book(plan.folder, "hands")
        self.ends_at = now() + plan.seconds
        self.turn = threading.Lock()
        self.busy: set[str] = set()
        self.harms: Counter[str] = Counter()
        self.failures: list[str] = []

    def work(self) -> None:
        """Inject faults and rest until the time is over."""
        while self.left_s() > HARM_S[0]:
            if name := self.choose():
                self.harm(name)
            time.sleep(min(self.world.draw.uniform(*REST_S), self.left_s()))

    def left_s(self) -> float:
        return max(self.ends_at - now(), 0.0)

    def choose(self) -> str | None:
        """Return a nemesis of a part at which no other nemesis works now."""
        with self.turn:
            free = [name for name, one in self.nemeses.items() if one.part not in self.busy]
            if not free:
                return None
            name = self.world.draw.choice(free)
            self.busy.add(self.nemeses[name].part)
        return name

    def harm(self, name: str) -> None:
        """Run a nemesis once and record it."""
        since = now()
        try:
            self.nemeses[name].harm(self.world, self.world.draw.uniform(*HARM_S))
        except Exception as error:  # noqa: BLE001 - the others go on; the table shows the failure
            self.failures.append(f"{name}: {error!r}")
        self.book.write(Incident(client="hands", at=now(), nemesis=name, since=since))
        with self.turn:
            self.harms[name] += 1
            self.busy.remove(self.nemeses[name].part)


def harass(plan: Plan, world: World, nemeses: dict[str, Nemesis]) -> Hands:
    """Run nemeses until the time is over."""
    hands = Hands(plan, world, nemeses)
    threads = [threading.Thread(target=hands.work, name=f"hand-{i}") for i in range(HANDS)]
    for thread in threads:
        thread.start()
    try:
        while hands.left_s() > 0:
            time.sleep(min(TELL_EVERY_S, hands.left_s()))
            plan.tell(f"{hands.left_s():.0f} s left, {hands.harms.total()} faults done")
    finally:  # heal faults after an interruption too
        hands.ends_at = 0.0
        for thread in threads:
            thread.join()
    return hands


def kill_evenly(
    plan: Plan, world: World, nemeses: dict[str, Nemesis], n_changes: Callable[[], int]
) -> Hands:
    """Run nemeses in turn, spread over the changes, until the last change is written."""
    hands, turns = Hands(plan, world, nemeses), cycle(nemeses)
    calm = round(CALM * plan.n_changes)
    n_before, moved_at, told_at = -1, now(), 0.0
    while (n := n_changes()) < plan.n_changes or hands.harms.total() < plan.n_kills:
        if n > n_before:
            n_before, moved_at = n, now()
        if now() - moved_at > STALLS_AFTER_S:
            raise Failed(f"no new change for {STALLS_AFTER_S:.0f} s, after {n:,}")
        if now() - told_at > TELL_EVERY_S:
            told_at = now()
            plan.tell(f"{n:,} changes, {hands.harms.total()} faults done")
        n_due = plan.n_kills * (n - calm) / (plan.n_changes - calm)
        if hands.harms.total() < n_due:
            name = next(turns)
            hands.busy.add(nemeses[name].part)
            hands.harm(name)
        time.sleep(0.2)
    return hands
