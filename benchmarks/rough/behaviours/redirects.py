"""Redirects that lead nowhere, for ever on, or to another address each time."""

from benchmarks.rough.behaviours.answers import Answer, Behaviour, Visit, shown, with_robots
from benchmarks.rough.behaviours.outages import login

ODD_PLACES = (
    "mailto:office@example.com",
    "javascript:void(0)",
    "http://[::1",
    "http://host:99999/",
    "//",
    "http://user:secret@127.0.0.1/",
    "/" + "long/" * 1_000,
    "\xff\xfe",
    "",
)
"""Locations that no crawler can follow, in turn."""


def to(place: str, status: str = "302 Found") -> Answer:
    return Answer(status=status, headers=(("Location", place),))


def loop(visit: Visit) -> Answer:
    """Return a redirect from a page to its address with a slash, and back."""
    return to(visit.place if visit.path.endswith("/") else visit.path + "/")


def chain(visit: Visit) -> Answer:
    """Return a redirect to an address that nobody has seen, for now and for good in turn."""
    status = "301 Moved Permanently" if visit.n % 2 else "302 Found"
    return to(f"{visit.place}/{visit.n}", status)


def session(visit: Visit) -> Answer:
    """Return the content under a session id; without one, a redirect to a new one."""
    if ";jsessionid=" in visit.path:
        return shown(visit)
    return to(f"{visit.place};jsessionid={visit.n:08x}")


def odd_place(visit: Visit) -> Answer:
    return to(ODD_PLACES[visit.n % len(ODD_PLACES)], "301 Moved Permanently")


REDIRECTS = tuple(
    Behaviour(f"redirect-{name}", with_robots(answer))
    for name, answer in {
        "loop": loop,
        "chain": chain,
        "session": session,
        "login": login,
        "odd": odd_place,
    }.items()
)
