"""Pages, their states, logs and validators over several databases."""

from dataclasses import replace
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from recrawl_cluster.store.routing import (
    Routing,
    added,
    aligned,
    ascending,
    by_column,
    by_coordinator,
    by_id,
    by_ids,
    nothing,
    on_all,
    on_range,
)
from service.model.arrays import Ints, Keys
from service.model.changes import ChangeFilter
from service.model.columns import PageColumns, PageStates, StoredPages
from service.model.domain import Page
from service.storage.pages.contract import Brought, RegisteredPages


class ShardedPages(Routing):
    """The statements on pages."""

    @override
    def register(
        self, pages: PageColumns, now: datetime, brought: Brought | None = None
    ) -> RegisteredPages:
        shares, results = self.split_hosts(pages.host), []
        for tx, rows in shares:
            some = pages if isinstance(rows, slice) else pages.take(rows)
            results.append(tx.register(some, now, None if brought is None else _of(brought, rows)))
        registered: RegisteredPages = aligned(shares, results)
        return registered

    @override
    def page_ids(self, key: Keys, host: NDArray[np.object_] | None = None) -> Ints:
        if host is None:
            ids: Ints = np.max([tx.page_ids(key) for tx in self.whole()], axis=0)
            return ids
        shares = self.split_hosts(host)
        page_id: Ints = aligned(shares, [tx.page_ids(key[rows]) for tx, rows in shares])
        return page_id

    @override
    def page(self, page_id: int) -> Page:
        page = self.of(page_id).page(page_id)
        target = page.redirects_to
        if not target or page.redirects_to_url is not None:
            return page
        urls = self.of(target).page_urls(np.array([target]), ChangeFilter()).url.tolist()
        return replace(page, redirects_to_url=urls[0] if urls else None)

    change_page = by_id("change_page")
    delete_page = by_id("delete_page")
    page_log = by_id("page_log")
    whole_log = by_id("whole_log")

    lock_states = by_ids("lock_states", ascending)
    save_states = by_column("save_states")
    restore_states = by_column("restore_states")
    wake = by_ids("wake", ascending)
    clear_estimates = by_ids("clear_estimates", nothing)
    append_log = by_column("append_log")
    log_of = by_ids("log_of", ascending)
    evidence_of = by_ids("evidence_of", ascending)
    log_since = on_range("log_since", ascending)
    logged = by_ids("logged", aligned, rowwise=True)
    pings_after = by_ids("pings_after", aligned, rowwise=True)

    validators = by_ids("validators", ascending)
    save_validators = by_column("save_validators")
    clear_validators = by_ids("clear_validators", nothing)
    doubt_validators = by_ids("doubt_validators", nothing)
    set_false_304 = by_ids("set_false_304", nothing)

    links_of = by_ids("links_of", ascending)
    link = by_ids("link", ascending)
    shared_targets = by_ids("shared_targets", ascending)
    led_to = by_ids("led_to", ascending)
    with_known_digest = by_ids("with_known_digest", ascending, rowwise=True)
    request_walls = by_ids("request_walls", ascending)
    unlink = by_ids("unlink", ascending)
    add_hops = by_ids("add_hops", nothing)
    request_retired = by_ids("request_retired", ascending)

    @override
    def read_pages(self, after: int, limit: int) -> tuple[StoredPages, PageStates]:
        parts: list[tuple[StoredPages, PageStates]] = []
        for span in self.spans(after):
            pages, states = span.tx.read_pages(span.after, limit)
            within = pages.page_id <= span.last
            parts.append((pages.where(within), states.where(within)))
            limit -= int(within.sum())
            if limit <= 0:
                break
        every = [pages for pages, _ in parts], [states for _, states in parts]
        return StoredPages.concatenate(every[0]), PageStates.concatenate(every[1])

    @override
    def next_page_ids(self, after: int, limit: int) -> Ints:
        parts: list[Ints] = []
        for span in self.spans(after):
            ids = span.tx.next_page_ids(span.after, limit)
            parts.append(ids[ids <= span.last])
            limit -= len(parts[-1])
            if limit <= 0:
                break
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)

    redate_leases = on_all("redate_leases")
    redate_pages = on_range("redate_pages", nothing)

    estimator = by_coordinator("estimator")
    set_estimator = on_all("set_estimator")
    cost_unit = by_coordinator("cost_unit")
    set_cost_unit = on_all("set_cost_unit")
    clear_costs = by_ids("clear_costs", nothing)

    freshness_columns = by_ids("freshness_columns", ascending)
    logged_changes = by_ids("logged_changes", aligned, rowwise=True)
    existing_pages = by_ids("existing_pages", ascending)
    registered_at = by_ids("registered_at", aligned)
    lock_page_rows = by_ids("lock_page_rows", ascending)
    locked_page_rows = by_ids("locked_page_rows", ascending)
    bounds_of = by_ids("bounds_of", ascending)
    contradicted = by_ids("contradicted", ascending)
    change_many = by_ids("change_many", ascending)
    set_kinds = by_ids("set_kinds", ascending)
    queued_bounds = by_ids("queued_bounds", ascending)
    request_many = by_ids("request_many", ascending)
    delete_many = by_ids("delete_many", added)
    measured_pages = on_range("measured_pages", ascending)

    @override
    def last_page_id(self) -> int:
        return max(tx.last_page_id() for tx in self.every())


def _of(brought: Brought, rows: Any) -> Brought:
    return brought if isinstance(rows, slice) else brought.take(rows)
