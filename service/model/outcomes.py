"""The table of outcomes: what a crawl means for its page and for its host. Pure, on columns.

Every report, and every lease that ends without one, has exactly one outcome. Ingest, the rule of
due times, politeness and the answer to "why" read this table in place of conditions of their own.

| outcome | statuses |
| --- | --- |
| content | 2xx, or none, with a digest or `changed`; 304 |
| moved | 301 and 308 with a target |
| absent | 404, 410 |
| elsewhere | other 3xx; 301, 308 without a target or to nowhere; content behind a redirect |
| refused | 401, 402, 403, 405, 406, 451; robots.txt forbids the page |
| offered | 402 with a price, under a budget of money |
| empty | 2xx, or none, without digest and `changed` |
| failed | 0, 1xx, 408, 425, 429, 5xx, other 4xx, any number that a site invents |
| unfinished | no status: the lease expired or was returned, or its report was refused |
| doubtful | any that shows the sign of an incident of its host (`ingest.incidents`) |

A page without content in `NO_CONTENT_AFTER` crawls in a row is in the state `no_content`: it has no
share in the allocation.
"""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from service.model.arrays import UNSPECIFIED, Bools, Codes, Ints

NOT_MODIFIED = 304
ABSENT = (404, 410)
MOVED = (301, 308)
REFUSED = (401, 402, 403, 405, 406, 451)
SUCCESSES = range(200, 300)
REDIRECTS = range(300, 400)
ASKS_FOR_PAUSE = (429, 503)
"""Statuses with which a host requests a pause."""
TROUBLE = range(500, 600)
"""Statuses of a server in trouble."""
INVENTED = 999
"""Status that stands for a number that is no status of three digits."""
ROBOTS_DENIED = 1_000
"""Status of a crawl that robots.txt forbids, which no site can send; answers never show it."""
OFFERED = 1_001
"""Status of a crawl whose site answered 402 with a price in the currency of the budget."""
PAYMENT = 402
"""Status with which a site may ask for a price."""
NO_CONTENT_AFTER = 3
"""Number of crawls in a row without content after which a page has no share in the allocation."""


class Leads(IntEnum):
    """The end of a redirect, by the chain of redirects that the store has (`ingest.redirects`)."""

    on = 0
    """To a page, or there is no redirect."""
    to_new = 1
    """To a page that was registered because of this redirect."""
    nowhere = 2
    """Back to a page of its own chain, or beyond the redirects that are followed."""


class Outcome(IntEnum):
    """The meaning of one crawl, or of a lease that ended without one."""

    content = 0
    moved = 1
    absent = 2
    elsewhere = 3
    refused = 4
    empty = 5
    failed = 6
    unfinished = 7
    doubtful = 8
    offered = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """The meaning of an outcome for its page."""

    shows: bool = False
    """True if the crawl shows the state of the page; an absence once it is confirmed."""
    absent: bool = False
    """True if the page is gone, once a second look confirms it."""
    answers: bool = False
    """True if the site answered: the crawl states the page's redirect, or that it has none; an
    absence once it is confirmed. A request is answered by a crawl that `shows` the page."""
    failure: bool = False
    """True if the history counts the crawl as failed."""
    patient: bool = False
    """True if the next crawl waits an interval, doubled each time, in place of an hour."""
    steady: bool = False
    """True if the wait for the next crawl does not double."""
    waits: bool = True
    """True if the crawl counts as one without content, unless it shows content."""


MEANING = {
    Outcome.content: Meaning(shows=True, answers=True),
    Outcome.moved: Meaning(shows=True, absent=True, answers=True, steady=True),
    Outcome.absent: Meaning(shows=True, absent=True, answers=True, steady=True),
    Outcome.elsewhere: Meaning(answers=True, patient=True),
    Outcome.refused: Meaning(failure=True, patient=True),
    Outcome.empty: Meaning(answers=True, patient=True),
    Outcome.failed: Meaning(failure=True),
    Outcome.unfinished: Meaning(),
    Outcome.doubtful: Meaning(failure=True, steady=True),
    Outcome.offered: Meaning(waits=False, steady=True),
}
"""Meaning of each outcome, in the order of the codes."""


def _column(name: str) -> Bools:
    return np.array([getattr(MEANING[outcome], name) for outcome in Outcome], np.bool_)


SHOWS, IS_ABSENT, ANSWERS = _column("shows"), _column("absent"), _column("answers")
IS_FAILURE, IS_PATIENT = _column("failure"), _column("patient")
IS_STEADY, WAITS = _column("steady"), _column("waits")
"""Columns of the table, to be indexed by codes of outcomes."""


