r"""Worth of URL groups: the share of first crawls that bring something new, and when to stop. Pure.

A URL belongs to the levels of its ladder: host, directories, and the shape of its last segment. A
level has seen :math:`n` trials, and :math:`u` of them were new. The last level counts first crawls.
A level above counts its children by what they show (`counted`). A child is one trial with news as
long as all first crawls below it together bring enough of them. Any other child is as many trials
without news as it had itself, at most three. Therefore a bad directory stops no good host. A tree
of bad directories costs little more than one of them. One page with news counts for the directories
above only until their other pages have shown nothing. From the host down,

.. math:: q = \frac{q_{parent} + u}{1 + n}, \qquad q_{parent} = 0.9 \text{ above the host.}

First crawls stop below :math:`q = 0.1`. Else a level has no more of them in flight than would stop
it if none of them was new: up to :math:`\lfloor q (1 + n) / 0.1 \rfloor - n`. After an answer it
has at most :math:`\max(m, 2 u)`. Here m is three for each page with news in and below the level, at
least 3 and at most 12. A child without an answer yet takes its places from the level above too.

Arrays are (N,) for levels, in any order.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

AT_HOST = 0.9
"""Share of new pages that is expected of a host without evidence."""
STOP = 0.1
"""Share of new pages below which first crawls stop."""
FEW, FIRST = 3, 12
"""Number of first crawls in flight for each page with news, and most of these; at least one."""
GROWTH = 2
"""Number of first crawls in flight for each one that was new."""
MOST_BARREN = 3
"""Maximum number of trials that a child without news is for the level above."""
NO_RULE, ADMIT, HOLD = 0, 1, 2
"""Rules of an operator: none, all pages are worth a crawl, no page is."""
ROUNDING = 1e-12
ALL = 1 << 40
"""Number of places that stands for any number."""


class Levels(NamedTuple):
    """(N,) levels of ladders."""

    parent: Ints
    """Position of the level above; -1: the level is a host."""
    n: Ints
    """First crawls of a last level, or trials by children."""
    new: Ints
    """Those of `n` that brought something new."""
    in_flight: Ints
    """Pages of the last level that may be crawled and have no answer; above, those of children
    without an answer yet."""
    rule: Ints
    """Rule of an operator for the level and what is below it."""
    n_first: Ints
    """First crawls with an answer, of the level and of all below."""
    n_new: Ints
    """Those that brought something new."""


def generations(parent: Ints) -> list[Ints]:
    """Return the positions of the levels of each depth, hosts first."""
    depth = np.zeros(len(parent), np.int64)
    below = parent >= 0
    while True:
        deeper = np.where(below, depth[parent] + 1, 0)
        if (deeper == depth).all():
            break
        depth = deeper
    return [np.flatnonzero(depth == d) for d in range(depth.max(initial=-1) + 1)]


def summed(parent: Ints, amount: Ints) -> Ints:
    """Return (N,) amounts of each level and of all below it.

    Examples
    --------
    >>> summed(np.array([-1, 0, 1, 0]), np.array([0, 0, 5, 2])).tolist()
    [7, 5, 5, 2]
    """
    total = amount.copy()
    for rows in reversed(generations(parent)[1:]):
        np.add.at(total, parent[rows], total[rows])
    return total


def shares(levels: Levels) -> Floats:
    """Return (N,) expected shares q of first crawls that bring something new.

    Examples
    --------
    >>> levels = Levels(*np.array([[-1, 0], [2, 12], [2, 0]]), *np.zeros((4, 2), int))
    >>> shares(levels).round(3).tolist()  # the host has good pages, its search has not
    [0.967, 0.074]
    """
    q = np.zeros(len(levels.n))
    for rows in generations(levels.parent):
        above = levels.parent[rows]
        prior = np.where(above < 0, AT_HOST, q[above])
        q[rows] = (prior + levels.new[rows]) / (1 + levels.n[rows])
    return q


def rules(levels: Levels) -> Ints:
    """Return (N,) rules in force: the own one, or that of the nearest level above with one."""
    rule = levels.rule.copy()
    for rows in generations(levels.parent):
        above = levels.parent[rows]
        inherits = (rule[rows] == NO_RULE) & (above >= 0)
        rule[rows[inherits]] = rule[above[inherits]]
    return rule


def stopped(levels: Levels) -> Bools:
    """Return which levels have no first crawls, by their evidence or by a rule."""
    rule = rules(levels)
    stops: Bools = (rule == HOLD) | ((rule == NO_RULE) & (shares(levels) < STOP))
    return stops


def places(levels: Levels) -> Ints:
    """Return (N,) numbers of pages that each level itself may still admit."""
    # one page with news is news of each level above, and all of these would begin at once
    few = np.clip(FEW * levels.n_new, FEW, FIRST)
    growth = np.where(levels.n > 0, np.maximum(few, GROWTH * levels.new), ALL)
    at_most = np.minimum(growth, until_stopped(levels))
    left = np.maximum(at_most - levels.in_flight, 0)
    left = np.where(rules(levels) == ADMIT, ALL, left)
    return np.where(stopped(levels), 0, left)


def until_stopped(levels: Levels) -> Ints:
    """Return (N,) numbers of trials after which each level would stop if none of them was new.

    Examples
    --------
    >>> levels = Levels(*np.array([[-1, 0], [0, 9], [0, 1]]), *np.zeros((4, 2), int))
    >>> until_stopped(levels).tolist()  # q falls from 0.9 to 0.09, and from 0.19 to 0.095
    [9, 10]
    """
    trials = shares(levels) * (1 + levels.n) / STOP
    left: Ints = np.floor(trials * (1 + ROUNDING)).astype(np.int64) - levels.n
    return left


def stands_alone(levels: Levels) -> Bools:
    """Return which levels need no place of the level above: those with an answer or admitted."""
    alone: Bools = (levels.n > 0) | (levels.rule == ADMIT) | (levels.parent < 0)
    return alone


def grants(levels: Levels, waiting: Ints) -> Ints:
    """Return (N,) numbers of pages of last levels that are admitted, of those that are waiting.

    Each last level gets one place before any gets a second, as far as the levels above have places.

    Examples
    --------
    >>> new_host = Levels(np.array([-1, 0, 0]), *np.zeros((6, 3), int))
    >>> grants(new_host, np.array([0, 5_000, 3])).tolist()
    [0, 8, 1]
    """
    one = _granted(levels, np.minimum(waiting, 1))
    return one + _granted(admitted(levels, one), waiting - one)


def _granted(levels: Levels, waiting: Ints) -> Ints:
    """Return the grants of pages that are all of one rank, the first levels first."""
    depths, left, alone = generations(levels.parent), places(levels), stands_alone(levels)
    wanted = waiting.copy()
    for rows in reversed(depths):
        wanted[rows] = np.minimum(wanted[rows], left[rows])
        dependent = rows[~alone[rows]]
        np.add.at(wanted, levels.parent[dependent], wanted[dependent])
    places_taken = np.where(alone, wanted, 0)
    for rows in depths:
        dependent = rows[~alone[rows]]
        dependent = dependent[np.argsort(levels.parent[dependent], kind="stable")]
        above, ask = levels.parent[dependent], wanted[dependent]
        before = np.cumsum(ask) - ask
        if len(above):
            first = np.flatnonzero(np.append(True, above[1:] != above[:-1]))
            length = np.diff(np.append(first, len(above)))
            before -= np.repeat(before[first], length)
        places_taken[dependent] = np.clip(places_taken[above] - before, 0, ask)
    return np.where(waiting > 0, places_taken, 0)


def admitted(levels: Levels, granted: Ints) -> Levels:
    """Return the levels after pages of last levels were admitted."""
    more, alone = granted.copy(), stands_alone(levels)
    for rows in reversed(generations(levels.parent)):
        dependent = rows[~alone[rows]]
        np.add.at(more, levels.parent[dependent], more[dependent])
    return levels._replace(in_flight=levels.in_flight + more)


def counted(levels: Levels) -> tuple[Ints, Ints]:
    """Return the trials that levels are for the levels above, and those with news.

    A level brings news until its first crawls, with all below, would stop a host without other
    evidence.

    Examples
    --------
    >>> n, n_first, n_new = np.array([[0, 1, 9, 5, 9, 4], [0, 1, 9, 5, 9, 99], [0, 0, 0, 1, 9, 4]])
    >>> n, new = counted(Levels(*[n] * 5, n_first, n_new))
    >>> n.tolist(), new.tolist()
    ([0, 1, 3, 1, 1, 3], [0, 0, 0, 1, 1, 0])
    """
    enough = AT_HOST + levels.n_new >= STOP * (1 + levels.n_first) * (1 - ROUNDING)
    brings = (levels.n_new > 0) & enough
    return np.where(brings, 1, np.minimum(levels.n, MOST_BARREN)), brings.astype(np.int64)


def answered(levels: Levels, crawls: Ints, new: Ints, ended: Ints) -> Levels:
    """Return the levels after first crawls of last levels.

    Parameters
    ----------
    crawls : (N,) first crawls with an answer
    new : (N,) those that brought something new
    ended : (N,) pages that are no longer in flight, by an answer or because they were deleted

    Examples
    --------
    >>> tree = Levels(*np.array([[-1, 0], [3, 0], [3, 0], [12, 12], [0, 0], [5, 0], [5, 0]]))
    >>> after = answered(tree, *np.array([[0, 2], [0, 1], [0, 2]]))
    >>> after.n.tolist(), after.new.tolist(), after.in_flight.tolist()
    ([4, 2], [4, 1], [0, 10])
    """
    after = levels._replace(
        n=levels.n.copy(),
        new=levels.new.copy(),
        in_flight=levels.in_flight.copy(),
        n_first=levels.n_first + summed(levels.parent, crawls),
        n_new=levels.n_new + summed(levels.parent, new),
    )
    n, news, in_flight = after.n, after.new, after.in_flight
    crawls, new, less = crawls.copy(), new.copy(), ended.copy()
    counts = counted(levels)
    for rows in reversed(generations(levels.parent)):
        # counts of an older rule may be less than what leaves them now
        news[rows] = np.maximum(news[rows] + new[rows], 0)
        least = np.maximum(news[rows], np.minimum(n[rows], 1))
        n[rows] = np.maximum(n[rows] + crawls[rows], least)
        in_flight[rows] = np.maximum(in_flight[rows] - less[rows], 0)
        below = rows[levels.parent[rows] >= 0]
        above = levels.parent[below]
        leaned = (levels.n[below] == 0) & (levels.rule[below] != ADMIT)
        leans = leaned & (n[below] == 0)
        held_before = np.where(leaned, levels.in_flight[below], 0)
        np.add.at(less, above, held_before - np.where(leans, in_flight[below], 0))
        for more, now, before in zip((crawls, new), counted(after), counts, strict=True):
            np.add.at(more, above, (now - before)[below])
    return after


def ruled(levels: Levels, rule: Ints, where: Bools) -> Levels:
    """Return the levels after an operator has set the rules of some.

    An admitted level needs no place of the level above, so its pages in flight leave that one.
    """
    after = levels._replace(rule=np.where(where, rule, levels.rule))
    alone = stands_alone(levels), stands_alone(after)
    more = np.zeros(len(levels.n), np.int64)
    for rows in reversed(generations(levels.parent)):
        below = rows[levels.parent[rows] >= 0]
        now = np.where(alone[1][below], 0, levels.in_flight[below] + more[below])
        before = np.where(alone[0][below], 0, levels.in_flight[below])
        np.add.at(more, levels.parent[below], now - before)
    return after._replace(in_flight=np.maximum(levels.in_flight + more, 0))
