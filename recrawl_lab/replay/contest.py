"""Play one game by several policies, each in a process of its own."""

import signal
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import active_children, get_context
from multiprocessing.queues import SimpleQueue

from recrawl_lab.errors import PolicyKilled
from recrawl_lab.policies.lineup import Game
from recrawl_lab.replay.comparison import PolicyMeasures, play

ENDS = (signal.SIGTERM, signal.SIGINT)
"""Signals that end a contest."""
LOOK_EVERY_S = 0.1
SHARE_TOLD = 0.01
"""Share of the window between two progress reports."""

Told = Callable[[str, float], None]
"""Function that receives the name of a policy and the day it has reached."""

_progress: "SimpleQueue[tuple[str, float]]"
"""Queue for the progress of this process, set when the process begins."""
_game: Game
"""The game of this process, set when the process begins.

Tasks have names only: before Python 3.11.5 a pool waits for ever if a process dies while a task
that is larger than a pipe is sent to it.
"""


def contest(
    game: Game,
    names: tuple[str, ...],
    report: Told,
    *,
    processes: int,
    prepare: Callable[[], None],
) -> list[PolicyMeasures]:
    """Return the outcomes of policies, in the order of their names.

    With several processes the policies play side by side; an interruption ends them all.

    Parameters
    ----------
    report
        Function called in this process, from time to time and at the end of each policy.
    prepare
        Function called first in each process; it must be importable there.

    Raises
    ------
    PolicyKilled
        One of several processes was killed, for example by the kernel for lack of memory.
    """
    if processes == 1:
        prepare()
        return [play(name, game, _now_and_then(game, name, report)) for name in names]
    return _side_by_side(game, names, report, processes, prepare)


def _side_by_side(
    game: Game,
    names: tuple[str, ...],
    report: Told,
    processes: int,
    prepare: Callable[[], None],
) -> list[PolicyMeasures]:
    context = get_context("spawn")
    queue: SimpleQueue[tuple[str, float]] = context.SimpleQueue()
    with ProcessPoolExecutor(
        processes, mp_context=context, initializer=_begin, initargs=(queue, game, prepare)
    ) as pool:
        try:
            with _ends_put_off():
                waiting = [pool.submit(_play, name) for name in names]
            _follow(waiting, queue, report)
            return [future.result() for future in waiting]
        except BrokenProcessPool as broken:
            raise PolicyKilled(
                f"one of {processes} processes that played policies was killed, possibly for "
                "lack of memory; play fewer at a time (--processes 1), a shorter "
                "window (--days) or with less --bandwidth"
            ) from broken
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for child in active_children():
                child.terminate()
            raise


@contextmanager
def _ends_put_off() -> Iterator[None]:
    """Raise signals again after the block, because a process that is starting is in no list yet.

    A mask would not do: the system hands a masked signal to a thread of a library.
    """
    numbers: list[int] = []
    previous = {end: signal.signal(end, lambda number, _: numbers.append(number)) for end in ENDS}
    try:
        yield
    finally:
        for end, handler in previous.items():
            signal.signal(end, handler)
        for number in numbers:
            signal.raise_signal(number)


def _follow(
    waiting: list[Future[PolicyMeasures]], queue: "SimpleQueue[tuple[str, float]]", report: Told
) -> None:
    """Forward progress until all policies are done or one has failed."""
    left = set(waiting)
    while left:
        done, left = wait(left, LOOK_EVERY_S, FIRST_COMPLETED)
        while not queue.empty():
            report(*queue.get())
        for future in done:
            future.result()


# -- in the playing process


def _begin(
    queue: "SimpleQueue[tuple[str, float]]", game: Game, prepare: Callable[[], None]
) -> None:
    global _progress, _game
    _progress, _game = queue, game
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    prepare()


def _play(name: str) -> PolicyMeasures:
    return play(name, _game, _now_and_then(_game, name, lambda *at: _progress.put(at)))


def _now_and_then(game: Game, name: str, report: Told) -> Callable[[float], None]:
    """Return a function that reports each hundredth of the window, and its end."""
    days, last = game.world.days, 0.0

    def tell(day: float) -> None:
        nonlocal last
        if day >= days or day - last >= SHARE_TOLD * days:
            last = day
            report(name, day)

    return tell
