"""The shards of an epoch, and the leader that asks them.

`Shards.ask` puts one question to all shards, and its implementations are the runners: in this
process, and as actors of Dask (`recrawl_cluster`). The leader sees sums, samples and order
statistics. It never sees the columns of pages.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import structlog
from typing_extensions import override

from service.core.joint import alone
from service.epochs.shard import Contributions, Input, Run, Shard, ShardSource, Task, load
from service.model.columns import ScheduleColumns
from service.model.errors import ShardLost
from service.storage.epochs.contract import NOTHING, Learnt
from service.storage.stores.contract import Lead, Store

RESTARTS = 2
"""Maximum number of times that an epoch begins anew after a loss."""

T = TypeVar("T")

log = structlog.get_logger()


class Shards(ABC):
    """The shards of one epoch."""

    n_shards: int

    @property
    def unwritten(self) -> Learnt:
        """Values that the epoch learnt and no shard has written."""
        return NOTHING

    @abstractmethod
    def ask(self, question: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Return the answers of all shards to a question, which is a method of `Shard`.

        Each shard has arguments of its own. An error of a shard is raised here.

        Raises
        ------
        ShardLost
            A shard does not answer. The answers of the others are lost too.
        """

    @abstractmethod
    def renew(self, which: Sequence[int]) -> None:
        """Replace lost shards by new ones, which have loaded their columns; raise `ShardLost`."""

    def ask_all(self, question: str, *arguments: Any) -> list[Any]:
        """Return the answers to a question with the same arguments for all shards."""
        return self.ask(question, [arguments] * self.n_shards)

    def joined(self, stage: str) -> list[Any]:
        """Return the results of a stage of all logical shards, in their order."""
        answers: list[Contributions] = self.ask_all("begin", stage)
        while any(answer.combine is not None for answer in answers):
            answers = self.ask("resume", replies(answers))
        return in_order(answers)


class SeveralSources(ABC):
    """A store whose epochs are computed in shards, each from a source of its own."""

    @abstractmethod
    def sources(self) -> Sequence[ShardSource]:
        """Return the sources of all shards, for this process.

        Each logical shard is in one source, and the sources together have all pages.

        Raises
        ------
        ShardMoved
            A logical shard is on its way from one database to another.
        """


Spread = Callable[[Store, Lead, Task], AbstractContextManager[Shards]]
"""A runner: how the shards of an epoch of a store are opened under its lead."""


class UnderLead:
    """The store of a lead as the database of a shard."""

    learnt = NOTHING

    def __init__(self, lead: Lead) -> None:
        self.lead = lead

    def load(self, task: Task) -> dict[int, Input]:
        """Return the input of each logical shard, as of one instant."""
        with self.lead.begin(write=False) as tx:
            return load(tx, task)

    def prepare(self, run: Run, schedule: ScheduleColumns, learnt: Learnt) -> None:
        """Write the schedule; keep what the epoch learnt until it is published."""
        self.lead.write_schedule(run.epoch, schedule)
        self.learnt = learnt


class InProcess(Shards):
    """Shards in this process, one after the other."""

    def __init__(self, sources: Sequence[ShardSource], task: Task) -> None:
        self.shards = [Shard(source, task) for source in sources]
        self.n_shards = len(self.shards)

    @override
    def ask(self, question: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        asked = zip(self.shards, arguments, strict=True)
        return [getattr(shard, question)(*own) for shard, own in asked]

    @override
    def renew(self, which: Sequence[int]) -> None:
        for n in which:
            self.shards[n].load()


class OneStore(InProcess):
    """The one shard of a store, which this process computes under its lead."""

    def __init__(self, lead: Lead, task: Task) -> None:
        self.source = UnderLead(lead)
        super().__init__([self.source], task)

    @property
    @override
    def unwritten(self) -> Learnt:
        return self.source.learnt

    @override
    def joined(self, stage: str) -> list[Any]:
        """Return the results of a stage; one logical shard waits for no other."""
        (stages,) = self.shards[0].stages.values()
        return [alone(getattr(stages, stage)())]


def in_this_process(store: Store, lead: Lead, task: Task) -> AbstractContextManager[Shards]:
    """Return the shards of a store that this process computes alone."""
    if isinstance(store, SeveralSources):
        return nullcontext(InProcess(store.sources(), task))
    return nullcontext(OneStore(lead, task))


def recovered(shards: Shards, compute: Callable[[int], T]) -> T:
    """Return the result of a computation that begins anew after the loss of shards.

    The computation receives the number of earlier attempts. Raise `ShardLost` if shards are lost
    `RESTARTS` times more.
    """
    lost: tuple[int, ...] = ()
    for attempt in range(RESTARTS + 1):
        try:
            if lost:
                shards.renew(lost)
            return compute(attempt)
        except ShardLost as error:
            lost, left = tuple(sorted({*lost, *error.which})), RESTARTS - attempt
            log.warning("shards were lost", shards=lost, reason=error.detail, restarts_left=left)
            if not left:
                raise
    raise ShardLost(lost)


def replies(answers: Sequence[Contributions]) -> list[tuple[Any, ...]]:
    """Return what each shard is answered after all have given their shares."""
    first, *others = [answer for answer in answers if answer.shards]
    if first.combine is None or any(answer.combine is None for answer in others):
        raise TypeError("a stage has ended in one shard before another")
    reply = first.combine(in_order(answers))
    if not first.own_reply:
        return [(reply,)] * len(answers)
    place = [(n, *key) for n, answer in enumerate(answers) for key in enumerate(answer.shards)]
    place.sort(key=lambda each: (each[2], each[0]))
    own: list[dict[int, Any]] = [{} for _ in answers]
    for (n, _, shard), each in zip(place, reply, strict=True):
        own[n][shard] = each
    return [(None, each) for each in own]


def in_order(answers: Sequence[Contributions]) -> list[Any]:
    """Return the values of all answers in the order of logical shards."""
    each = [
        (shard, n, value)
        for n, answer in enumerate(answers)
        for shard, value in zip(answer.shards, answer.values, strict=True)
    ]
    each.sort(key=lambda one: one[:2])
    return [value for *_, value in each]
