"""Incidents of hosts: when one begins, which crawls show it, and when it ends. Pure.

A site that is broken, closed or hidden behind a wall shows the same on all its pages. Such crawls
teach nothing about the pages. Signs of an incident:

| sign | a page shows it when |
| --- | --- |
| absent | it is absent, and answered here before |
| moved | it redirects for good to another address, and answered here before |
| refused | the site refuses it, and did not refuse it at the crawl before |
| alike | it shows a new digest that another page began to show within an hour |

An incident begins when at least `FEWEST` pages show one sign. They must be more than half of the
host's pages that were crawled in the hour. It ends with the first content, for `alike` of another
digest, or after a day. An operator may end it as content does. After a day, what the pages show is
taken as it is until the host has other content. After content, the same sign begins no incident for
an hour. So a site that deletes most of its pages has one false alarm an hour. A page that showed
the same before the incident, such as a front page to which all others lead, does not prolong it.
A page whose last answer is past (`model.past`) has not answered here. Pages that have gone long ago
are the most overdue ones after an import, so their absences come together.

A page that is `alike` before an incident begins is doubtful, unless it is a twin of the first such
page (`ingest.recent_digests`). An hour after the first doubt its content is taken as it is. If the
incident begins in the same batch, the crawls before it are part of it. Absences have a second look
of their own (`ingest.absences`). It waits while no page of the host has had content since the first
look, and `FEWEST` pages show the sign in the hour. So pages that are crawled far more often than
the others are not gone before the incident begins.

The crawls of a host are judged one after the other, because each may begin or end an incident. Most
batches have no crawl of such a host. Times are microseconds since 1970, as in the columns.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.model.arrays import INSTANT, element_types
from service.model.incidents import LONGEST, WITHIN, HostIncidents, Sign
from service.model.outcomes import IS_ABSENT, Outcome

FEWEST = 5
"""Minimum number of pages that show the sign of an incident."""
HOUR = WITHIN // timedelta(microseconds=1)
"""Time within which the pages of an incident show its sign, microseconds."""
DAY = LONGEST // timedelta(microseconds=1)
"""Maximum duration of an incident, microseconds."""
NEVER = int(np.iinfo(np.int64).min)
"""Instant of nothing; the bits of NaT."""
UNKNOWN = -1
"""Number of pages that have not been counted."""

SIGN_OF = {
    int(Outcome.absent): Sign.absent,
    int(Outcome.moved): Sign.moved,
    int(Outcome.refused): Sign.refused,
}
"""Sign of a crawl by its outcome alone."""
CrawledBefore = Callable[[int, int], int]
"""Function that returns the number of pages whose last crawl lies between two instants."""


class CrawlVerdict(IntEnum):
    """The verdict on a crawl."""

    plain = 0
    doubtful = 1
    """Nothing, before an incident begins."""
    incident = 2
    """Nothing, because the crawl shows the sign of an incident in force."""
    as_before = 3
    """Nothing, nor whether the incident goes on: the page showed the same before it."""
    waits = 4
    """A look at an absent page that confirms nothing yet."""


TEACHES = frozenset({CrawlVerdict.plain, CrawlVerdict.waits})
"""Verdicts on crawls that keep their outcomes."""
LOST = frozenset({Sign.absent, Sign.moved})
"""Signs that make a page gone once a second look confirms them."""


class SuspectCrawl(NamedTuple):
    """A crawl of a host under suspicion."""

    page_id: int
    at: int
    outcome: int
    digest: int
    """Digest of the content; 0: none."""
    unchanged: bool
    """True if the page has the content of the crawl before, by a 304 or as reported."""
    is_shared: bool
    """As in `recent_digests.Shared`, like the fields after it."""
    is_doubtful: bool
    n_alike: int
    digest_before: int
    shared_since: int = NEVER


@dataclass(slots=True)
class PageSeen:
    """A page as the crawls so far have shown it."""

    last_at: int
    outcome: int
    digest: int
    answered: bool
    """True if the page has had content, and is not gone."""
    gone: bool
    doubted_at: int
    """Time of the first of the doubtful crawls in a row."""
    looked_at: int = NEVER
    """Time of the first look at an absent page, since its content or a doubt."""

    def see(self, crawl: SuspectCrawl, verdict: CrawlVerdict) -> None:
        """Note a crawl and its verdict."""
        if verdict not in TEACHES:
            self.doubted_at = self.doubted_at if self.outcome == Outcome.doubtful else crawl.at
            self.outcome, self.looked_at = Outcome.doubtful, NEVER
        else:
            self.outcome = crawl.outcome
            if crawl.outcome == Outcome.content:
                self.digest = shown_by(crawl, self)
                self.answered, self.gone, self.looked_at = True, False, NEVER
            elif IS_ABSENT[crawl.outcome] and self.looked_at == NEVER:
                self.looked_at = crawl.at
        self.last_at = crawl.at


def shown_by(crawl: SuspectCrawl, page: PageSeen) -> int:
    """Return the digest of the content that a crawl shows; 0: unknown, or no content."""
    if crawl.outcome != Outcome.content:
        return 0
    return page.digest if crawl.unchanged and not crawl.digest else crawl.digest


def sign_shown(crawl: SuspectCrawl, page: PageSeen) -> Sign:
    """Return the sign that a crawl shows, new or not."""
    if crawl.outcome in SIGN_OF:
        return SIGN_OF[crawl.outcome]
    compares = crawl.outcome == Outcome.content and not crawl.unchanged
    is_new = compares and crawl.digest != page.digest and 0 not in (crawl.digest, page.digest)
    return Sign.alike if is_new else Sign.none


def last_sign(page: PageSeen) -> Sign:
    """Return the sign that the last crawl of a page showed."""
    if IS_ABSENT[page.outcome] and not page.answered:
        return Sign.none
    if page.outcome in SIGN_OF:
        return SIGN_OF[page.outcome]
    return Sign.alike if page.outcome == Outcome.doubtful else Sign.none


@dataclass(slots=True)
class HostWatch:
    """The watch over one host: the counts of an hour, and the last incident (`HostIncidents`)."""

    host_id: int
    opened_at: int = NEVER
    n_crawled: int = 0
    n_absent: int = 0
    n_refused: int = 0
    n_alike: int = 0
    n_moved: int = 0
    digest: int = 0
    digest_before: int = 0
    n_before: int = UNKNOWN
    counted_at: int = NEVER
    kind: int = Sign.none
    since: int = NEVER
    shown_at: int = NEVER
    ended_at: int = NEVER
    n_pages: int = 0
    absent_at: int = NEVER
    refused_at: int = NEVER
    alike_at: int = NEVER
    moved_at: int = NEVER
    no_content_since: int = NEVER
    lost_since: int = NEVER
    """Time since which pages may be gone falsely by an incident that has ended; no column."""
    crawled_before: CrawledBefore = field(default=lambda _, __: 0, compare=False, repr=False)

    @property
    def in_force(self) -> bool:
        """True if an incident is in force."""
        return self.kind != Sign.none and self.ended_at == NEVER

    @property
    def is_taken(self) -> bool:
        """True if the last incident lasted for a day, so that its sign is taken as it is."""
        return self.kind != Sign.none and self.ended_at >= self.since + DAY

    @property
    def is_over(self) -> bool:
        """True if the watch has nothing to remember."""
        return self.opened_at == NEVER and self.kind == Sign.none

    def judge(self, crawl: SuspectCrawl, page: PageSeen) -> CrawlVerdict:
        """Return what a crawl teaches; `page` is the page before the crawl."""
        self._pass_time(crawl.at)
        if self.in_force and crawl.at >= self.since and self._shows_it(crawl, page):
            if not self._is_news(page):
                return CrawlVerdict.as_before
            counted = page.last_at >= self.since and self._showed_it(page)
            self.n_pages += not counted
            self.shown_at = max(self.shown_at, crawl.at)
            self._count(crawl, page, Sign.none)
            return CrawlVerdict.incident
        # content of a crawl that is older than the last sign does not show that the sign is gone
        if self.kind != Sign.none and crawl.at > self.shown_at and self._is_other(crawl, page):
            self._end(crawl.at)
        if crawl.outcome == Outcome.content and crawl.at >= self.no_content_since:
            self.no_content_since = NEVER
        sign = self._new_sign(crawl, page)
        self._count(crawl, page, sign)
        if sign in LOST and self.no_content_since == NEVER:
            self.no_content_since = crawl.at
        if sign is not Sign.none and self._prevails(sign, crawl.at):
            self._begin(sign, crawl.at)
            return CrawlVerdict.incident
        is_unbroken = page.looked_at >= self.no_content_since
        if sign in LOST and is_unbroken and self._counted(sign) >= FEWEST:
            return CrawlVerdict.waits
        stranger = crawl.is_doubtful or self._is_known(crawl, page)
        return CrawlVerdict.doubtful if sign is Sign.alike and stranger else CrawlVerdict.plain

    def _pass_time(self, at: int) -> None:
        """Close the hour, take an incident of a day as it is, and forget an old one."""
        if self.opened_at != NEVER and at >= self.opened_at + HOUR:
            self._close()
        if self.in_force and at >= self.since + DAY:
            self.ended_at = self.since + DAY
        ended = self.kind != Sign.none and self.ended_at != NEVER
        if ended and not self.is_taken and at >= self.ended_at + HOUR:
            self._forget()

    # -- an incident

    def end_by_hand(self, at: int) -> bool:
        """End the incident in force, as content does; return whether there was one."""
        self._pass_time(at)
        was_in_force = self.in_force
        if was_in_force:
            self._end(at)
            self.no_content_since = at + HOUR  # until then second looks confirm
        return was_in_force

    def _shows_it(self, crawl: SuspectCrawl, page: PageSeen) -> bool:
        """Return whether a crawl shows the sign of the incident, new to the page or not."""
        if self.kind == Sign.alike:
            return shown_by(crawl, page) == self.digest
        return sign_shown(crawl, page) == self.kind

    def _is_news(self, page: PageSeen) -> bool:
        """Return whether the sign of the incident is news of a page, which had other content."""
        if self.kind in (Sign.absent, Sign.moved):
            return page.answered
        if self.kind == Sign.alike:
            return page.digest != self.digest
        return page.last_at >= self.since or last_sign(page) != self.kind

    def _showed_it(self, page: PageSeen) -> bool:
        return page.outcome == Outcome.doubtful or last_sign(page) == self.kind

    def _is_other(self, crawl: SuspectCrawl, page: PageSeen) -> bool:
        """Return whether a crawl shows content that is not that of the incident."""
        if self.kind == Sign.alike:
            return shown_by(crawl, page) not in (0, self.digest)
        return crawl.outcome == Outcome.content

    def _begin(self, sign: Sign, at: int) -> None:
        # a row of an earlier version lacks the first sign
        first_at = getattr(self, f"{sign.name}_at")
        self.since = self.opened_at if first_at == NEVER else first_at
        self.kind, self.shown_at = sign, at
        self.ended_at, self.n_pages = NEVER, self._counted(sign)
        self._close()

    def _end(self, at: int) -> None:
        if self.is_taken:
            self._forget()
        elif self.in_force:
            if self.kind in LOST:
                since = self.no_content_since
                self.lost_since = self.since if since == NEVER else min(self.since, since)
            self.ended_at, self.no_content_since = at, NEVER
            self._close()

    def _forget(self) -> None:
        self.kind = Sign.none
        if self.opened_at == NEVER:
            self.digest = self.digest_before = 0

    # -- an hour

    def _new_sign(self, crawl: SuspectCrawl, page: PageSeen) -> Sign:
        """Return the sign that a crawl shows, if it is new to the page and not taken as it is."""
        sign = sign_shown(crawl, page)
        same = sign == self.kind and (sign is not Sign.alike or crawl.digest == self.digest)
        if self.is_taken and same:
            return Sign.none
        is_new = {
            Sign.absent: page.answered,
            Sign.moved: page.answered,
            Sign.refused: page.outcome != Outcome.refused,
            Sign.alike: self._is_alike(crawl, page),
        }
        return sign if is_new.get(sign, False) else Sign.none

    def _is_alike(self, crawl: SuspectCrawl, page: PageSeen) -> bool:
        if page.outcome == Outcome.doubtful and crawl.at >= page.doubted_at + HOUR:
            return False
        return crawl.is_shared or self._is_known(crawl, page)

    def _is_known(self, crawl: SuspectCrawl, page: PageSeen) -> bool:
        """Return whether a page shows the digest that is counted, and is no twin of the first."""
        return crawl.digest == self.digest and page.digest != self.digest_before

    def _count(self, crawl: SuspectCrawl, page: PageSeen, sign: Sign) -> None:
        """Count the page of a crawl by this crawl, in place of its last one in the hour."""
        if sign is not Sign.none and self.opened_at == NEVER:
            self.opened_at = crawl.at
        elif sign is not Sign.none and self.opened_at - HOUR <= crawl.at < self.opened_at:
            self.opened_at = crawl.at  # its report came late
        still_gone = page.gone and IS_ABSENT[crawl.outcome]
        if self.opened_at == NEVER or crawl.at < self.opened_at or still_gone:
            return
        showed = Sign.none
        if page.last_at >= self.opened_at:
            showed = last_sign(page)
            if showed is not Sign.none and showed == sign_shown(crawl, page):
                return
            self._add(showed, -1)
        else:
            self.n_crawled += 1
            if self.n_before > 0 and page.last_at >= self.counted_at - HOUR:
                self.n_before -= 1  # the page counts by this crawl now
        if sign is not Sign.none and (sign is not Sign.alike or self._follows(crawl)):
            self._add(sign, 1)
            name = f"{sign.name}_at"
            first_at = getattr(self, name)
            setattr(self, name, crawl.at if first_at == NEVER else min(first_at, crawl.at))

    def _follows(self, crawl: SuspectCrawl) -> bool:
        """Return whether a digest is the one that is counted, the most frequent one so far."""
        if crawl.digest != self.digest and crawl.n_alike >= self.n_alike:
            self.digest, self.digest_before = crawl.digest, crawl.digest_before
            self.n_alike = crawl.n_alike
            # the first page showed it before any other made it a sign
            is_recent = crawl.shared_since >= crawl.at - HOUR
            self.alike_at = crawl.shared_since if is_recent else self.opened_at
        return crawl.digest == self.digest

    def _add(self, sign: Sign, n: int) -> None:
        if sign is not Sign.none:
            name = f"n_{sign.name}"
            left = max(getattr(self, name) + n, 0)
            setattr(self, name, left)
            if not left:  # the page that showed it first is as before
                setattr(self, f"{sign.name}_at", NEVER)

    def _counted(self, sign: Sign) -> int:
        return int(getattr(self, f"n_{sign.name}"))

    def _prevails(self, sign: Sign, at: int) -> bool:
        """Return whether a sign makes an incident."""
        n, n_crawled = self._counted(sign), self.n_crawled
        rests = sign == self.kind and self.ended_at != NEVER
        if rests or n < FEWEST or 2 * n <= n_crawled:
            return False
        # the pages that were crawled before the hour are read only when they decide
        end = self.opened_at + HOUR
        if self.n_before == UNKNOWN:
            self.n_before = self.crawled_before(at - HOUR, self.opened_at)
            self.counted_at = at
        left = min(max(end - at, 0) / max(end - self.counted_at, 1), 1.0)
        return 2 * n > n_crawled + self.n_before * left

    def _close(self) -> None:
        """End the hour; the digest stays where it is that of the incident."""
        self.opened_at = self.counted_at = NEVER
        self.absent_at = self.refused_at = self.alike_at = self.moved_at = NEVER
        self.n_crawled = self.n_absent = self.n_refused = self.n_alike = self.n_moved = 0
        self.n_before = UNKNOWN
        if self.kind != Sign.alike:
            self.digest = self.digest_before = 0


def judged(
    watch: HostWatch, crawls: Iterable[SuspectCrawl], pages: dict[int, PageSeen]
) -> list[CrawlVerdict]:
    """Return what the crawls of one host teach, in the order of their times.

    The function notes them in the watch, and in the pages by page_id.
    """
    verdicts, every = [], list(crawls)
    for crawl in every:
        page = pages[crawl.page_id]
        verdict = watch.judge(crawl, page)
        page.see(crawl, verdict)
        verdicts.append(verdict)
    if watch.in_force and watch.kind == Sign.alike:
        for i, crawl in enumerate(every):
            if crawl.is_shared and crawl.digest == watch.digest and crawl.at >= watch.since:
                verdicts[i] = CrawlVerdict.incident
    return verdicts


def watches_of(incidents: HostIncidents) -> dict[int, HostWatch]:
    """Return the watches over hosts by host_id, in the order of the rows."""
    columns = {name: numbers_of(column).tolist() for name, column in incidents.arrays().items()}
    rows = zip(*columns.values(), strict=True)
    watches = (HostWatch(**dict(zip(columns, row, strict=True))) for row in rows)
    return {watch.host_id: watch for watch in watches}


def incidents_of(watches: Iterable[HostWatch]) -> HostIncidents:
    """Return watches as columns."""
    every = list(watches)
    columns = {}
    for name, dtype in element_types(HostIncidents).items():
        numbers = np.array([getattr(watch, name) for watch in every], np.int64)
        columns[name] = numbers.view(dtype) if dtype == INSTANT else numbers.astype(dtype)
    return HostIncidents(**columns)


def numbers_of(column: NDArray[Any]) -> NDArray[Any]:
    """Return a column of numbers, instants as microseconds since 1970; NaT equals itself."""
    return column.astype(INSTANT).view(np.int64) if column.dtype.kind == "M" else column