def _by_status() -> Codes:
    """Return the outcome of each status, of crawls with a target and evidence.

    The last row is that of `UNSPECIFIED`.
    """
    code = np.full(OFFERED + 2, Outcome.failed, np.int16)
    code[UNSPECIFIED] = Outcome.content
    code[SUCCESSES] = Outcome.content
    code[REDIRECTS] = Outcome.elsewhere
    code[NOT_MODIFIED] = Outcome.content
    code[list(MOVED)] = Outcome.moved
    code[list(ABSENT)] = Outcome.absent
    code[[*REFUSED, ROBOTS_DENIED]] = Outcome.refused
    code[OFFERED] = Outcome.offered
    return code


BY_STATUS = _by_status()
# Python 3.11 looks members up slowly, and a batch may be one crawl
CONTENT, DOUBTFUL, OFFER = int(Outcome.content), int(Outcome.doubtful), int(Outcome.offered)
"""Codes to compare columns with."""
_MOVED, _ELSEWHERE, _EMPTY = map(int, (Outcome.moved, Outcome.elsewhere, Outcome.empty))
_NOWHERE = int(Leads.nowhere)


def outcome_of(
    status: Codes, changed: Codes, digest: Ints, redirects_to: Ints, leads: Codes | None = None
) -> Codes:
    """Return the (N,) outcomes of crawls, by their columns (`CrawlColumns`).

    >>> statuses = np.array([200, 200, 301, 301, 404, 403, 503, 999, -1], np.int16)
    >>> digest = np.array([7, 0, 0, 0, 0, 0, 0, 0, 7])
    >>> target = np.array([0, 0, 5, 0, 0, 0, 0, 0, 0])
    >>> [Outcome(code).name for code in outcome_of(statuses, np.full(9, -1), digest, target)]
    ['content', 'empty', 'moved', 'elsewhere', 'absent', 'refused', 'failed', 'failed', 'content']
    """
    away = redirects_to != 0
    onward = away if leads is None else away & (leads != _NOWHERE)
    listed = (status >= UNSPECIFIED) & (status <= OFFERED)
    # UNSPECIFIED, -1, takes the last row
    code = BY_STATUS[np.where(listed, status, INVENTED)]
    success = (code == CONTENT) & (status != NOT_MODIFIED)
    # the content after a redirect belongs to another page
    code[success & away | (code == _MOVED) & ~onward] = _ELSEWHERE
    code[success & ~away & (changed == UNSPECIFIED) & (digest == 0)] = _EMPTY
    return code


def is_redirect(status: Codes) -> Bools:
    """Return (N,) whether statuses are those of redirects.

    >>> is_redirect(np.array([200, 301, 302, 304, 404, -1])).tolist()
    [False, True, True, False, False, False]
    """
    listed = (status >= UNSPECIFIED) & (status <= OFFERED)
    code = BY_STATUS[np.where(listed, status, INVENTED)]
    redirects: Bools = (code == _MOVED) | (code == _ELSEWHERE)
    return redirects


SHOWING = np.roll(BY_STATUS == CONTENT, 1)
"""True for statuses that show content with a digest or `changed`, from `UNSPECIFIED` on."""


def shows_content(status: Codes, changed: Codes, digest: Ints, redirects_to: Ints) -> Bools:
    """Return which crawls have the outcome `content` for sure; `outcome_of` decides the others.

    Most batches have nothing else, and this function takes a fifth of its time.
    """
    is_known = (digest != 0) | (changed != UNSPECIFIED)
    shows = SHOWING.take(status + 1, mode="clip") & is_known & (redirects_to == 0)
    sure: Bools = shows | (status == NOT_MODIFIED)
    return sure


def all_content(outcome: Codes) -> bool:
    """Return whether all outcomes are content, as in most batches."""
    return not outcome.any()  # the code is 0


def lacks_content(gone: Bools, n_failures: Ints) -> Bools:
    """Return which pages have no content: not gone, but none in `NO_CONTENT_AFTER` crawls in a row.

    >>> lacks_content(np.array([False, False, True]), np.array([2, 3, 5])).tolist()
    [False, True, False]
    """
    lacking: Bools = ~gone & (n_failures >= NO_CONTENT_AFTER)
    return lacking


def asks_for_pause(status: Codes) -> Bools:
    """Return which statuses request a pause of the host."""
    asks: Bools = (status == ASKS_FOR_PAUSE[0]) | (status == ASKS_FOR_PAUSE[1])
    return asks


def host_in_trouble(status: Codes) -> Bools:
    """Return which statuses show a host in trouble: silence, a request of a pause, or 5xx."""
    ill: Bools = (status == 0) | asks_for_pause(status)
    ill |= (status >= TROUBLE.start) & (status < TROUBLE.stop)
    return ill
