"""Runners of epochs over logical shards in memory, whose processes get signals."""

import os
from contextlib import contextmanager

from service.epochs.run import computed
from service.epochs.shard import Run, divided
from service.epochs.shards import Shards, recovered
from support.spread_cases import Filed, Result, corpus, epoch_before, grouped, ran, task

PLACES = {0: 1, 2: 0, 3: 1, 5: 2}
"""Source of each logical shard."""
WORK = task(epoch_before())


class Haunted(Shards):
    """Shards whose processes get signals before some questions: (shard, number) by question."""

    def __init__(self, shards, signals):
        self.shards, self.signals, self.n_shards = shards, signals, shards.n_shards
        self.n_asked = 0

    def ask(self, question, arguments):
        self.n_asked += 1
        for victim, number in self.signals.get(self.n_asked, ()):
            if pid := pid_of(self.shards, victim):
                os.kill(pid, number)
        return self.shards.ask(question, arguments)

    def renew(self, which):
        self.shards.renew(which)


def pid_of(shards, victim):
    """Return the process of a shard; None while an actor is not placed."""
    if hasattr(shards, "actors"):
        actor = shards.actors.get(victim)
        return actor and actor.pid
    return shards.pool.workers[victim].process.pid


class Corpus:
    """Logical shards, three sources of them for other processes, and what one process computes."""

    def __init__(self, path):
        self.inputs = divided(corpus(11, {0: 60, 2: 90, 3: 20, 5: 70}))
        self.expected = ran(self.inputs, dict.fromkeys(self.inputs, 0), WORK)
        groups = grouped(self.inputs, PLACES)
        self.sources = [Filed(group, path / str(n)) for n, group in enumerate(groups)]


@contextmanager
def haunted(pool, signals, work=WORK):
    """Open the shards of an epoch under signals."""
    with pool.opened(None, None, work) as shards:
        yield Haunted(shards, signals)


def result(pool, signals):
    """Return the result of an epoch under signals, and the number of its questions."""
    with haunted(pool, signals) as shards:
        certificate = recovered(shards, lambda n: computed(shards, Run(1, n)))
        return Result(pool.sources(None), certificate), shards.n_asked
