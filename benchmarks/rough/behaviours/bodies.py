"""Bodies that are huge, endless, slow, broken, another one each time, or always the same."""

import zlib
from dataclasses import replace

from benchmarks.rough.behaviours.answers import (
    CLOSES,
    HTML,
    Answer,
    Behaviour,
    Visit,
    pages_only,
    shown,
    text,
    with_robots,
)

MEGABYTE = b"0123456789abcde\n" * 65_536
HUGE = 20
"""Size of a huge body, MB."""
ENDLESS = 1 << 30
"""Number of repetitions that no reader waits for."""


def slow(visit: Visit) -> Answer:
    return replace(shown(visit), wait_s=2.0)


def drip(visit: Visit) -> Answer:
    """Return the content within three seconds, in six pieces."""
    content = shown(visit)
    return replace(content, piece=1 + len(content.body) // 6, pause_s=0.5)


def huge(visit: Visit) -> Answer:
    """Return the content in many copies."""
    return Answer(headers=(HTML,), body=text(visit).ljust(len(MEGABYTE), b" "), times=HUGE)


def endless(_: Visit) -> Answer:
    return Answer(headers=(HTML,), body=MEGABYTE, times=ENDLESS, length=CLOSES)


def endless_drip(_: Visit) -> Answer:
    """Return a byte in half a second for ever: no wait for the next byte is long."""
    return Answer(
        headers=(HTML,), body=b"a", times=ENDLESS, length=CLOSES, pause_s=0.5, unreadable=True
    )


def broken_gzip(visit: Visit) -> Answer:
    packed = zlib.compress(text(visit), wbits=31)
    headers = (HTML, ("Content-Encoding", "gzip"))
    body = packed[:20] + b"\x00" * 30 + packed[50:]
    return Answer(headers=headers, body=body, unreadable=True)


def bomb(_: Visit) -> Answer:
    """Return a hundred megabytes in a hundred kilobytes."""
    return Answer(headers=(HTML, ("Content-Encoding", "gzip")), body=BOMB)


def other_each_time(visit: Visit) -> Answer:
    """Return the content with the number of the request in it."""
    content = shown(visit)
    return replace(content, body=content.body + f"<!-- {visit.n} -->".encode())


def soft_404(_: Visit) -> Answer:
    """Return one and the same document for all pages, with the status of content."""
    return Answer(headers=(HTML,), body=b"<html><body>Sorry, nothing is here</body></html>")


def _bomb() -> bytes:
    packer = zlib.compressobj(wbits=31)
    parts = [packer.compress(MEGABYTE) for _ in range(100)]
    return b"".join([*parts, packer.flush()])


BOMB = _bomb()

BODIES = (
    *(
        Behaviour(f"body-{name}", pages_only(answer))
        for name, answer in {
            "slow": slow,
            "drip": drip,
            "huge": huge,
            "endless": endless,
            "endless-drip": endless_drip,
            "broken-gzip": broken_gzip,
            "bomb": bomb,
            "other-each-time": other_each_time,
        }.items()
    ),
    Behaviour("body-soft-404", with_robots(soft_404)),
)
