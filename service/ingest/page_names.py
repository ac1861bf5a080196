"""Pages of items: an item names its page by id or by URL, and may name the target of a redirect."""

from collections.abc import Sequence
from datetime import datetime
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from service.ingest.redirects import FollowedRedirects, Redirects, judge, nearest
from service.model.arrays import UNSPECIFIED, Bools, Codes, Ints
from service.model.columns import PageColumns
from service.model.outcomes import Leads
from service.storage import Transaction
from service.storage.pages.noting import inherit_notes


class PageNames(NamedTuple):
    """(N,) items that name their page by id or by URL."""

    page_id: Ints
    """Id of the page; 0 where the item names its page by URL."""
    row: Ints
    """The URL's row in `pages`, -1 where the item names its page by id."""
    pages: PageColumns
    """Pages of the distinct URLs."""
    target: Ints | None = None
    """Row in `pages` of the item's redirect target, -1 for none; None: no item redirects."""


class PageRows(NamedTuple):
    """(N,) pages of items."""

    page_id: Ints
    """Id of the page, as in `CrawlColumns`."""
    redirects_to: Ints
    """Target of the redirect, as in `CrawlColumns`."""
    new: Ints
    """Pages that were registered because others redirect to them."""
    leads: Codes
    """End of the redirect (`Leads`)."""
    added: PageColumns | None = None
    """All pages that were registered; None: none was."""


def merge_names(names: Sequence[PageNames]) -> PageNames:
    """Return the names of several requests as those of one request, with each URL once."""
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

    A redirect of a page to itself leads nowhere. An item under a lease must name the `leased`
    page (0: no lease). The URLs of an item that names another page are not registered. A new
    target has the note of the page that leads to it.
    `ingest.redirects` has the rules for targets of redirects.
    """
    none = np.zeros(len(names.page_id), np.int64)
    onward = np.full(len(none), Leads.on, np.int16)
    if not len(names.pages):
        return PageRows(names.page_id, none, none[:0], onward)
    url_page_id = tx.page_ids(names.pages.key, names.pages.host)
    if leased is not None and leased.any():
        elsewhere = (leased > 0) & (names.row >= 0) & (url_page_id[names.row] != leased)
        names = _without(names, elsewhere)
    named = _used(len(names.pages), names.row)
    hops, led = np.zeros(len(named), np.int64), none[:0]
    if names.target is not None and (names.target >= 0).any():
        away, judged = _judged(tx, names, names.target, url_page_id, named)
        onward[away] = judged.leads
        to_new = judged.leads == Leads.to_new
        led = away[to_new]
        hops = nearest(len(hops), names.target[led], judged.hops[to_new])
    new = (url_page_id == 0) & (named | (hops > 0))
    registers = register and new.any()
    added = names.pages.take(new) if registers else None
    if registers:
        url_page_id[new] = tx.register(names.pages.take(new), now).page_id
        for n in np.unique(hops[new & ~named]).tolist():
            tx.add_hops(np.sort(url_page_id[new & ~named & (hops == n)]), n)
    page_id = np.where(names.row >= 0, url_page_id[names.row], names.page_id)
    if names.target is None:
        return PageRows(page_id, none, none[:0], onward, added)
    if registers and len(led):
        inherit_notes(tx, page_id[led], url_page_id[names.target[led]])
    target = np.where(url_page_id[names.target] > 0, url_page_id[names.target], UNSPECIFIED)
    away = (names.target >= 0) & (target != page_id)
    targets = names.target[away & new[names.target]] if register else none[:0]
    # without registering, the target of a redirect stays unknown
    leads = np.where(away & (register | (onward == Leads.nowhere)), onward, Leads.on)
    itself = (names.target >= 0) & (target == page_id)
    leads = np.where(itself, Leads.nowhere, leads)
    to = np.where(away | itself, target, 0)
    new_targets = np.unique(url_page_id[targets])
    return PageRows(page_id, to, new_targets, leads.astype(np.int16), added)


def _judged(
    tx: Transaction, names: PageNames, to: Ints, url_page_id: Ints, named: Bools
) -> tuple[Ints, FollowedRedirects]:
    """Return the items that redirect to another page, and where their redirects lead.

    `to` has the row of each item's target, -1 for none.
    """
    # a URL that no page has is named by its row
    ids = np.append(np.where(url_page_id > 0, url_page_id, -1 - np.arange(len(url_page_id))), 0)
    source = np.where(names.row >= 0, ids[names.row], names.page_id)
    target = ids[to]
    away = np.flatnonzero((target != 0) & (source != 0) & (target != source))
    new = np.append((url_page_id == 0) & ~named, False)[to[away]]
    return away, judge(tx, Redirects(source[away], target[away], new))


def _without(names: PageNames, elsewhere: Bools) -> PageNames:
    """Return the names without those of items that name another page than their lease."""
    page_id = np.where(elsewhere, UNSPECIFIED, names.page_id)
    row = np.where(elsewhere, -1, names.row)
    target = None if names.target is None else np.where(elsewhere, -1, names.target)
    return PageNames(page_id, row, names.pages, target)


def _used(n: int, row: Ints) -> Bools:
    """Return which of n URLs an item names."""
    used = np.zeros(n + 1, np.bool_)  # the last entry is for row -1, no URL
    used[row] = True
    return used[:-1]
