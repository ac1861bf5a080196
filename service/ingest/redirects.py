"""Redirects: how far they are followed, and which targets stay in the schedule.

1. A page that was asked for (registered, pinged, or reported by its URL) has 0 hops. The target of
   a redirect that nobody asked for has one hop more than the page that leads there, at most
   `MOST_HOPS`. A redirect beyond that registers no page.
2. A page that was asked for registers at most `MOST_TARGETS` new targets, until it is asked for
   again. It registers more than `MOST_BARREN` only while its last target has had content, and no
   second one after a chain of `MOST_HOPS` without content: sites may redirect without end. A target
   registers one, and one more each time that a redirect leads to it again.
3. A redirect back into its own chain leads nowhere: its page is elsewhere, not moved.
4. A target that never had content is unlinked when its page no longer redirects to it, and so are
   the targets after it. A further redirect to it links it again, and has a target that is retired
   crawled, once a week at most.

5. Nobody asked for a target to which many pages redirect for now (`MANY`): it is a wall, such as a
   login. Its content is that of no page, so it counts as absent (`walls`).

`leases.due` retires unlinked targets, and those without content for a week. The redirects of a
batch are judged by those that the store has.
"""

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import NamedTuple, TypeVar

import numpy as np

from service.model.arrays import Bools, Codes, Groups, Ints, distinct, is_among, positions
from service.model.columns import CrawlColumns, PageStates
from service.model.outcomes import CONTENT, Leads, Outcome
from service.storage import Transaction
from service.storage.pages.links import Links

MOST_HOPS = 5
"""Maximum redirects from a page that was asked for to a new page."""
MOST_TARGETS = 10
"""Maximum new pages that the redirects of a page register that was asked for."""
MOST_BARREN = 2
"""Maximum of them while the last one has had no content."""
MOST_ONWARD = 1
"""Maximum new pages that a target registers for each redirect that leads to it."""
TRIED_AGAIN = timedelta(days=7)
"""Minimum time between two crawls of a target without content to which redirects lead again."""

ColumnsT = TypeVar("ColumnsT", PageStates, CrawlColumns)

NO_PAGES = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class Redirects:
    """(R,) redirects from page to page; a URL that no page has is named by its row."""

    source: Ints
    """Id of the page that redirects; below 0: minus one minus the row of its URL."""
    target: Ints
    """Id or URL of the target, like `source`."""
    new: Bools
    """True where only redirects name the target, and no page has its URL."""


class FollowedRedirects(NamedTuple):
    """(R,) redirects as they are followed."""

    leads: Codes
    """End of each redirect (`Leads`)."""
    hops: Ints
    """Hops of each target."""


def judge(tx: Transaction, redirects: Redirects) -> FollowedRedirects:
    """Return where redirects lead, by the redirects of the store."""
    source, target, new = redirects.source, redirects.target, redirects.new
    links = tx.links_of(_pages(source, target))
    row, there = links.rows(source)
    hops = 1 + np.where(there, np.abs(_at(links.hops, row)), 0)
    nth = np.where(there, _at(links.n_targets, row), 0) + rank(source, target, new)
    leads = np.where(new, Leads.to_new, Leads.on)
    too_far = new & (hops > MOST_HOPS)
    later = there & new & (nth > 0)
    last = np.where(later, _at(links.redirects_to, row), 0)
    most = np.where(_bear_content(tx, last), MOST_TARGETS, MOST_BARREN)
    too_far |= later & (hops == 1) & _end_far(tx, last)
    too_far |= new & (nth >= np.where(hops > 1, MOST_ONWARD, most))
    too_far |= new & (source > 0) & ~there  # a page that does not exist leads nowhere
    leads = np.where(too_far | returns(tx, links, source, target), Leads.nowhere, leads)
    return FollowedRedirects(leads.astype(np.int16), hops)


