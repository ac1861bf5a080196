"""Robots.txt that asks for a delay, that forbids, or that fails."""

from collections.abc import Callable
from http import HTTPStatus

from benchmarks.rough.behaviours.answers import DELAY_S, Answer, Behaviour, Visit, plain, says
from benchmarks.rough.behaviours.outages import silent

LATER_S = 25.0
"""Time from which on a robots.txt that failed answers, seconds."""
LINES = b"# nothing for anybody to read here\n" * 30_000
"""A megabyte of remarks."""


def text(content: bytes) -> Callable[[Visit], Answer]:
    return lambda _: Answer(headers=(("Content-Type", "text/plain"),), body=content)


def at_first(answer: Callable[[Visit], Answer]) -> Callable[[Visit], Answer]:
    """Return a robots.txt that fails in the first seconds of the run."""
    return lambda visit: answer(visit) if visit.at < LATER_S else plain(visit)


def redirected(_: Visit) -> Answer:
    """Return a redirect to the same address."""
    return Answer(status="302 Found", headers=(("Location", "/robots.txt"),))


def robots(name: str, answer: Callable[[Visit], Answer], delay_s: float = DELAY_S) -> Behaviour:
    """Return the behaviour of a host whose pages are well and whose robots.txt is not."""

    def both(visit: Visit) -> Answer:
        return answer(visit) if visit.for_robots else plain(visit)

    return Behaviour(f"robots-{name}", both, delay_s=delay_s)


HALF = b"".join(b"Disallow: /p%d\n" % k for k in range(5))

ROBOTS = (
    robots("delay", text(b"User-agent: *\nCrawl-delay: 3\n"), delay_s=3.0),
    robots("rate", text(b"User-agent: *\nRequest-rate: 1/2s\n"), delay_s=2.0),
    robots("long-delay", text(b"User-agent: *\nCrawl-delay: 1000000\n"), delay_s=86_400.0),
    robots("forbids-half", text(b"User-agent: *\n" + HALF)),
    robots("500", at_first(says(HTTPStatus.INTERNAL_SERVER_ERROR))),
    robots("503", at_first(says(HTTPStatus.SERVICE_UNAVAILABLE, ("Retry-After", "5")))),
    robots("429", at_first(says(HTTPStatus.TOO_MANY_REQUESTS))),
    robots("silent", at_first(silent)),
    robots("huge", text(LINES + b"User-agent: *\nDisallow:\n")),
    robots("loop", redirected),
)
