"""Transactions on arrays of this process: pages, their states and the log.

The row of a page is always its page_id - 1, so every statement is indexing. A transaction records
the values that it overwrites, so a rollback costs as much as the writes.
"""

from abc import update_abstractmethods
from collections.abc import Callable
from dataclasses import fields, replace
from datetime import datetime
from functools import partial
from typing import Any, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from recrawl_lab.memory.contents import OF_PAGE, PAGE, WRITTEN, Contents
from recrawl_lab.memory.growing import Undo
from recrawl_lab.memory.links import MemoryLinks
from recrawl_lab.memory.log import decode
from service.core.prices import means_of_hosts, payable
from service.model.arrays import (
    INSTANT,
    NO_TIME,
    UNSPECIFIED,
    Floats,
    Instants,
    Ints,
    Keys,
    instant,
)
from service.model.births import births
from service.model.changes import ChangeColumns
from service.model.columns import (
    NOT_SHIFTED,
    DueColumns,
    PageColumns,
    PageStates,
    StoredPages,
)
from service.model.domain import Observability, Page, PagePatch
from service.model.errors import PageNotFound
from service.model.freshness import FreshnessColumns, MeasuredPages
from service.model.history import StepSums
from service.model.id_space import IdSpace
from service.model.incarnations import Incarnation
from service.model.listing import PageTags
from service.model.urls import url_groups
from service.storage.budget.orders import NO_ORDERS, Orders
from service.storage.history.contract import SummedSteps
from service.storage.pages.contract import Brought, RegisteredPages
from service.storage.pages.validators import StoredValidators, ValidatorChanges

T = TypeVar("T")


def refuses_the_rest(transaction: type[T]) -> type[T]:
    """Return the class with an implementation of every missing statement that raises an error."""

    def refusal(name: str) -> Callable[..., NoReturn]:
        def refuse(*_: object, **__: object) -> NoReturn:
            raise NotImplementedError(
                f"the store in memory has no `{name}`, because it has no queue, hosts or "
                "subscriptions; check `store.has_queue`, or open a SQLite file"
            )

        return refuse

    for name in transaction.__abstractmethods__:  # type: ignore[attr-defined]
        setattr(transaction, name, refusal(name))
    return update_abstractmethods(transaction)