def rank(source: Ints, target: Ints, new: Bools) -> Ints:
    """Return the place of each new target among the distinct new targets of its source, from 0.

    >>> source, target = np.array([7, 7, 8, 7, 7]), np.array([-3, -1, -1, -3, 5])
    >>> rank(source, target, target < 0).tolist()
    [0, 1, 0, 0, 0]
    """
    place = np.zeros(len(source), np.int64)
    if not new.any():
        return place
    pairs, pair = np.unique(np.stack([source[new], target[new]]), axis=1, return_inverse=True)
    of_source = pairs[0].searchsorted(pairs[0])
    place[new] = (np.arange(len(of_source)) - of_source)[pair.reshape(-1)]
    return place


def returns(tx: Transaction, links: Links, source: Ints, target: Ints) -> Bools:
    """Return which redirects lead back to a page of their own chain, within `MOST_HOPS` steps.

    Nearly no target redirects, so nearly no batch reads further redirects.
    """
    back = np.zeros(len(source), np.bool_)
    seen, at = [source, target], target
    for _ in range(MOST_HOPS):
        row, there = links.rows(at)
        at = np.where(there & ~back & (at > 0), _at(links.redirects_to, row), 0)
        for page in seen:
            back |= (at > 0) & (at == page)
        if not (at > 0)[~back].any():
            break
        seen.append(at)
        links = tx.links_of(distinct(at[at > 0]))
    return back


def nearest(n: int, row: Ints, hops: Ints) -> Ints:
    """Return the (n,) least hops of each row; 0 for a row without any.

    >>> nearest(3, np.array([2, 0, 2]), np.array([3, 1, 2])).tolist()
    [1, 0, 2]
    """
    far = np.iinfo(np.int64).max
    least = np.full(n, far)
    np.minimum.at(least, row, hops)
    return np.where(least == far, 0, least)


def hops_of_targets(tx: Transaction, source: Ints) -> Ints:
    """Return the hops of the targets of pages; those of an unknown page are 1."""
    links = tx.links_of(_pages(source))
    row, there = links.rows(source)
    hops: Ints = 1 + np.where(there, np.abs(_at(links.hops, row)), 0)
    return hops


def walls(
    tx: Transaction, before: PageStates, groups: Groups, crawls: CrawlColumns, outcome: Codes
) -> Bools | None:
    """Return which of (N,) crawls show the content of a wall; None: none does.

    A wall is a page that nobody asked for, to which many pages redirect for now. Or each of them
    redirects to an address of its own, such as `/login?next=/a`: then the first content of the
    address is that of another page.
    """
    if not before.hops.any():
        return None
    shows = (before.hops != 0)[groups.page] & (outcome == CONTENT)
    if not shows.any():
        return None
    behind = shows & is_among(crawls.page_id, tx.shared_targets(distinct(crawls.page_id[shows])))
    first = shows & ~behind & (before.digest == 0)[groups.page] & (crawls.digest != 0)
    if first.any():
        behind |= first & _twins(tx, before, groups, crawls, outcome, first)
    return behind if behind.any() else None


def _twins(
    tx: Transaction,
    before: PageStates,
    groups: Groups,
    crawls: CrawlColumns,
    outcome: Codes,
    first: Bools,
) -> Bools:
    """Return which of (N,) first contents of targets for now are those of other pages.

    A page may have moved for a time, so the digests of pages that redirect now are not known.
    """
    leaves = outcome == Outcome.elsewhere
    page_id, digest = crawls.page_id, crawls.digest
    led = distinct(np.append(tx.led_to(distinct(page_id[first])), crawls.redirects_to[leaves]))
    row = positions(first & is_among(page_id, led))
    brought = tx.with_known_digest(page_id[row], digest[row])
    own = distinct(before.digest[groups.page[leaves]])
    _, earliest = np.unique(digest[row], return_index=True)
    again = np.ones(len(row), np.bool_)
    again[earliest] = False
    alike = again | is_among(page_id[row], brought)
    twins = np.zeros(len(crawls), np.bool_)
    twins[row] = alike & ~is_among(digest[row], own)
    return twins


