"""Traps: addresses without end, which the pages of a host link to."""

from datetime import date, timedelta

from benchmarks.rough.behaviours.answers import Answer, Behaviour, Visit, plain, shown

ORDERS = ("price", "name", "date", "size")
MONTH = timedelta(days=31)
FIRST = date(2026, 1, 1)


def parameters(visit: Visit) -> Answer:
    """Return the content whatever the query, with links to two more queries."""
    if visit.for_robots or visit.version is None:
        return plain(visit)
    depth = visit.path.count("=")
    orders = [ORDERS[(visit.n + k) % len(ORDERS)] for k in range(2)]
    mark = "&" if "?" in visit.path else "?"
    links = tuple(f"{visit.path}{mark}by{depth}={order}" for order in orders) if depth < 30 else ()
    return shown(visit, links=links)


def calendar(visit: Visit) -> Answer:
    """Return an empty month, with links to the months after it, without end."""
    if visit.for_robots:
        return plain(visit)
    month = visit.path.partition("/calendar/")[2]
    now = date.fromisoformat(f"{month}-01") if month else FIRST
    if visit.version is None and not month:
        return plain(visit)
    links = tuple(f"/calendar/{now + n * MONTH:%Y-%m}" for n in (1, 2))
    if month:
        anchors = "".join(f'<a href="{link}">{link}</a>' for link in links)
        body = f"<html><body><p>No events in {month}</p>{anchors}</body></html>".encode()
        return Answer(headers=(("Content-Type", "text/html"),), body=body, links=links)
    return shown(visit, links=links)


TRAPS = (Behaviour("trap-parameters", parameters), Behaviour("trap-calendar", calendar))
