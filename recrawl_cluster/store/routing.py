"""The way of each statement: to the shard of an id, to some shards, to all, or to the coordinator.

A statement runs on its databases in the order of the file. Because all transactions follow this
order, two transactions never wait for each other in a ring over several databases.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from recrawl_cluster.store.database import ShardTransaction
from recrawl_cluster.store.shard_map import ShardMap
from service.model.arrays import Columns, Ints
from service.model.errors import ShardMoved
from service.storage.stores.contract import Transaction
from service.storage.topics import Topic

LAST_ID = 2**63 - 1
ALL_ROWS = slice(None)


class Share(NamedTuple):
    """Rows of a statement that go to one database."""

    tx: ShardTransaction
    rows: Ints | slice


class Span(NamedTuple):
    """Ids after < id <= last whose pages are in one database."""

    routing: "Routing"
    database: int
    after: int
    last: int
    is_end: bool
    """True for the last span of the map."""

    @property
    def tx(self) -> ShardTransaction:
        """The transaction on the database, which opens at its first use."""
        return self.routing.on(self.database)


class Routing(Transaction):
    """A transaction that consists of transactions on single databases."""

    has_shards = True
    shard_map: ShardMap

    @override
    def shards_of(self, hosts: NDArray[np.object_]) -> Ints:
        return self.shard_map.shards_of(hosts)

    @override
    def by_database(self, page_id: Ints) -> Sequence[tuple[Transaction, Ints | slice]]:
        return self.split(page_id)

    def of_shard(self, shard: int) -> ShardTransaction:
        """Return the transaction on the database of a logical shard."""
        return self.on(int(self.shard_map.database_of_shard[shard]))

    @abstractmethod
    def on(self, position: int) -> ShardTransaction:
        """Return the transaction on a database, which opens at its first use."""

    @property
    @abstractmethod
    def opened(self) -> Sequence[ShardTransaction]:
        """The transactions that are open."""

    @property
    def coordinator(self) -> ShardTransaction:
        """The transaction on the coordinator."""
        return self.on(self.shard_map.coordinator)

    def of(self, an_id: int) -> ShardTransaction:
        """Return the transaction on the database of a page, host, group or host queue."""
        return self.on(int(self.shard_map.databases_of_ids(np.array([an_id]))[0]))

    @override
    def ring(self, topic: Topic) -> None:
        self.coordinator.ring(topic)

    @override
    def of_host(self, host: str) -> ShardTransaction:
        return self.on(self.database_of_host(host))

    def database_of_host(self, host: str) -> int:
        """Return the position of the database of a host."""
        return int(self.shard_map.database_of_shard[self.shard_map.shard_of(host)])

    def every(self) -> Iterator[ShardTransaction]:
        """Yield the transactions on all databases."""
        return map(self.on, range(len(self.shard_map.databases)))

    def whole(self) -> Iterator[ShardTransaction]:
        """Yield the transactions on all databases; raise `ShardMoved` while a shard is in none."""
        if self.shard_map.closed:
            raise ShardMoved
        return self.every()

    def shares(self, position: Ints) -> list[Share]:
        """Return the shares of rows whose databases have these positions; at least one share."""
        if not len(position):
            return [Share(self.opened[0] if self.opened else self.coordinator, ALL_ROWS)]
        positions = np.unique(position).tolist()
        if len(positions) == 1:
            return [Share(self.on(positions[0]), ALL_ROWS)]
        return [Share(self.on(n), np.flatnonzero(position == n)) for n in positions]

    def split(self, ids: Ints) -> list[Share]:
        """Return the shares of rows with these ids."""
        return self.shares(self.shard_map.databases_of_ids(ids))

    def split_hosts(self, hosts: NDArray[np.object_]) -> list[Share]:
        """Return the shares of rows with these hosts."""
        return self.shares(self.shard_map.databases_of_hosts(hosts))

    def spans(self, after: int, last: int = LAST_ID) -> Iterator[Span]:
        """Yield the spans that overlap after < id <= last, ascending."""
        stretches = self.shard_map.stretches
        for stretch in stretches:
            if stretch.last > after and stretch.after < last:
                first, end = max(after, stretch.after), min(last, stretch.last)
                yield Span(self, stretch.database, first, end, stretch is stretches[-1])


def aligned(shares: Sequence[Share], results: Sequence[Any]) -> Any:
    """Return results of shares in the order of the rows: arrays, columns, or tuples of both."""
    if len(shares) == 1:
        return results[0]
    first = results[0]
    if isinstance(first, tuple):
        parts = zip(*results, strict=True)
        merged = [aligned(shares, part) for part in parts]
        return type(first)(*merged) if hasattr(first, "_fields") else tuple(merged)
    rows = np.concatenate([share.rows for share in shares])
    back = np.empty(len(rows), np.int64)
    back[rows] = np.arange(len(rows))
    whole = joined(results)
    return whole.take(back) if isinstance(whole, Columns) else whole[back]


def joined(results: Sequence[Any]) -> Any:
    """Return arrays or columns, one after the other."""
    if isinstance(results[0], Columns):
        return type(results[0]).concatenate(results)
    return np.concatenate(results)


def ascending(_: Sequence[Share], results: Sequence[Any]) -> Any:
    """Return arrays, or columns by their first field, in ascending order; equals keep theirs."""
    if len(results) == 1:
        return results[0]
    whole = joined(results)
    if not isinstance(whole, Columns):
        return np.sort(whole)
    key = getattr(whole, next(iter(whole.__dataclass_fields__)))
    if (key[1:] >= key[:-1]).all():
        return whole
    return whole.take(np.argsort(key, kind="stable"))


def added(_: Sequence[Share], results: Sequence[Any]) -> Any:
    """Return the sum of numbers."""
    return sum(results)


def nothing(_: Sequence[Share], results: Sequence[Any]) -> None:
    """Return nothing, for statements that write."""


Merge = Callable[[Sequence[Share], Sequence[Any]], Any]


def by_coordinator(name: str) -> Any:
    """Return the method that runs a statement on the coordinator."""

    def run(self: Routing, *values: Any, **named: Any) -> Any:
        return getattr(self.coordinator, name)(*values, **named)

    return run


def by_part(name: str) -> Any:
    """Return the method that refuses a statement of one database (`Store.parts`)."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise TypeError(f"{name} is a statement of one database; see Store.parts")

    return refuse