@refuses_the_rest
class MemoryTransaction(MemoryLinks):
    """The statements on arrays."""

    def __init__(self, store: Contents) -> None:
        self.store = store
        self.pages = store.pages
        self.states = store.states
        self.log = store.log
        self.undo: Undo = []
        self.counted: list[Any] = []

    @override
    def incarnations(self) -> list[Incarnation]:
        return []

    @override
    def incarnation(self) -> str:
        return ""

    @override
    def tables(self) -> str:
        return ""

    @override
    def orders(self) -> Orders:
        return NO_ORDERS

    # -- pages

    @override
    def register(
        self, pages: PageColumns, now: datetime, brought: Brought | None = None
    ) -> RegisteredPages:
        page_id = self.page_ids(pages.key)
        new, old = pages.take(page_id == 0), page_id > 0
        if len(new):
            self._add(new, instant(now))
            if brought is not None:
                self._bring(brought.take(~old))
        if old.any():
            self._change(page_id[old] - 1, pages.take(old), instant(now))
        return RegisteredPages(self.page_ids(pages.key) if len(new) else page_id, ~old)

    def _add(self, new: PageColumns, now: np.datetime64) -> None:
        start = self.pages.n
        host_ids = self.store.host_ids
        has_observability = new.observability != UNSPECIFIED
        host_id = [host_ids.setdefault(host, len(host_ids)) for host in new.host]
        known_at = [self.store.host_known_at.setdefault(host, now) for host in new.host]
        self.pages.append(
            self.undo,
            len(new),
            alive=True,
            url=new.url,
            host_id=host_id,
            url_group=url_groups(new.url),
            importance=np.where(np.isnan(new.importance), 1.0, new.importance),
            observability=np.where(has_observability, new.observability, Observability.auto),
            created_at=now,
            born_at=births(np.array(known_at, INSTANT), now),
            min_crawl_rate=new.min_crawl_rate,
            max_crawl_rate=new.max_crawl_rate,
        )
        self.states.append(
            self.undo,
            len(new),
            last_crawl_at=NO_TIME,
            last_observed_at=NO_TIME,
            last_ping_at=NO_TIME,
            requested_at=NO_TIME,
            renewed_at=NO_TIME,
            absent_since=NO_TIME,
            retry_rate=0.0,
            cost=0.0,
            pings_since=now,
            interval_factor=1.0,
            last_age=np.nan,
        )
        keys = new.key.tolist()
        self.store.page_id_of.update(zip(keys, range(start + 1, start + 1 + len(new)), strict=True))
        self.store.key_of.extend(keys)
        self.undo.append(partial(self._forget_keys, start))

    def _bring(self, brought: Brought) -> None:
        row = np.arange(self.pages.n - len(brought.created_at), self.pages.n)
        self.restore_states(replace(brought.states, page_id=row + 1))
        dated = ~np.isnat(brought.created_at)
        self.pages.put(self.undo, row[dated], created_at=brought.created_at[dated])
        self.pages.put(self.undo, row, born_at=brought.born_at)

    def date_births(self, page_id: Ints, created_at: Instants) -> None:
        """Date the births of pages, which a replay registers at the end of a step."""
        row = page_id - 1
        born = ~np.isnat(self.pages["born_at"][row])
        self.pages.put(self.undo, row[born], born_at=created_at[born])

    def _forget_keys(self, start: int) -> None:
        for key in self.store.key_of[start:]:
            self.store.page_id_of.pop(key, None)
        del self.store.key_of[start:]

    def _change(self, row: Ints, pages: PageColumns, now: np.datetime64) -> None:
        complete = pages.observability == Observability.complete
        self._recount_pings(row[complete], now)
        for name in ("observability", "importance", "min_crawl_rate", "max_crawl_rate"):
            new = getattr(pages, name)
            keeps = new == UNSPECIFIED if name == "observability" else np.isnan(new)
            self.pages.put(self.undo, row, **{name: np.where(keeps, self.pages[name][row], new)})

    def _recount_pings(self, row: Ints, now: np.datetime64) -> None:
        became = row[self.pages["observability"][row] != Observability.complete]
        self.states.put(
            self.undo, became, n_pings=0, recent_pings=0.0, pings_since=now, ping_credit=0.0
        )

    @override
    def page_ids(self, key: Keys, host: NDArray[np.object_] | None = None) -> Ints:
        ids = self.store.page_id_of
        return np.array([ids.get(k, 0) for k in key.tolist()], np.int64)

    def _row(self, page_id: int) -> int:
        if not (0 < page_id <= self.pages.n and self.pages["alive"][page_id - 1]):
            raise PageNotFound(f"no page has the id {page_id}; GET /pages lists the pages")
        return page_id - 1

    @override
    def page(self, page_id: int) -> Page:
        row = self._row(page_id)
        rates = self._in_force(np.array([page_id]))
        due = self._due_columns(np.array([row]), rates)
        cells: dict[str, Any] = {name: column[0] for name, column in rates.arrays().items()}
        for table in (self.pages, self.states):
            cells |= {name: table[name][row] for name in table.columns}
        target = int(cells["redirects_to"])
        there = target > 0 and self.pages["alive"][target - 1]
        cells |= {
            "host": self.store.host(int(cells["host_id"])),
            "hours": self.calendars.of_host(int(cells["host_id"]), self.clock()),
            "due_rate": due["due_rate"][0],
            "shift": None if rates.shift[0] == NOT_SHIFTED else int(rates.shift[0]),
            "redirects_to": target or None,
            "redirects_to_url": self.pages["url"][target - 1] if there else None,
        }
        present = (f for f in fields(Page) if f.name in cells)
        return Page(**{f.name: decode(cells[f.name], f.type) for f in present})

    @override
    def change_page(self, page_id: int, patch: PagePatch, now: datetime) -> None:
        row = self._row(page_id)
        settings = {f.name: getattr(patch, f.name) for f in fields(PagePatch)}
        cleared = settings.pop("cleared")
        values = {name: value for name, value in settings.items() if value is not None}
        if patch.observability is Observability.complete:
            self._recount_pings(np.array([row]), instant(now))
        self.pages.put(self.undo, row, **values, **dict.fromkeys(cleared, np.nan))

    @override
    def delete_page(self, page_id: int) -> None:
        # the page_id is never used again; retention deletes the log
        row = self._row(page_id)
        key = self.store.key_of[row]
        self.pages.put(self.undo, row, alive=False)
        self.undo.append(partial(self.store.page_id_of.__setitem__, key, page_id))
        del self.store.page_id_of[key]
        self.log.put(self.undo, np.flatnonzero(self.log["page_id"] == page_id), page_id=0)

    @override
    def freshness_columns(self, page_id: Ints) -> FreshnessColumns:
        there = self._there(np.unique(page_id))
        row, rates = there - 1, self._in_force(there)
        names = {f.name for f in fields(FreshnessColumns)}
        columns = {
            name: table[name][row]
            for table in (self.pages, self.states)
            for name in names & table.columns.keys()
        }
        columns |= self._due_columns(row, rates)
        urgency = np.where(rates.shift == NOT_SHIFTED, rates.urgency, np.nan)
        stated = rates.observed_ratio
        ratio = np.zeros(len(there)) if stated is None else np.nan_to_num(stated)
        return FreshnessColumns(**columns, page_id=there, urgency=urgency, observed_ratio=ratio)

    @override
    def measured_pages(self, after: int, last: int) -> MeasuredPages:
        pages = self.freshness_columns(np.arange(after + 1, last + 1))
        pages = pages.where(~pages.gone)
        importance = self.pages["importance"][pages.page_id - 1]
        return MeasuredPages(**pages.arrays(), importance=importance)

    @override
    def page_ranges(self) -> IdSpace:
        return IdSpace(np.array([[0, self.pages.n]]))

    @override
    def tags_of(self, page_id: Ints) -> PageTags:
        # because no page of a replay has tags
        return PageTags.empty()

    # -- observations

    @override
    def lock_states(self, page_id: Ints, *, scheduled: bool = False) -> PageStates:
        there = self._there(page_id)
        row = there - 1
        unread = np.full((2, len(there)), np.nan)
        rates = self._in_force(there) if scheduled else None
        return PageStates(
            page_id=there,
            held=self.pages["held"][row],
            crawl_rate=rates.crawl_rate if rates else unread[0],
            crawl_probability=rates.crawl_probability if rates else unread[1],
            **{name: self.pages[name][row] for name in OF_PAGE},
            **{name: self.states[name][row] for name in self.states.columns},
        )

    @override
    def due_columns(self, page_id: Ints) -> DueColumns:
        there = self._there(page_id)
        return DueColumns(page_id=there, **self._due_columns(there - 1, self._in_force(there)))

    @override
    def save_states(self, states: PageStates) -> None:
        row = states.page_id - 1
        self.states.put(self.undo, row, **{name: getattr(states, name) for name in WRITTEN})

    @override
    def clear_estimates(self, page_id: Ints) -> None:
        states = self.lock_states(page_id)
        self.save_states(replace(states, estimate=np.zeros_like(states.estimate)))

    @override
    def append_changes(self, changes: ChangeColumns) -> None:
        """Drop the changes, because a replay has no readers of a feed."""

    @override
    def count(self, events: Any) -> None:
        self.counted.append(events)

    @override
    def sum_steps(self, host_id: int, since: datetime, until: datetime) -> SummedSteps:
        return self.store.counts.sums(since, until)

    @override
    def parts_from(self, since: datetime, limit: int) -> list[StepSums]:
        return []

    # -- pages that are exported

    @override
    def validators(self, page_id: Ints) -> StoredValidators:
        return StoredValidators.empty()

    @override
    def save_validators(self, changes: ValidatorChanges) -> None:
        """Keep nothing, because replays send no conditional requests."""

    @override
    def clear_validators(self, page_id: Ints) -> None:
        """Clear nothing, because `save_validators` keeps nothing."""

    @override
    def doubt_validators(self, page_id: Ints) -> None:
        """Doubt nothing, because `save_validators` keeps nothing."""

    @override
    def set_kinds(self, page_id: Ints, *, feed: bool) -> Ints:
        return page_id[:0]  # a replay has no feeds, and leases take all pages alike

    @override
    def read_pages(self, after: int, limit: int) -> tuple[StoredPages, PageStates]:
        states = self.lock_states(self.next_page_ids(after, limit))
        row = states.page_id - 1
        names = (f.name for f in fields(StoredPages) if f.name in PAGE)
        own = {name: self.pages[name][row] for name in names}
        pages = StoredPages(page_id=states.page_id, **own, feed=np.zeros(len(row), np.bool_))
        return pages, states

    @override
    def restore_states(self, states: PageStates) -> None:
        self.save_states(states)
        self.states.put(self.undo, states.page_id - 1, pings_since=states.pings_since)

    # -- the store itself

    @override
    def estimator(self) -> str | None:
        return self.store.estimator

    @override
    def set_estimator(self, name: str) -> None:
        self.set("estimator", name)

    @override
    def cost_unit(self) -> str | None:
        return self.store.cost_unit

    @override
    def set_cost_unit(self, unit: str) -> None:
        self.set("cost_unit", unit)

    @override
    def clear_costs(self, page_id: Ints) -> None:
        self.states.put(self.undo, page_id - 1, cost=np.zeros(len(page_id)))

    @override
    def host_costs(self, host_id: Ints, most: float) -> Floats:
        cost, of_page = payable(self.states["cost"], most), self.states["host_id"]
        place = np.minimum(host_id.searchsorted(of_page), len(host_id) - 1)
        some = (host_id[place] == of_page) & self.pages["alive"]
        return means_of_hosts(cost[some], place[some], len(host_id))

    @override
    def next_page_ids(self, after: int, limit: int) -> Ints:
        start = max(after, 0)
        return np.flatnonzero(self.pages["alive"][start:])[:limit] + start + 1

    @override
    def housekeep(self, keep_log_since: datetime | None, now: datetime) -> None:
        if keep_log_since is not None:
            self.log.keep(self.undo, self.log["observed_at"] >= instant(keep_log_since))

    def roll_back(self) -> None:
        """Restore the overwritten values, newest first."""
        self.store.evidence.forget()
        while self.undo:
            self.undo.pop()()
