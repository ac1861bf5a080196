"""Outages: for some seconds, now and then, no page of the host shows its content."""

from collections.abc import Callable
from http import HTTPStatus

from benchmarks.rough.behaviours.answers import (
    HTML,
    Answer,
    Behaviour,
    Visit,
    http_date,
    says,
    shown,
    with_robots,
)

SHORT_S = 5.0
"""Retry-After of an outage, seconds."""
SILENT_S = 60.0
"""Time after which a silent server gives up, seconds: longer than any crawler waits."""


def asks(status: HTTPStatus, header: Callable[[], str]) -> Callable[[Visit], Answer]:
    """Return the behaviour of a status with a Retry-After, which a date counts from now."""

    def answer(visit: Visit) -> Answer:
        return says(status, ("Retry-After", header()))(visit)

    return answer


def seconds() -> str:
    return f"{SHORT_S:.0f}"


def date() -> str:
    return http_date(SHORT_S)


def cut(_: Visit) -> Answer:
    return Answer(raw=b"", status="0", cut=True)


def half(visit: Visit) -> Answer:
    """Return half of the content, before the connection is reset."""
    content = shown(visit)
    return Answer(
        status="0",
        raw=content.head(),
        body=content.body[: len(content.body) // 2],
        cut=True,
    )


def silent(_: Visit) -> Answer:
    return Answer(status="0", raw=b"", wait_s=SILENT_S, cut=True)


def login(visit: Visit) -> Answer:
    """Return the way to a form, as for a session that has ended."""
    if visit.path.startswith("/login"):
        return Answer(headers=(HTML,), body=b"<html><body><form>Who are you?</form></body></html>")
    return Answer(status="302 Found", headers=(("Location", f"/login?next={visit.path}"),))


def to_the_front(visit: Visit) -> Answer:
    """Return a permanent redirect of every page to the front, as from a broken rewrite rule."""
    if visit.path == "/":
        return Answer(headers=(HTML,), body=b"<html><body>Welcome</body></html>")
    return Answer(status="301 Moved Permanently", headers=(("Location", "/"),))


def maintenance(_: Visit) -> Answer:
    return Answer(headers=(HTML,), body=b"<html><body>We will be back soon</body></html>")


KINDS: dict[str, Callable[[Visit], Answer]] = {
    "404": says(HTTPStatus.NOT_FOUND),
    "403": says(HTTPStatus.FORBIDDEN),
    "429": says(HTTPStatus.TOO_MANY_REQUESTS),
    "429-seconds": asks(HTTPStatus.TOO_MANY_REQUESTS, seconds),
    "429-date": asks(HTTPStatus.TOO_MANY_REQUESTS, date),
    "503": says(HTTPStatus.SERVICE_UNAVAILABLE),
    "503-date": asks(HTTPStatus.SERVICE_UNAVAILABLE, date),
    "500": says(HTTPStatus.INTERNAL_SERVER_ERROR),
    "cut": cut,
    "half": half,
    "silent": silent,
    "login": login,
    "front": to_the_front,
    "maintenance": maintenance,
}
"""Answers of an outage, by kind."""

OUTAGES = tuple(
    Behaviour(f"outage-{kind}", with_robots(answer), in_outages=True)
    for kind, answer in KINDS.items()
)
