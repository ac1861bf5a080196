"""The parts of an epoch, and the leader that asks them.

`EpochParts.ask` puts one question to all parts, and its implementations are the runners: in this
process, and as actors of Dask (`recrawl_cluster`). The leader sees sums, samples and order
statistics. It never sees the columns of pages.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import structlog
from typing_extensions import override

from service.core.common_values import alone
from service.epochs.inputs import Input, Task, load
from service.epochs.part import Contributions, EpochPart, PartSource, Run
from service.model.columns import ScheduleColumns
from service.model.errors import PartLost
from service.storage.epochs.contract import NOTHING, Learnt
from service.storage.stores.contract import Lead, Store

RESTARTS = 2
"""Maximum number of times that an epoch begins anew after a loss."""

T = TypeVar("T")

log = structlog.get_logger()


class EpochParts(ABC):
    """The parts of one epoch."""

    n_parts: int

    @property
    def unwritten(self) -> Learnt:
        """Values that the epoch learnt and no part has written."""
        return NOTHING

    @abstractmethod
    def ask(self, question: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Return the answers of all parts to a question, which is a method of `EpochPart`.

        Each part has arguments of its own. An error of a part is raised here.

        Raises
        ------
        PartLost
            A part does not answer. The answers of the others are lost too.
        """

    @abstractmethod
    def renew(self, which: Sequence[int]) -> None:
        """Replace lost parts by new ones, which have loaded their columns; raise `PartLost`."""

    def ask_all(self, question: str, *arguments: Any) -> list[Any]:
        """Return the answers to a question with the same arguments for all parts."""
        return self.ask(question, [arguments] * self.n_parts)

    def prepare(self, run: Run) -> None:
        """Write the schedule of an epoch and what it learnt; no reader sees the schedule yet."""
        self.ask_all("prepare", run)

    def joined(self, stage: str) -> list[Any]:
        """Return the results of a stage of all logical shards, in their order."""
        answers: list[Contributions] = self.ask_all("begin", stage)
        while any(answer.combine is not None for answer in answers):
            answers = self.ask("resume", replies(answers))
        return in_order(answers)


class SeveralSources(ABC):
    """A store whose epochs are computed in shards, each from a source of its own."""

    @abstractmethod
    def sources(self) -> Sequence[PartSource]:
        """Return the sources of all parts, for this process.

        Each logical shard is in one source, and the sources together have all pages.

        Raises
        ------
        ShardMoved
            A logical shard is on its way from one database to another.
        """


Spread = Callable[[Store, Lead, Task], AbstractContextManager[EpochParts]]
"""A runner: how the parts of an epoch of a store are opened under its lead."""


class UnderLead:
    """The store of a lead as the database of a part."""

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


class InProcess(EpochParts):
    """Parts in this process, one after the other."""

    def __init__(self, sources: Sequence[PartSource], task: Task) -> None:
        self.parts = [EpochPart(source, task) for source in sources]
        self.n_parts = len(self.parts)

    @override
    def ask(self, question: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        asked = zip(self.parts, arguments, strict=True)
        return [getattr(part, question)(*own) for part, own in asked]

    @override
    def renew(self, which: Sequence[int]) -> None:
        for n in which:
            self.parts[n].load()


class OneStore(InProcess):
    """The one part of a store, which this process computes under its lead."""

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
        (stages,) = self.parts[0].stages.values()
        return [alone(getattr(stages, stage)())]


def in_this_process(store: Store, lead: Lead, task: Task) -> AbstractContextManager[EpochParts]:
    """Return the parts of a store that this process computes alone."""
    if isinstance(store, SeveralSources):
        return nullcontext(InProcess(store.sources(), task))
    return nullcontext(OneStore(lead, task))


def recovered(parts: EpochParts, compute: Callable[[int], T]) -> T:
    """Return the result of a computation that begins anew after the loss of parts.

    The computation receives the number of earlier attempts. Raise `PartLost` if parts are lost
    `RESTARTS` times more.
    """
    lost: tuple[int, ...] = ()
    for attempt in range(RESTARTS + 1):
        try:
            if lost:
                parts.renew(lost)
            return compute(attempt)
        except PartLost as error:
            lost, left = tuple(sorted({*lost, *error.which})), RESTARTS - attempt
            log.warning("parts were lost", parts=lost, reason=error.detail, restarts_left=left)
            if not left:
                raise
    raise PartLost(lost)


def replies(answers: Sequence[Contributions]) -> list[tuple[Any, ...]]:
    """Return what each part is answered after all have given their shares."""
    first, *others = [answer for answer in answers if answer.shards]
    if first.combine is None or any(answer.combine is None for answer in others):
        raise TypeError("a stage has ended in one part before another")
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
