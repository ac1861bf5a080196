"""The checks of a run: each compares a figure with its target.

A leased crawl is what the service counts as a granted lease. It has content if the server sent an
answer that a crawler can report as content: a readable 2xx or a 304.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby, pairwise

import numpy as np

from benchmarks.rough.run import LOOK_EVERY_S, Played
from benchmarks.rough.server import Request
from benchmarks.rough.world import CRAWL_EVERY_S, PAGES_PER_HOST, Host, RoughWorld

EARLY_S = 0.05
"""Time by which a request may come too early, seconds."""
SETTLED_S = 120.0
"""Time after which few crawls should be without content, seconds."""
LONGEST_BLOCK_S = 120.0
"""Time that a host may be blocked beyond what it asked and three times its trouble, seconds."""
MOST_WITHOUT, LEAST_FRESH = 0.05, 0.97
SEEN_AFTER_S = 30.0
"""Longest time from an answer that asks for a wait to the look that sees the block, seconds."""
STARVED_S = 10 * CRAWL_EVERY_S
"""Longest time without a request of a page of a well-behaved host, seconds."""
EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class Check:
    """A figure of a run beside its target."""

    name: str
    figure: float
    target: float
    """Bound of the figure."""
    at_least: bool = False
    """True for a lower bound."""
    examples: tuple[str, ...] = ()
    judged: bool = True
    """False for a figure that the run is too short to judge."""

    @property
    def passed(self) -> bool:
        """True if the figure keeps to its target, or is not judged."""
        kept = self.figure >= self.target if self.at_least else self.figure <= self.target
        return kept or not self.judged


def checks(rough: Played, calm: Played | None) -> list[Check]:
    """Return the checks of a run; `calm` is the same run with a half that behaves."""
    found = [] if calm is None else [freshness(rough, calm)]
    return [*found, without_content(rough), *of_one_run(rough)]


def of_one_run(played: Played, early_s: float = EARLY_S) -> list[Check]:
    """Return the checks that need neither a second run nor a long one."""
    log = played.service_log
    servers = {status: n for status, n in played.answers.items() if status.startswith("5")}
    return [
        nearness(played, early_s),
        _violations("hosts blocked for too long", blocked_too_long(played)),
        _violations("pages of well-behaved hosts starved", starved(played)),
        Check("answers 5xx of the service", sum(servers.values()), 0, examples=tuple(servers)),
        Check("leases after the end of the crawler", played.n_leased, 0),
        Check("tracebacks in the log of the service", log.count("Traceback"), 0),
        _violations("faults of the crawler", played.faults),
        _violations("faults of the rough web itself", played.site.faults),
    ]


def _violations(name: str, found: Iterable[str]) -> Check:
    listed = list(found)
    return Check(name, len(listed), 0, examples=tuple(listed[:EXAMPLES]))


# -- freshness


def well_behaved(world: RoughWorld) -> Iterator[Host]:
    """Yield the hosts that behave well in the rough run and in the calm one."""
    return (host for host in world.hosts if host.number % 2 == 0)


def fresh(played: Played) -> float:
    """Return the share of time in which copies of well-behaved pages were up to date."""
    world = played.site.world
    shown = [
        (request.page, request.at)
        for request in played.site.log
        if request.page is not None and request.content
    ]
    page = np.array([page for page, _ in shown], np.int64)
    at = np.array([at for _, at in shown])
    hosts = np.array([host.number for host in well_behaved(world)], np.int64)
    pages = (hosts[:, None] * PAGES_PER_HOST + np.arange(PAGES_PER_HOST)).ravel()
    return world.fresh(page, at, pages)


def freshness(rough: Played, calm: Played) -> Check:
    """Compare the well-behaved pages of both runs."""
    ours, best = fresh(rough), fresh(calm)
    examples = (f"{ours:.4f} beside a rough half, {best:.4f} beside a calm one",)
    name = "freshness of well-behaved pages, rough / calm"
    return Check(name, ours / best, LEAST_FRESH, at_least=True, examples=examples)


# -- leases


def granted(played: Played, at: float) -> float:
    """Return the number of leases up to an instant."""
    looks = played.looks
    return float(np.interp(at, [one.at for one in looks], [one.n_granted for one in looks]))


def settled(played: Played) -> float:
    """Return the time after which crawls without content are counted: half of a short run."""
    return SETTLED_S if played.seconds >= 1.5 * SETTLED_S else played.seconds / 2


def without_content(played: Played) -> Check:
    """Return the share of the leased crawls without content, once the run has settled."""
    since = settled(played)
    judged = since == SETTLED_S
    n_leased = granted(played, played.seconds) - granted(played, since)
    n_content = sum(
        request.content
        for request in played.site.log
        if since <= request.at < played.seconds and not request.for_robots
    )
    share = 1.0 - n_content / n_leased if n_leased else 1.0
    name = f"leased crawls without content after {since:.0f} s"
    examples = (f"{n_leased - n_content:.0f} of {n_leased:.0f}",)
    return Check(name, share, MOST_WITHOUT, examples=examples, judged=judged)


def by_host(played: Played) -> dict[int, list[Request]]:
    """Return the requests of each host, in the order of arrival."""
    ordered = sorted(played.site.log, key=lambda request: (request.host, request.at))
    return {host: list(some) for host, some in groupby(ordered, lambda request: request.host)}


def nearness(played: Played, early_s: float = EARLY_S) -> Check:
    """Count the requests that come too near, and show how many more seem so as the site reads them.

    The site reads requests late where its process stands still; they arrived in time.
    """
    near = _violations("requests nearer than the host's delay", too_near(played, early_s))
    late_s = max((request.read_at - request.at for request in played.site.log), default=0.0)
    arrived = {id(after) for _, after in near_pairs(played, early_s, lambda one: one.at)}
    read = {id(after) for _, after in near_pairs(played, early_s, lambda one: one.read_at)}
    late = f"set apart: {len(read - arrived)}, read up to {1000 * late_s:.0f} ms after they arrived"
    return replace(near, examples=(*near.examples, late))


def near_pairs(
    played: Played, early_s: float, instant: Callable[[Request], float]
) -> Iterator[tuple[Request, Request]]:
    """Yield each request before its host's delay less `early_s`, after the one before it.

    `instant` dates a request. Requests of robots.txt do not count, nor does the same request again
    after a cut connection, which HTTP clients make by themselves.
    """
    for number, requests in by_host(played).items():
        delay_s = played.site.world.hosts[number].behaviour.delay_s
        pages = sorted((r for r in requests if not r.for_robots), key=instant)
        for before, after in pairwise(pages):
            again = after.path == before.path and not before.status
            if not again and instant(after) - instant(before) < delay_s - early_s:
                yield before, after


def too_near(played: Played, early_s: float = EARLY_S) -> Iterator[str]:
    """Yield the requests that arrive too near after another one of their host."""
    for before, after in near_pairs(played, early_s, lambda request: request.at):
        host = played.site.world.hosts[after.host]
        yield (
            f"{host.behaviour.name} {host.address}: {after.path} at {after.at:.2f} s, "
            f"{after.at - before.at:.3f} s after {before.path}"
        )


def starved(played: Played) -> Iterator[str]:
    """Yield the well-behaved pages that were not requested for a long time."""
    limit_s = min(STARVED_S, played.seconds)
    at: dict[int, list[float]] = {}
    for request in played.site.log:
        if request.page is not None:
            at.setdefault(request.page, []).append(request.at)
    for host in well_behaved(played.site.world):
        for k in range(PAGES_PER_HOST):
            times = [0.0, *sorted(at.get(host.number * PAGES_PER_HOST + k, [])), played.seconds]
            longest = max(after - before for before, after in pairwise(times))
            if longest >= limit_s:
                yield f"{host.address}/p{k}: {longest:.0f} s without a request"


# -- blocks


@dataclass(frozen=True, slots=True)
class Spell:
    """A time in which a host was blocked without a break, seconds since the start."""

    host: Host
    start: float
    end: float


def spells(played: Played) -> Iterator[Spell]:
    """Yield the times in which hosts were blocked, from the looks at the service."""
    for host in played.site.world.hosts:
        start = end = None
        for look in played.looks:
            until = look.blocked_until.get(host.address)
            if until is not None and until > look.at:
                start, end = (look.at if start is None else start), until
            elif start is not None and end is not None:
                yield Spell(host, start, min(end, look.at))
                start = end = None
        if start is not None and end is not None:
            yield Spell(host, start, end)


def is_trouble(host: Host, request: Request) -> bool:
    """Return whether an answer was one of a host in trouble: in an outage, or by its status.

    In an outage a host may show one content on all pages. The statuses are 429, 5xx, and none that
    a crawler can read.
    """
    status = request.status
    ill = status < 200 or status == 429 or status >= 500
    return host.outage(request.at) is not None or (ill and not request.content)


def trouble(host: Host, requests: list[Request], spell: Spell) -> tuple[float, float]:
    """Return how long a host had failed by the end of a spell, and the longest wait it asked for.

    The trouble begins with the first failure after the last good answer, or with its outage.
    """
    before = [request for request in requests if request.at <= spell.end]
    asked = (r.asked_s for r in before if r.at >= spell.start - SEEN_AFTER_S)
    since = spell.start - 2 * LOOK_EVERY_S
    start = end = None
    for request in before:
        if is_trouble(host, request):
            outage = host.outage(request.at) or (request.at, request.at)
            start, end = (outage[0] if start is None else start), outage[1]
        elif request.at < since:
            start = end = None
    failed_s = end - start if start is not None and end is not None else 0.0
    return failed_s, max(asked, default=0.0)


def blocked_too_long(played: Played) -> Iterator[str]:
    """Yield the spells that are longer than the host's own wishes and trouble explain."""
    requests = by_host(played)
    for spell in spells(played):
        failed_s, asked_s = trouble(spell.host, requests.get(spell.host.number, []), spell)
        most_s = max(asked_s, 3 * failed_s) + LONGEST_BLOCK_S
        if spell.end - spell.start > most_s:
            yield (
                f"{spell.host.behaviour.name} {spell.host.address}: blocked for "
                f"{spell.end - spell.start:.0f} s from {spell.start:.0f} s on, failed for "
                f"{failed_s:.0f} s, asked for {asked_s:.0f} s"
            )
