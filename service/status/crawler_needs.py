"""Needs of crawlers and of what they report. Pure."""

from collections.abc import Iterator
from datetime import datetime, timedelta

import numpy as np

from service.model.arrays import NO_TIME, instant, moment
from service.model.words import counted
from service.model.words import moment as in_words
from service.status.facts import PATIENCE, Facts, reported_by
from service.status.kinds import Found, NeedKind, length_in_words
from service.storage.queue.askers import KEPT
from service.storage.queue.signs import Asked

READER_PATIENCE = timedelta(days=1)
"""Minimum time after which crawlers are missed that read the schedule and ask for no leases."""
UNANSWERED = 20
"""Minimum number of failed crawls in a row that are shown."""
REPORTED_WITHIN = timedelta(days=1)
"""Maximum time since the last report, while failed crawls are shown."""
LOST_WITHIN = timedelta(hours=1)
"""Time between two lost leases of one run."""
LOSES = 10
"""Minimum number of leases that a worker loses within the last hour."""


def no_crawler(facts: Facts) -> Iterator[Found]:
    """Yield that pages are due and open, and that no crawler comes for them.

    A crawler is not missed while it holds leases, or waits for a Retry-After. If nobody takes
    leases, crawlers may read the schedule, or report, once a day.
    """
    ready_since, leases, schedule, leases_end, reported_by = facts.crawlers
    if ready_since is None or (leases_end is not None and leases_end > facts.at):
        return
    asked = [each for each in (leases, schedule) if each is not None]
    comes_by = [each.until for each in asked] + ([] if leases_end is None else [leases_end])
    if leases is None and reported_by is not None:
        comes_by.append(reported_by)
    since = max([ready_since, *comes_by])
    patience = reader_patience(leases) if comes_by else PATIENCE
    if facts.at - since >= patience:
        last = "no crawler has ever asked for leases"
        if leases is not None:
            last = f"no crawler has asked for leases for {length_in_words(facts.at - leases.at)}"
        elif comes_by:
            ago = length_in_words(facts.at - max(comes_by))
            last = f"no crawler has read the schedule or reported for {ago}"
        due = length_in_words(facts.at - ready_since)
        yield Found("crawlers", since, {"due": due, "last": last})


NO_CRAWLER = NeedKind(
    "no_crawler",
    no_crawler,
    "Start a crawler: pages have been due for {due}, and {last}.",
    "recrawl leases workers",
)


def unasked_since(
    at: datetime, asked: Asked | None, known_since: datetime | None
) -> datetime | None:
    """Return since when no crawler has asked for a host; None: one has lately, or is not missed.

    `known_since` is the time from which requests are known; None: none is.
    """
    if known_since is None:
        return None
    last = Asked(known_since, known_since) if asked is None else asked
    return max(last.at, at - KEPT) if at - last.until >= PATIENCE else None


def reader_patience(leases: Asked | None) -> timedelta:
    """Return how long a reading of the schedule counts as a crawler.

    A reading beside a fleet that takes leases may be a look by somebody.
    """
    return READER_PATIENCE if leases is None else PATIENCE


def host_unasked(facts: Facts) -> Iterator[Found]:
    """Yield hosts with due pages that no crawler asks for, while some ask for others."""
    leases, schedule = facts.crawlers.leases, facts.crawlers.schedule
    reads = schedule is not None and facts.at - schedule.at < reader_patience(leases)
    if reads or leases is None or facts.at - leases.until >= PATIENCE:
        return
    missed = [
        (unasked_since(facts.at, host.asked, facts.asked_since), host) for host in facts.unasked
    ]
    for since, host in sorted(missed, key=lambda pair: pair[0] or facts.at):
        if since is not None:
            name = f"the group {host.name}" if host.is_group else host.name
            remedy = f"recrawl leases explain --host {host.name}"
            values = {
                "host": name,
                "ago": length_in_words(facts.at - since),
                "remedy": "recrawl leases workers" if host.is_group else remedy,
            }
            yield Found(host.name, since, values)


HOST_WITHOUT_CRAWLER = NeedKind(
    "host_without_crawler",
    host_unasked,
    "Start a crawler that asks for {host}: its pages are due, and no crawler has asked for it "
    "for {ago}.",
    "{remedy}",
    "recrawl leases workers",
    since_stays=False,
)


def crawls_failing(facts: Facts) -> Iterator[Found]:
    """Yield that all crawls of the last steps failed, of whatever host.

    Sites fail one by one. If all fail at once, the network of the crawlers is more likely away, or
    it leads to a page of its own.
    """
    n, since, steps = 0, None, facts.steps
    if (running := facts.running) is not None:
        steps = [*(step for step in steps if step.at < running.at), running]
    for step in reversed(steps):
        if step.n_reported > step.n_failed:
            break
        if step.n_reported:
            n, since = n + step.n_reported, step.at
    last = reported_by(steps)
    if since is None or last is None or n < UNANSWERED:
        return
    if facts.at - last < REPORTED_WITHIN:
        values = {"crawls": counted(n, "crawl"), "since": in_words(since)}
        yield Found("crawlers", since, values)


CRAWLS_FAILING = NeedKind(
    "crawls_failing",
    crawls_failing,
    "See whether your crawlers reach the web: all of their last {crawls}, since {since}, failed.",
    "recrawl pages list state=failing --limit 10",
    since_stays=False,
)


def workers_losing(facts: Facts) -> Iterator[Found]:
    """Yield workers that lose most of their leases.

    Nothing stored counts the leases of one worker. It had at least those that it holds or has
    lost, and an even share of those that all workers took.
    """
    at, within = instant(facts.at), np.timedelta64(LOST_WITHIN)
    for worker in facts.workers:
        gaps = np.append(at, worker.lost_at[:-1]) - worker.lost_at
        run = worker.lost_at[: np.argmax(np.append(gaps > within, True))]
        n, since = int(np.sum(at - run <= within)), moment(min(run, default=NO_TIME))
        taken = max(worker.n_running + n, facts.n_leased / max(facts.n_workers, 1))
        if since is not None and n >= LOSES and 2 * n > taken:
            yield Found(worker.name, since, {"worker": worker.name, "leases": counted(n, "lease")})


WORKER_LOSING = NeedKind(
    "worker_losing",
    workers_losing,
    "See whether {worker} still runs: it lost {leases} in the last hour, most of its own.",
    "recrawl leases workers",
    since_stays=False,
)


def leases_returned(facts: Facts) -> Iterator[Found]:
    """Yield workers that return the leases of some pages again and again."""
    for worker, n, since in facts.returned:
        yield Found(worker, since, {"worker": worker, "pages": counted(n, "page")})


LEASES_RETURNED = NeedKind(
    "leases_returned",
    leases_returned,
    "Read the log of {worker}: it has returned the leases of {pages} again and again. It may "
    "not crawl them, or they are of another spider.",
    "recrawl pages list state=unfinished --limit 10",
    since_stays=False,
)
