"""Needs of pages and of URL groups. Pure."""

from collections import deque
from collections.abc import Iterator
from datetime import datetime, timedelta
from shlex import quote

from service.model.words import counted
from service.status.facts import Facts
from service.status.growth import growth
from service.status.kinds import Found, NeedKind

HIGH, GROWN, FEWEST = 0.2, 0.05, 5
"""Share of pages without content that is high, its growth in a day, and the least number."""
A_DAY = timedelta(days=1)


def no_content(facts: Facts) -> Iterator[Found]:
    """Yield that the share of pages without content is high, or has grown since a day before."""
    since, n, share = None, 0, 0.0
    last_day: deque[tuple[datetime, float]] = deque()
    before = None
    for step in facts.steps:
        if step.measured_at is None or not step.n_pages or step.n_no_content is None:
            continue
        n, share = step.n_no_content, step.n_no_content / step.n_pages
        while last_day and step.at - last_day[0][0] >= A_DAY:
            before = last_day.popleft()[1]
        last_day.append((step.at, share))
        grown = before is not None and share - before >= GROWN
        holds = n >= FEWEST and (share >= HIGH or grown)
        since = (since or step.measured_at) if holds else None
    if since is not None:
        yield Found("pages", since, {"pages": counted(n, "page"), "share": f"{share:.0%}"})


NO_CONTENT = NeedKind(
    "no_content",
    no_content,
    "See why {pages}, {share} of all, got no content.",
    "recrawl pages list state=no_content --limit 10",
    since_stays=False,
)


def new_pages_grow(facts: Facts) -> Iterator[Found]:
    """Yield that most pages wait for their first crawl, and that they grow all day."""
    if (more := growth(facts.steps, facts.at)) is not None:
        values = {
            "waiting": f"{more.n_waiting:,} of {counted(more.n_pages, 'page')}",
            "more": f"{more.n_more:,}",
        }
        yield Found("pages", more.since, values)


NEW_PAGES_GROW = NeedKind(
    "new_pages_grow",
    new_pages_grow,
    "Stop the URL group with most waiting pages if it is a trap, or raise the budget: "
    "{waiting} were never crawled, {more} more than a day ago.",
    "recrawl url-groups list --limit 10",
    since_stays=False,
)


def url_groups_stopped(facts: Facts) -> Iterator[Found]:
    """Yield URL groups whose first crawls brought too little."""
    for group in facts.stopped:
        name, of = group.name, f"of its {counted(group.n_first, 'first crawl')}"
        act, remedy = f"Admit {name} or stop it for good", "recrawl url-groups list --stopped"
        counts = f"{group.n_new:,} {of} brought something new"
        if group.n_forbidden:
            act, remedy = f"Stop {name} for good", f"recrawl url-groups stop {quote(name)}"
            counts = f"robots.txt forbids {group.n_forbidden:,} {of}"
        yield Found(name, group.since, {"act": act, "counts": counts, "remedy": remedy})


URL_GROUPS_STOPPED = NeedKind(
    "url_groups_stopped",
    url_groups_stopped,
    "{act}: {counts}, so its new pages wait.",
    "{remedy}",
    "recrawl url-groups list --stopped",
)
