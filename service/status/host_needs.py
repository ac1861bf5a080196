"""Needs of hosts and of their windows. Pure."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from math import isnan

from service.model.incidents import SHOWN
from service.model.pause_words import act_on_pause, paused_because
from service.model.words import counted
from service.model.words import moment as in_words
from service.status.facts import Facts
from service.status.kinds import Found, NeedKind

LONG_PAUSE = timedelta(hours=1)
LATE_REPORT = timedelta(minutes=1)
"""Maximum time from a crawl, from which its pause counts, to its report, which begins it."""
MANY_FAILURES = 5
"""Failures in a row from which a host is shown, however short its pause is."""


def hosts_paused(facts: Facts) -> Iterator[Found]:
    """Yield hosts that pause for long or again and again after trouble, but for an incident."""
    in_incident = {host for host, _ in facts.incidents}
    for pause in facts.pauses:
        if pause.name in in_incident and not pause.is_group:
            continue
        length = pause.until - pause.since + LATE_REPORT
        if length >= LONG_PAUSE or pause.n_failures >= MANY_FAILURES:
            remedy = f"recrawl pages list host={pause.name} state=failing --limit 10"
            host = f"the group {pause.name}" if pause.is_group else pause.name
            values = {
                "act": act_on_pause(host, pause.status),
                "cause": paused_because(pause.status),
                "until": in_words(pause.until),
                "failures": counted(pause.n_failures, "failure"),
                "remedy": f"GET /groups/{pause.name}" if pause.is_group else remedy,
            }
            yield Found(pause.name, pause.since, values)


HOST_PAUSED = NeedKind(
    "host_paused",
    hosts_paused,
    "{act}: it {cause}, and pauses until {until}, after {failures} in a row.",
    "{remedy}",
    "recrawl hosts list --paused",
    since_stays=False,
)


def hosts_in_incident(facts: Facts) -> Iterator[Found]:
    """Yield hosts whose changes are held back, because most pages suddenly show the same."""
    for host, incident in facts.incidents:
        values = {
            "host": host,
            "pages": counted(incident.n_pages, "page"),
            "shown": SHOWN[incident.kind],
            "since": in_words(incident.since),
            "until": in_words(incident.until),
            "remedy": f"recrawl hosts show {host}",
        }
        yield Found(host, incident.since, values)


HOST_IN_INCIDENT = NeedKind(
    "host_in_incident",
    hosts_in_incident,
    "See what {host} shows: {pages} {shown} since {since}. Their changes are held back until "
    "other content comes, and count from {until} on if none does.",
    "{remedy}",
    "recrawl hosts list --paused",
)


def windows_never_open(facts: Facts) -> Iterator[Found]:
    """Yield hosts and groups whose windows and blackouts leave no opening within a year."""
    for closed in facts.never_open:
        host = f"the group {closed.name}" if closed.is_group else closed.name
        place = "groups" if closed.is_group else "hosts"
        yield Found(
            closed.name, closed.since, {"host": host, "remedy": f"GET /{place}/{closed.name}"}
        )


WINDOW_NEVER_OPENS = NeedKind(
    "window_never_opens",
    windows_never_open,
    "Open a window for {host}: none opens within a year.",
    "{remedy}",
    since_stays=False,
)


def windows_too_narrow(facts: Facts) -> Iterator[Found]:
    """Yield hosts that lose many crawls to their windows, by the plan of the epoch in force."""
    for host, wanted, by_delay, by_closures, began in facts.window_losses:
        planned_at = None if facts.in_force is None else facts.in_force.started_at
        since = planned_at if isnan(began) else datetime.fromtimestamp(began, UTC)
        if since is None:
            continue
        open_time = f"{by_delay:,.0f} because its delay leaves no time for more while it is open"
        closures = f"{by_closures:,.0f} because pages are wanted more often than it opens"
        causes = [open_time] * (by_delay >= 1) + [closures] * (by_closures >= 1)
        values = {
            "host": host,
            "lost": f"{by_delay + by_closures:,.0f}",
            "wanted": counted(round(wanted), "crawl"),
            "causes": ", and ".join(causes),
            "remedy": f"recrawl hosts show {host}",
        }
        yield Found(host, since, values)


def delays_too_long(facts: Facts) -> Iterator[Found]:
    """Yield hosts that lose much freshness to their delay, by the plan of the epoch in force."""
    for slow in facts.slow_hosts:
        values = {
            "act": f"Ask the site of {slow.host} for a shorter delay, or accept it"
            if slow.whose == "robots"
            else f"Shorten the delay of {slow.host} if its site allows it",
            "cause": slow.cause,
            "stale": f"{slow.staler:.0%}",
            "remedy": slow.remedy,
        }
        yield Found(slow.host, slow.since, values)


DELAY_TOO_LONG = NeedKind(
    "delay_too_long",
    delays_too_long,
    "{act}: {cause}. It makes {stale} more of its importance stale.",
    "{remedy}",
)


WINDOW_TOO_NARROW = NeedKind(
    "window_too_narrow",
    windows_too_narrow,
    "Widen the windows of {host}, or accept it: it loses {lost} of {wanted} a day, {causes}.",
    "{remedy}",
)