class Relinks(NamedTuple):
    """Targets of redirects after a batch of crawls."""

    page_id: Ints
    """Targets to which pages redirect."""
    hops: Ints
    """Hops of each of them."""
    left: Ints
    """Targets to which a page redirected before, ascending."""
    looped: Ints
    """Targets that the store has as redirecting back, ascending."""


def relinked(before: PageStates, after: PageStates, crawls: CrawlColumns) -> Relinks | None:
    """Return the targets of (P,) pages before and after (N,) accepted crawls; None: no redirect."""
    if not (before.redirects_to.any() or crawls.redirects_to.any()):
        return None
    before, after = without_loops(before), without_loops(after)
    crawls = without_loops(crawls)
    to_page, nowhere = crawls.redirects_to > 0, crawls.leads == Leads.nowhere
    on = crawls.redirects_to[to_page & ~nowhere]
    leads = after.redirects_to > 0
    page_id, hops = after.redirects_to[leads], 1 + np.abs(after.hops[leads].astype(np.int64))
    left = np.setdiff1d(np.append(on, before.redirects_to[before.redirects_to > 0]), page_id)
    near = (hops <= MOST_HOPS) & np.isin(page_id, on)
    looped = distinct(crawls.redirects_to[to_page & nowhere])
    return Relinks(page_id[near], hops[near], left, looped)


def without_loops(columns: ColumnsT) -> ColumnsT:
    """Return states or crawls without redirects of pages to themselves, which link nothing."""
    redirects_to = np.where(columns.redirects_to == columns.page_id, 0, columns.redirects_to)
    return replace(columns, redirects_to=redirects_to)


def relink(tx: Transaction, relinks: Relinks) -> tuple[Ints, Ints]:
    """Write the hops of targets; return the pages to crawl again, and those that are unlinked.

    Both are ascending. A redirect leads to the former again. Or they are retired, and redirected
    back when they were last crawled: a site may have turned its redirect around since.
    """
    page_id, of_page, left = relinks.page_id, relinks.hops, relinks.left
    now, again, unlinked = tx.now(), [NO_PAGES], [NO_PAGES]
    for hops in np.unique(of_page).tolist():
        linked = distinct(page_id[of_page == hops])
        again += [tx.link(linked, hops, now, now - TRIED_AGAIN)]
    if len(page_id):
        again += [tx.request_walls(distinct(page_id), now)]
    for _ in range(MOST_HOPS):  # the targets of an unlinked target are left too
        dropped = tx.unlink(left) if len(left) else NO_PAGES
        if not len(dropped):
            break
        unlinked.append(dropped)
        left = np.setdiff1d(_pages(tx.links_of(dropped).redirects_to), page_id)
    if len(relinks.looped):
        again += [tx.request_retired(relinks.looped, now)]
    return distinct(np.concatenate(again)), distinct(np.concatenate(unlinked))


def _end_far(tx: Transaction, page_id: Ints) -> Bools:
    """Return which pages begin a chain of `MOST_HOPS` targets without content; 0 is no page."""
    far, at = np.zeros(len(page_id), np.bool_), page_id
    for _ in range(MOST_HOPS):
        if not at.any():
            break
        links = tx.links_of(_pages(at))
        row, there = links.rows(at)
        barren = there & (at > 0) & (_at(links.had_content, row) == 0)
        far |= barren & (np.abs(_at(links.hops, row)) >= MOST_HOPS)
        at = np.where(barren, np.maximum(_at(links.redirects_to, row), 0), 0)
    return far


def _bear_content(tx: Transaction, page_id: Ints) -> Bools:
    """Return which pages have had content; 0 is no page."""
    if not page_id.any():
        return np.zeros(len(page_id), np.bool_)
    links = tx.links_of(_pages(page_id))
    row, there = links.rows(page_id)
    return there & (_at(links.had_content, row) > 0)


def _pages(*ids: Ints) -> Ints:
    every = np.concatenate(ids)
    return distinct(every[every > 0])


def _at(column: Ints | Codes, row: Ints) -> Ints:
    """Return the values of rows; 0 of an empty column."""
    return column[row].astype(np.int64) if len(column) else np.zeros(len(row), np.int64)
