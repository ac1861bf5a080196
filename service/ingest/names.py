"""From the names of pages to pages: an item names its page by id or by URL."""

from collections.abc import Sequence
from datetime import datetime
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from service.model.arrays import UNSPECIFIED, Bools, Ints
from service.model.columns import PageColumns
from service.storage import Transaction


class PageNames(NamedTuple):
    """(N,) items that name their page by id or by URL."""

    page_id: Ints
    """0 where the item names its page by URL."""
    row: Ints
    """The URL's row in `pages`, -1 where the item names its page by id."""
    pages: PageColumns
    """The distinct URLs."""
    target: Ints | None = None
    """Row in `pages` of the item's redirect target, -1 for none; None: no item redirects."""


class PageRows(NamedTuple):
    """(N,) the pages of items."""

    page_id: Ints
    """As in `CrawlColumns`."""
    redirects_to: Ints
    """As in `CrawlColumns`."""
    new: Ints
    """Pages that were registered because others redirect to them."""


def merge_names(names: Sequence[PageNames]) -> PageNames:
    """Return the names of several requests as names of one request: each distinct URL once."""
    if len(names) == 1:
        return names[0]
    pages = PageColumns.concatenate([each.pages for each in names])
    _, first, merged = np.unique(pages.key, return_index=True, return_inverse=True)
    merged = np.append(merged, -1)  # row -1 stays -1
    starts = list(accumulate((len(each.pages) for each in names[:-1]), initial=0))

    def rows(parts: Sequence[Ints]) -> Ints:
        shifted = (
            np.where(row < 0, -1, row + start) for row, start in zip(parts, starts, strict=True)
        )
        rows: Ints = merged[np.concatenate(list(shifted))]
        return rows

    target = None
    if any(each.target is not None for each in names):
        nowhere = [np.full(len(each.row), -1) for each in names]
        target = rows([n if t is None else t for n, (*_, t) in zip(nowhere, names, strict=True)])
    page_id = np.concatenate([each.page_id for each in names])
    return PageNames(page_id, rows([each.row for each in names]), pages.take(first), target)


def resolve(
    tx: Transaction, names: PageNames, now: datetime, *, register: bool, leased: Ints | None = None
) -> PageRows:
    """Return the page of each item; register unknown URLs, or return 0 for them.

    A page that redirects to itself does not redirect. An item under a lease must be of the
    `leased` page (0: no lease). The URLs of another item are not registered for its sake.
    """
    none = np.zeros(len(names.page_id), np.int64)
    if not len(names.pages):
        return PageRows(names.page_id, none, none[:0])
    url_page_id = tx.page_ids(names.pages.key)
    if leased is not None and leased.any():
        elsewhere = (leased > 0) & (names.row >= 0) & (url_page_id[names.row] != leased)
        names = _without(names, elsewhere)
    new = (url_page_id == 0) & _used(names)
    if register and new.any():
        url_page_id[new] = tx.register(names.pages.take(new), now).page_id
    page_id = np.where(names.row >= 0, url_page_id[names.row], names.page_id)
    if names.target is None:
        return PageRows(page_id, none, none[:0])
    target = np.where(url_page_id[names.target] > 0, url_page_id[names.target], UNSPECIFIED)
    away = (names.target >= 0) & (target != page_id)
    added = names.target[away & new[names.target]] if register else none[:0]
    return PageRows(page_id, np.where(away, target, 0), np.unique(url_page_id[added]))


def _without(names: PageNames, elsewhere: Bools) -> PageNames:
    """Leave out the names of items that are of another page than was leased."""
    page_id = np.where(elsewhere, UNSPECIFIED, names.page_id)
    row = np.where(elsewhere, -1, names.row)
    target = None if names.target is None else np.where(elsewhere, -1, names.target)
    return PageNames(page_id, row, names.pages, target)


def _used(names: PageNames) -> Bools:
    """Return which of the URLs an item names or redirects to."""
    used = np.zeros(len(names.pages) + 1, np.bool_)  # the last one is no URL's
    used[names.row] = True
    if names.target is not None:
        used[names.target] = True
    return used[:-1]
