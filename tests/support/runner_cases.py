"""Runners of epochs over logical shards in memory, whose actors get signals."""

import os
from concurrent.futures import Future
from contextlib import contextmanager

from recrawl_cluster.epochs.actors import LOCAL, Actors, InActors, PartActor
from service.epochs.inputs import divided
from service.epochs.part import Run
from service.epochs.parts import EpochParts, recovered
from service.epochs.run import computed
from support.spread_cases import Filed, Result, corpus, epoch_before, grouped, ran, task

PLACES = {0: 1, 2: 0, 3: 1, 5: 2}
"""Source of each logical shard."""
WORK = task(epoch_before())


class Near:
    """An actor in this process, which answers until it is lost."""

    def __init__(self, actor):
        self.actor, self.is_lost = actor, False

    def answer(self, message):
        future = Future()
        if self.is_lost:
            future.set_exception(ConnectionError("the worker has ended"))
        else:
            future.set_result(self.actor.answer(message))
        return future


class InNear(InActors):
    """The parts of one epoch as actors in this process."""

    def place(self, which):
        for n in which:
            self.actors[n] = Near(PartActor(self.sources[n], self.task))


class Here(Actors):
    """A runner whose actors are in this process, so that their losses take no time."""

    def __init__(self, sources):
        super().__init__(sources, LOCAL)

    @contextmanager
    def opened(self, store, lead, task):
        yield InNear(self, self.sources(store), task)


class Haunted(EpochParts):
    """EpochParts whose actors get signals before some questions: (shard, number) by question."""

    def __init__(self, parts, signals):
        self.parts, self.signals, self.n_parts = parts, signals, parts.n_parts
        self.n_asked = 0

    def ask(self, question, arguments):
        self.n_asked += 1
        for victim, number in self.signals.get(self.n_asked, ()):
            strike(self.parts.actors.get(victim), number)
        return self.parts.ask(question, arguments)

    def renew(self, which):
        self.parts.renew(which)


def strike(actor, number):
    """Send a signal to the process of an actor; None: it is not placed."""
    if isinstance(actor, Near):
        actor.is_lost = True
    elif actor is not None:
        os.kill(actor.pid, number)


class Corpus:
    """Logical parts, three sources of them for other processes, and what one process computes."""

    def __init__(self, path):
        self.inputs = divided(corpus(11, {0: 60, 2: 90, 3: 20, 5: 70}))
        self.expected = ran(self.inputs, dict.fromkeys(self.inputs, 0), WORK)
        groups = grouped(self.inputs, PLACES)
        self.sources = [Filed(group, path / str(n)) for n, group in enumerate(groups)]


@contextmanager
def haunted(pool, signals, work=WORK):
    """Open the parts of an epoch under signals."""
    with pool.opened(None, None, work) as parts:
        yield Haunted(parts, signals)


def result(pool, signals):
    """Return the result of an epoch under signals, and the number of its questions."""
    with haunted(pool, signals) as parts:
        certificate = recovered(parts, lambda n: computed(parts, Run(1, n)))
        return Result(pool.sources(None), certificate), parts.n_asked
