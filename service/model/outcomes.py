"""The table of outcomes: what a crawl means for its page and for its host. Pure, on columns.

Every report, and every lease that ends without one, has exactly one outcome. Ingest, the rule of
due times, politeness and the answer to "why" read this table in place of conditions of their own.

| outcome | statuses |
| --- | --- |
| content | 2xx, or none, with a digest or `changed`; 304 |
| moved | 301 and 308 with a target |
| absent | 404, 410 |
| elsewhere | other 3xx; 301 and 308 without a target; content that a redirect led to |
| refused | 401, 402, 403, 405, 406, 451 |
| empty | 2xx, or none, without digest and `changed` |
| failed | 0, 1xx, 408, 425, 429, 5xx, other 4xx, any number that a site invents |
| unfinished | no status: the lease expired or was returned, or its report was refused |
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


MEANING = {
    Outcome.content: Meaning(shows=True, answers=True),
    Outcome.moved: Meaning(shows=True, absent=True, answers=True),
    Outcome.absent: Meaning(shows=True, absent=True, answers=True),
    Outcome.elsewhere: Meaning(answers=True, patient=True),
    Outcome.refused: Meaning(failure=True, patient=True),
    Outcome.empty: Meaning(answers=True, patient=True),
    Outcome.failed: Meaning(failure=True),
    Outcome.unfinished: Meaning(),
}
"""Meaning of each outcome, in the order of the codes."""


def _column(name: str) -> Bools:
    return np.array([getattr(MEANING[outcome], name) for outcome in Outcome], np.bool_)


SHOWS, IS_ABSENT, ANSWERS = _column("shows"), _column("absent"), _column("answers")
IS_FAILURE, IS_PATIENT = _column("failure"), _column("patient")
"""Columns of the table, to be indexed by codes of outcomes."""


def _by_status() -> Codes:
    """Return the outcome of each status from 0 on, of crawls with a target and evidence."""
    code = np.full(INVENTED + 1, Outcome.failed, np.int16)
    code[SUCCESSES] = Outcome.content
    code[REDIRECTS] = Outcome.elsewhere
    code[NOT_MODIFIED] = Outcome.content
    code[list(MOVED)] = Outcome.moved
    code[list(ABSENT)] = Outcome.absent
    code[list(REFUSED)] = Outcome.refused
    return code


BY_STATUS = _by_status()


def outcome_of(status: Codes, changed: Codes, digest: Ints, redirects_to: Ints) -> Codes:
    """Return the (N,) outcomes of crawls, by their columns (`CrawlColumns`).

    >>> statuses = np.array([200, 200, 301, 301, 404, 403, 503, 999, -1], np.int16)
    >>> digest = np.array([7, 0, 0, 0, 0, 0, 0, 0, 7])
    >>> target = np.array([0, 0, 5, 0, 0, 0, 0, 0, 0])
    >>> [Outcome(code).name for code in outcome_of(statuses, np.full(9, -1), digest, target)]
    ['content', 'empty', 'moved', 'elsewhere', 'absent', 'refused', 'failed', 'failed', 'content']
    """
    away, unstated = redirects_to != 0, status == UNSPECIFIED
    listed = (status >= 0) & (status <= INVENTED)
    code = np.where(listed, BY_STATUS[np.where(listed, status, INVENTED)], Outcome.failed)
    code = np.where(unstated, Outcome.content, code)
    code = np.where((code == Outcome.moved) & ~away, Outcome.elsewhere, code)
    success = (code == Outcome.content) & (status != NOT_MODIFIED)
    # the content after a redirect belongs to another page
    code = np.where(success & away, Outcome.elsewhere, code)
    evidence = (changed != UNSPECIFIED) | (digest != 0)
    codes: Codes = np.where(success & ~away & ~evidence, Outcome.empty, code).astype(np.int16)
    return codes


def asks_for_pause(status: Codes) -> Bools:
    """Return which statuses request a pause of the host."""
    asks: Bools = (status == ASKS_FOR_PAUSE[0]) | (status == ASKS_FOR_PAUSE[1])
    return asks


def host_in_trouble(status: Codes) -> Bools:
    """Return which statuses show a host in trouble: silence, a request of a pause, or 5xx."""
    ill: Bools = (status == 0) | asks_for_pause(status)
    ill |= (status >= TROUBLE.start) & (status < TROUBLE.stop)
    return ill
