"""Jobs divided over databases: each is answered, whatever fails."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from recrawl_cluster.batching.divided import DividedBatcher, Division
from service.batching.batcher import Batcher, Limits
from service.model.errors import ShardMoved, StoreUnavailable

PATIENCE_S = 180
LIMITS = Limits(max_batch=100, max_waiting=100, min_batch=1)


@dataclass(frozen=True, eq=False)
class Numbers:
    """A job: its database is the number modulo two."""

    numbers: np.ndarray
    kind = None

    @property
    def size(self) -> int:
        return max(len(self.numbers), 1)


def divided(job: Numbers) -> list[Division[Numbers]]:
    every = [(n, np.flatnonzero(job.numbers % 2 == n)) for n in (0, 1)]
    return [Division(n, rows, Numbers(job.numbers[rows])) for n, rows in every if len(rows)]


def united(parts) -> list[int]:
    numbers = dict[int, int]()
    for rows, part in parts:
        numbers |= zip(rows.tolist(), part or [0] * len(rows), strict=True)
    return [numbers[row] for row in sorted(numbers)]


@contextmanager
def over_two(
    *flushes: Callable[[list[Numbers]], Any],
    divide: Callable[[Numbers], Any] = divided,
    unite: Callable[[Any], Any] = united,
) -> Iterator[DividedBatcher[Numbers, list[int]]]:
    batcher = DividedBatcher([Batcher("n", flush, LIMITS) for flush in flushes], divide, unite)
    batcher.start()
    try:
        yield batcher
    finally:
        batcher.stop()


def written(jobs: list[Numbers]) -> list[list[int]]:
    return [job.numbers.tolist() for job in jobs]


def failing(error: Exception) -> Callable[[list[Numbers]], Any]:
    def flush(_: list[Numbers]) -> Any:
        raise error

    return flush


def broken(*_: Any) -> Any:
    raise ZeroDivisionError


def result(batcher: DividedBatcher[Numbers, list[int]], *numbers: int) -> list[int]:
    return batcher.submit(Numbers(np.array(numbers))).result(PATIENCE_S)


def test_results_stand_in_the_order_of_the_items():
    with over_two(written, written) as batcher:
        assert result(batcher, 3, 2, 5, 4) == [3, 2, 5, 4]


def test_a_database_that_is_away_loses_its_own_rows():
    with over_two(written, failing(StoreUnavailable())) as batcher:
        assert result(batcher, 3, 2, 5, 4) == [0, 2, 0, 4]
        with pytest.raises(StoreUnavailable):
            result(batcher, 3)


def test_a_fault_of_the_assembly_is_the_answer():
    with over_two(written, written, unite=broken) as batcher, pytest.raises(ZeroDivisionError):
        result(batcher, 3, 2)


def test_a_fault_of_the_division_is_the_answer():
    with over_two(written, written, divide=broken) as batcher, pytest.raises(ZeroDivisionError):
        result(batcher, 3, 2)


@pytest.mark.parametrize("numbers", [(2,), (2, 3)])
def test_a_fault_of_the_division_after_a_shard_has_moved_is_the_answer(numbers):
    n_divisions = 0

    def once(job: Numbers) -> list[Division[Numbers]]:
        nonlocal n_divisions
        n_divisions += 1
        return divided(job) if n_divisions == 1 else broken()

    with (
        over_two(failing(ShardMoved()), written, divide=once) as batcher,
        pytest.raises(ZeroDivisionError),
    ):
        result(batcher, *numbers)


def test_a_fault_of_the_assembly_after_a_shard_has_moved_is_the_answer():
    with (
        over_two(failing(ShardMoved()), written, unite=broken) as batcher,
        pytest.raises(ShardMoved),
    ):
        result(batcher, 2)
    moved = [ShardMoved()]

    def moves_once(jobs: list[Numbers]) -> list[list[int]]:
        if moved:
            raise moved.pop()
        return written(jobs)

    with (
        over_two(moves_once, written, unite=broken) as batcher,
        pytest.raises(ZeroDivisionError),
    ):
        result(batcher, 2)
