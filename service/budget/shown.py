"""URL groups as operators see them: counts, the expected share of new pages, and the state."""

from typing import NamedTuple

import numpy as np

from service.core import worth
from service.model.arrays import Bools, Ints, distinct, is_among
from service.model.errors import InvalidField, InvalidUrl
from service.model.ladder import Ladder, directory_level, ladder, level_of
from service.model.urls import normalise
from service.storage import Transaction
from service.storage.budget.worth import ShownLevel

OPEN, STOPPED, ADMITTED, HELD = range(4)
"""States: by what is learnt, then by a rule of an operator."""
TOGETHER = 20_000
"""Maximum levels that are judged at once."""


class UrlGroup(NamedTuple):
    """A level of URLs."""

    level: ShownLevel
    share_new: float
    state: int
    n_waiting: int = 0
    """Pages in and below the level that wait for their first crawl."""
    n_in_flight: int = 0
    """Admitted pages in and below the level that have no answer."""


def shown(tx: Transaction, level: Ints) -> list[UrlGroup]:
    """Return levels by name, judged with all above them."""
    rows = judged(tx, level)
    n_waiting, n_in_flight = (
        (tx.n_waiting(level), tx.n_in_flight(level)) if len(level) else ({}, {})
    )
    return [
        group._replace(
            n_waiting=n_waiting.get(group.level.level, 0),
            n_in_flight=n_in_flight.get(group.level.level, 0),
        )
        for group in rows
    ]


def judged(tx: Transaction, level: Ints) -> list[UrlGroup]:
    """Return the same without counting the pages that wait or are in flight."""
    rows = tx.levels_above(level) if len(level) else []
    place = {row.level: position for position, row in enumerate(rows)}
    last = np.array(["?" in row.name for row in rows], np.bool_)
    numbers = {
        name: np.array([getattr(row, name) for row in rows], np.int64)
        for name in ("n_first", "n_new", "n_opened", "n_opened_new", "n_in_flight", "n_led", "rule")
    }
    n_first = numbers["n_first"] - numbers["n_led"]
    levels = worth.Levels(
        parent=np.array([place.get(row.parent, -1) for row in rows], np.int64),
        n=np.where(last, n_first, numbers["n_opened"]),
        new=np.where(last, numbers["n_new"], numbers["n_opened_new"]),
        in_flight=numbers["n_in_flight"],
        rule=numbers["rule"],
        n_first=n_first,
        n_new=numbers["n_new"],
    )
    share, rule, stopped = worth.shares(levels), worth.rules(levels), worth.stopped(levels)
    of_rule = {worth.ADMIT: ADMITTED, worth.HOLD: HELD}
    wanted = set(level.tolist())
    return [
        UrlGroup(
            row,
            float(share[n]),
            of_rule.get(int(rule[n]), STOPPED if stopped[n] else OPEN),
        )
        for n, row in enumerate(rows)
        if row.level in wanted
    ]


def stopped_among(tx: Transaction, page_id: Ints) -> Bools:
    """Return which (N,) pages, ascending, wait for a first crawl that a rule or a stop forbids."""
    stops = np.zeros(len(page_id), np.bool_)
    if len(page_id):
        for one, rows in tx.by_database(page_id):
            held = one.held_pages(page_id[rows])
            waiting = held.where(held.level > 0)
            level = _stopped(one, distinct(waiting.level))
            stops |= is_among(page_id, waiting.page_id[is_among(waiting.level, level)])
    return stops


def importance_waiting(tx: Transaction) -> float:
    """Return the importance of pages that wait for their first crawls in groups without a stop."""
    total = 0.0
    waiting = tx.importance_held()
    order = waiting.level.argsort()
    level, importance = waiting.level[order], waiting.importance[order]
    for start in range(0, len(level), TOGETHER):
        some = slice(start, start + TOGETHER)
        total += float(importance[some][~is_among(level[some], _stopped(tx, level[some]))].sum())
    return total


def _stopped(tx: Transaction, level: Ints) -> Ints:
    """Return those of some levels that are stopped, ascending."""
    stops = [group.level.level for group in judged(tx, level) if group.state in (STOPPED, HELD)]
    return np.sort(np.array(stops, np.int64))


def groups_above(tx: Transaction, url: str) -> list[UrlGroup]:
    """Return the groups of a URL, the widest first; a page just imported may have none yet."""
    return shown(tx, np.array(ladder(url).levels, np.int64))


def stopped_of(groups: list[UrlGroup]) -> UrlGroup | None:
    """Return the first stopped group; None: none is stopped."""
    return next((each for each in groups if each.state in (STOPPED, HELD)), None)


def ladder_named(tx: Transaction, group: str) -> Ladder:
    """Return the ladder that ends with a group, which the list has or a directory's URL names.

    Raises
    ------
    InvalidField
        The text is neither.
    """
    if group.endswith("/") and "://" in group:
        try:
            return directory_level(normalise(group).url)
        except InvalidUrl as error:
            raise InvalidField("group", error.detail) from None
    above = tx.levels_above(np.array([level_of(group)]))
    if not above:
        raise InvalidField(
            "group",
            f"{group[:100]!r} is no group of GET /url-groups; send the name of one, or the URL of "
            "a directory with a slash at its end",
        )
    return Ladder(tuple(row.name for row in above), tuple(row.level for row in above))