def by_id(name: str) -> Any:
    """Return the method whose first parameter is an id."""

    def run(self: Routing, an_id: int, *values: Any, **named: Any) -> Any:
        return getattr(self.of(an_id), name)(an_id, *values, **named)

    return run


def by_ids(name: str, merge: Merge, *, rowwise: bool = False) -> Any:
    """Return the method whose first parameter is an array of ids.

    With `rowwise`, the second parameter has a value for each id.
    """

    def run(self: Routing, ids: Ints, *values: Any, **named: Any) -> Any:
        shares, results = self.split(ids), []
        for tx, rows in shares:
            of_rows = (values[0][rows], *values[1:]) if rowwise else values
            results.append(getattr(tx, name)(ids[rows], *of_rows, **named))
        return merge(shares, results)

    return run


def by_column(name: str, merge: Merge = nothing, *, column: str = "page_id") -> Any:
    """Return the method whose first parameter is columns with a column of ids."""

    def run(self: Routing, columns: Columns, *values: Any, **named: Any) -> Any:
        shares = self.split(getattr(columns, column))
        results = [
            getattr(tx, name)(
                columns if isinstance(rows, slice) else columns.take(rows), *values, **named
            )
            for tx, rows in shares
        ]
        return merge(shares, results)

    return run


def on_all(name: str, merge: Merge = nothing) -> Any:
    """Return the method that runs on every database."""

    def run(self: Routing, *values: Any, **named: Any) -> Any:
        return merge((), [getattr(tx, name)(*values, **named) for tx in self.every()])

    return run


def on_range(name: str, merge: Merge) -> Any:
    """Return the method whose first parameters are a range of ids, after and last."""

    def run(self: Routing, after: int, last: int, *values: Any) -> Any:
        results = [getattr(s.tx, name)(s.after, s.last, *values) for s in self.spans(after, last)]
        return merge((), results or [getattr(self.coordinator, name)(last, last, *values)])

    return run
