"""Hosts: the list, one host with its pages, its pause, its politeness and its end."""

from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from fastapi import Response

from recrawl_client.wire.change_hours import ChangeHoursAnswer
from recrawl_client.wire.history import HistoryRow
from recrawl_client.wire.hosts import HostAnswer, HostsAnswer, OpenHoursAnswer
from recrawl_client.wire.listing import PagesAnswer
from service.api.responses.open_hours import open_hours_answer
from service.api.routes import hosts, listing
from service.console.achieved import RANGES, bars_of, rows_of
from service.console.charts import (
    FLOOR,
    Picture,
    Shape,
    Tick,
    across,
    compact,
    round_ticks,
    steps,
    up,
)
from service.console.render import path_segment
from service.console.series import TimeSeries
from service.console.visit import Visit
from service.leases.conditional import distrusted_until
from service.leases.host_settings import rules_of_host
from service.model.errors import HostNotFound, InvalidField
from service.model.windows import parts_of
from service.model.words import span

PART = 50
PAUSES = {"1h": timedelta(hours=1), "1d": timedelta(days=1), "7d": timedelta(days=7)}
"""Lengths of a pause by their name in the form."""
POLITENESS = ("min_delay_s", "max_concurrency", "max_crawl_rate")
HOURS_SET = ("windows", "blackouts")
"""Fields of the form of politeness."""
THINNEST = 0.4
"""Least width of a stretch in the picture of a week, percent, so that minutes can be seen."""
HOURS, WEEK = 24, timedelta(days=7)
HISTORY, BAR_S = "7d", 21_600
"""Range of the chart of a host, and the time of one of its bars, seconds."""
CRAWLS = (("reported", "a", "n_reported"), ("found a change", "d", "n_changed"))
"""Lines of the chart of a host."""


def show_all(visit: Visit) -> Response:
    """Show a part of the list of hosts."""
    values = visit.parameters("list_hosts")
    values.setdefault("limit", PART)
    part = visit.ask(HostsAnswer, hosts.list_hosts, request=visit.request, **values)
    closed = closed_hosts(visit, [each.host for each in part.items])
    return visit.page("hosts.html", part=part, values=values, pauses=list(PAUSES), closed=closed)


def closed_hosts(visit: Visit, names: list[str]) -> dict[str, datetime | None]:
    """Return the hosts whose windows are closed now, and when each opens; None: not in a year."""
    closed = {}
    with visit.service.store.begin(write=False) as tx:
        for name in names if tx.calendars.in_use else ():
            with suppress(HostNotFound):  # it was deleted just now
                rules = rules_of_host(tx.host(name), tx.calendars.of_all)
                hours = open_hours_answer(rules, visit.now)
                if hours is not None and not hours.is_open:
                    closed[name] = hours.opens_at
    return closed


def show(visit: Visit) -> Response:
    """Show one host: settings, queue, pings, hours of change, and its first pages."""
    name = visit.parameters("get_host")["host"]
    host = visit.ask(HostAnswer, hosts.get_host, caller=visit.caller, host=name)
    pages = visit.ask(
        PagesAnswer,
        listing.list_all_pages,
        request=visit.request,
        caller=visit.caller,
        host=host.host,
        limit=20,
    )
    return visit.page(
        "host.html",
        host=host,
        pages=pages.items,
        change_hours=None if host.change_hours is None else hours_picture(host.change_hours),
        crawls=week_of(visit, rows_of(visit, HISTORY, host.host, BAR_S)),
        pauses=list(PAUSES),
        plain_until=distrusted_until(host.false_304_at, visit.now),
        week=None if host.open_hours is None else week_picture(host.open_hours, visit.now),
    )


def week_of(visit: Visit, rows: list[HistoryRow]) -> TimeSeries | None:
    """Return the crawls of a week as bars; None without a crawl."""
    if not any(row.n_reported for row in rows):
        return None
    since = visit.now - RANGES[HISTORY].length
    return bars_of(rows, "Crawls", *CRAWLS, since=since, until=visit.now, step_s=BAR_S)


def chosen_s(visit: Visit) -> float | None:
    """Return the length of the pause that a form asks for, seconds; None ends the pause."""
    length = visit.form.get("length", "")
    if length and length not in PAUSES:
        raise InvalidField("length", f"length is none of {', '.join(PAUSES)}; choose one of them")
    return PAUSES[length].total_seconds() if length else None


