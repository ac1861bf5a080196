"""A store that fails on demand, and a batcher of reports on it."""

import threading
from contextlib import contextmanager

import numpy as np

from recrawl_lab.memory.store import MemoryStore
from service.batching.reports import Recorder, batched
from service.core.estimators.gamma import Gamma
from service.estimation.rules import InForce, Rules
from service.model.domain import Timing

PATIENCE_S = 180


def rules() -> Rules:
    return Rules(Gamma(), Timing.periodic, np.random.default_rng(1))


def recorder(store) -> Recorder:
    return Recorder(store, InForce(rules()), None)


class Faulty(MemoryStore):
    """A store whose transactions can be delayed or made to fail."""

    def __init__(self) -> None:
        super().__init__(2)
        self.open = threading.Event()
        self.open.set()
        self.entered = threading.Semaphore(0)
        self.at_begin: list[Exception] = []
        self.at_commit: list[Exception] = []
        self.poisonous = 0

    @contextmanager
    def begin(self, *, write=True):
        if not write:
            with super().begin(write=False) as tx:
                yield tx
            return
        self.entered.release()
        assert self.open.wait(PATIENCE_S)
        if self.at_begin:
            raise self.at_begin.pop(0)
        with super().begin() as tx:
            lock = tx.lock_states

            def locked(page_id, **what):
                if self.poisonous in page_id:
                    raise ZeroDivisionError
                return lock(page_id, **what)

            tx.lock_states = locked
            yield tx
            if self.at_commit:
                raise self.at_commit.pop(0)


@contextmanager
def writing(store, n_writers=1, watch=lambda _: None, flush="flush_crawls"):
    """Run a batcher of reports, and end its writers after the block."""
    batcher = batched("reports", getattr(recorder(store), flush), n_writers, watch)
    batcher.start()
    try:
        yield batcher
    finally:
        batcher.stop()
