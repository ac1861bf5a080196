"""Checks of the feed of changes: each change arrives at least once and in order per page."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from benchmarks.faults.history import Change, Followed, History, Incident, Received
from benchmarks.faults.verdicts import Entry, Final, Verdict


def expected(final: Final, stepped: bool = False) -> set[Entry]:
    """Return the page and the instant of each change, from the log alone.

    All reports of a campaign have an answer with content. So the first crawl of a page is a change,
    and each later one that the log calls changed. After steps of clocks the earliest date need not
    be the first crawl, which is then left out.
    """
    first: dict[int, int] = {}
    for crawl in final.crawls:
        first[crawl.page_id] = min(crawl.at, first.get(crawl.page_id, crawl.at))
    return {
        (crawl.page_id, crawl.at)
        for crawl in final.crawls
        if crawl.changed or (first[crawl.page_id] == crawl.at and not stepped)
    }


def strangers(seen: set[Entry], changes: set[Entry], final: Final, stepped: bool) -> set[Entry]:
    """Return the entries that are no changes; after steps, one crawl of each page may be new."""
    others = seen - changes
    if not stepped:
        return others
    logged = {(crawl.page_id, crawl.at) for crawl in final.crawls}
    per_page = Counter(page for page, _ in others)
    return {entry for entry in others if entry not in logged or per_page[entry[0]] > 1}


def arrived(name: str, items: Sequence[Change], final: Final, stepped: bool = False) -> Verdict:
    """Check that a reader saw every change, no other, and those of a page in order.

    After a backward step of its only clock, the service takes crawls that are dated before others.
    So after steps of clocks only the order of the commits counts.
    """
    changes, newest = expected(final, stepped), dict[int, tuple[int, int]]()
    seen: set[Entry] = set()
    wrong = []
    for item in items:
        entry = item.page_id, item.at
        if entry in seen:
            continue
        seen.add(entry)
        order = (item.recorded_at, item.at)
        last = newest.setdefault(item.page_id, order)
        if order < last or (item.at < last[1] and not stepped):
            wrong.append(f"{entry} of commit {order[0]} arrived after {last} of its page")
        newest[item.page_id] = max(order, last)
    wrong += [f"{entry} is missing" for entry in sorted(changes - seen)]
    wrong += [
        f"{entry} is no change of the log"
        for entry in sorted(strangers(seen, changes, final, stepped))
    ]
    return Verdict(name, wrong, len(changes))


def stepped(history: History) -> bool:
    """Return whether a nemesis stepped a clock."""
    return any(incident.nemesis == "step-clock" for incident in history.of(Incident))


def followed(history: History, final: Final) -> Verdict:
    """Check the reader with a cursor."""
    items = [item for part in history.of(Followed) for item in part.items]
    name = "changes that a reader with a cursor misses, or sees out of order"
    return arrived(name, items, final, stepped(history))


def received(history: History, final: Final) -> Verdict:
    """Check the receiver of webhooks, and the signatures."""
    items = [item for part in history.of(Received) for item in part.items]
    name = "changes that a webhook misses, or delivers out of order"
    verdict = arrived(name, items, final, stepped(history))
    forged = [f"{one.delivery} is not signed" for one in history.of(Received) if not one.signed]
    return Verdict(verdict.name, verdict.violations + forged, verdict.checked)


def lags(history: History) -> dict[str, float]:
    """Return quantiles of the time from the commit of a change to its first arrival, seconds.

    The figures of `calm` are those of changes that arrived before the first fault.
    """
    figures: dict[str, float] = {}
    first_fault = min((one.since for one in history.of(Incident)), default=np.inf)
    for name, kind in (("follower", Followed), ("receiver", Received)):
        first: dict[Entry, float] = {}
        calm: list[float] = []
        for part in history.of(kind):
            for item in part.items:
                entry = item.page_id, item.at
                if entry not in first:
                    first[entry] = part.wall - item.recorded_at / 1e6
                    if part.at < first_fault:
                        calm.append(first[entry])
        figures |= quantiles(name, list(first.values())) | quantiles(f"{name} calm", calm)
    return figures


def quantiles(name: str, lag_s: list[float]) -> dict[str, float]:
    """Return the median, the 99 % quantile, the maximum and the number of times."""
    if not lag_s:
        return {}
    p50, p99, most = np.quantile(lag_s, [0.5, 0.99, 1.0]).tolist()
    return {
        f"{name} p50": p50,
        f"{name} p99": p99,
        f"{name} most": most,
        f"{name} n": len(lag_s),
    }