def pause(visit: Visit) -> Response:
    """Pause a host for some time, or end its pause, with that of its site if this is asked for."""
    name, seconds = visit.parameters("get_host")["host"], chosen_s(visit)
    if seconds is None:
        site = visit.form.get("site") == "true"
        hosts.resume_host(service=visit.service, actor=visit.actor, host=name, site=site)
    else:
        body = visit.body(for_s=seconds)
        hosts.pause_host(service=visit.service, actor=visit.actor, host=name, body=body)
    return visit.back(_page(name), "resumed" if seconds is None else "paused")


def end_incident(visit: Visit) -> Response:
    """End the incident of a host."""
    name = visit.parameters("get_host")["host"]
    hosts.end_host_incident(service=visit.service, actor=visit.actor, host=name)
    return visit.back(_page(name), "incident_ended")


def set_politeness(visit: Visit) -> Response:
    """Set delay, concurrency, cap and windows of a host; an empty field restores the default."""
    name = visit.parameters("get_host")["host"]
    texts = {field: visit.form.get(field, "").strip() for field in POLITENESS}
    values: dict[str, Any] = {field: number_or_text(text) for field, text in texts.items()}
    for field in HOURS_SET:
        if field in visit.form:
            values[field] = parts_of(visit.form[field].replace("\n", ";")) or None
    body = visit.body(**values)
    hosts.patch_host(
        service=visit.service, caller=visit.caller, actor=visit.actor, host=name, body=body
    )
    return visit.go(_page(name), "polite")


def number_or_text(text: str) -> float | str | None:
    """Return the number that a field of a form has; a text that is none is for the API to refuse.

    >>> number_or_text("2"), number_or_text("0.5"), number_or_text(""), number_or_text("fast")
    (2, 0.5, None, 'fast')
    """
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        return text
    return int(number) if number.is_integer() else number


def delete(visit: Visit) -> Response:
    """Delete a host that has no pages."""
    name = visit.parameters("get_host")["host"]
    hosts.delete_host_by_name(service=visit.service, actor=visit.actor, host=name)
    return visit.go("/console/hosts", "host_deleted")


def _page(name: str) -> str:
    return f"/console/hosts/{path_segment(name)}"


def week_picture(hours: OpenHoursAnswer, now: datetime) -> Picture:
    """Return the stretches of the coming seven days in which a host may be crawled."""
    until = now + WEEK
    stretches = [(max(each.opens_at, now), min(each.closes_at, until)) for each in hours.week]
    open_s = sum((end - begin).total_seconds() for begin, end in stretches)
    picture = Picture(
        title="Open hours of the coming week",
        description=f"Open for {span(open_s)} of the coming week; the times are UTC",
        height=60,
        x_label="UTC",
    )
    x = across(now.timestamp(), until.timestamp())
    for begin, end in stretches:
        left = x(begin.timestamp())
        right = max(x(end.timestamp()), left + THINNEST)
        picture.shapes.append(Shape("fill-a", f"M{left} 0H{right}V{FLOOR}H{left}Z"))
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    days = [midnight + timedelta(days=n) for n in range(1, 8)]
    picture.x_ticks = [Tick(x(day.timestamp()), f"{day:%a %d}") for day in days]
    return picture


def hours_picture(change_hours: ChangeHoursAnswer) -> Picture:
    """Return the change rate over the hours of a day, as a factor on its mean."""
    busy = change_hours.busiest
    picture = Picture(
        title=f"Hours at which pages of {change_hours.url_group} change"
        if change_hours.url_group
        else "Hours at which pages change",
        description=f"{busy.share:.0%} of the changes come from {busy.start:.1f} to {busy.end:.1f} "
        f"h UTC; the pages change by the hour with probability {change_hours.weight:.0%}",
        height=140,
        x_label="hour of the day, UTC",
    )
    highest = max(*change_hours.intensity, 1.0) * 1.1
    x, y = across(0, HOURS), up(0, highest)
    edges = [x(hour) for hour in range(HOURS + 1)]
    outline = steps(edges, [y(value) for value in change_hours.intensity])
    picture.shapes = [Shape("fill-a", f"{outline}Z")]
    picture.x_ticks = [Tick(x(hour), f"{hour:02}") for hour in range(0, HOURS + 1, 3)]
    picture.y_ticks = [Tick(y(v), f"{compact(v)} x") for v in round_ticks(0, highest)]
    return picture
