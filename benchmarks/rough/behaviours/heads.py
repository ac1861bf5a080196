"""Statuses that no list has, validators that lie, dates that are wrong, headers that break."""

from dataclasses import replace

from benchmarks.rough.behaviours.answers import (
    CLOSES,
    Answer,
    Behaviour,
    Visit,
    http_date,
    pages_only,
    plain,
    shown,
    validated,
)

ODD_STATUSES = ("000 Nothing", "099 Low", "199 Odd", "299 Odd", "600 High", "999 Denied", "2OO OK")
WAITS = ("-5", "soon", "Thu, 01 Jan 1970 00:00:00 GMT", "1.5", "")
"""Values of Retry-After that mean nothing, in turn."""
LONG_WAIT = "1000000000000"
"""A Retry-After of 30,000 years, seconds."""
LATE = 12
"""Number of the request that is told to wait so long."""
DAY_S = 86_400.0


def odd_status(visit: Visit) -> Answer:
    status = ODD_STATUSES[visit.n % len(ODD_STATUSES)]
    return replace(shown(visit), status=status, length=CLOSES)


def constant_etag(visit: Visit) -> Answer:
    """Return an ETag that stays the same, and so a 304 that is wrong."""
    return validated(visit, '"constant"')


def weak_etag(visit: Visit) -> Answer:
    """Return a weak ETag that is true, and one that is another each time, by page."""
    odd = visit.place[-1] in "13579"
    return validated(visit, f'W/"{visit.n if odd else visit.version}"')


def broken_etag(visit: Visit) -> Answer:
    etags = ("\xe9\xff", "no quotes", '"' + "x" * 5_000 + '"', '""', "\x01\x02")
    return shown(visit, ("ETag", etags[visit.n % len(etags)]))


def wrong_dates(visit: Visit) -> Answer:
    """Return dates of the future, of 1601 and of no calendar."""
    dates = (
        http_date(400 * DAY_S),
        "Mon, 01 Jan 1601 00:00:00 GMT",
        "Fri, 31 Feb 2026 25:61:61 GMT",
        "yesterday",
        http_date(0.0),
    )
    wrong = dates[visit.n % len(dates)]
    return shown(visit, ("Date", wrong), ("Last-Modified", wrong), ("Expires", "0"))


def wrong_waits(visit: Visit) -> Answer:
    return shown(visit, ("Retry-After", WAITS[visit.n % len(WAITS)]))


def long_wait(visit: Visit) -> Answer:
    """Return the content, but for one 429 that asks for thousands of years."""
    if visit.n != LATE:
        return plain(visit)
    return Answer(status="429 Too Many Requests", headers=(("Retry-After", LONG_WAIT),))


def many_headers(visit: Visit) -> Answer:
    """Return 40 KB of headers before the content."""
    return shown(visit, *((f"X-Header-{k}", "x" * 60) for k in range(500)))


def broken_headers(visit: Visit) -> Answer:
    """Return lines that are no headers, in turn; no crawler here reads such an answer."""
    content = shown(visit)
    lines = (b"Bad Name: a\r\n", b"X Null: a\x00b\r\n", b": no name\r\n", b"\xff\xfe: a\r\n")
    head = content.head().removesuffix(b"\r\n") + lines[visit.n % len(lines)] + b"\r\n"
    return replace(content, raw=head, status="0")


def no_http(visit: Visit) -> Answer:
    """Return what is no HTTP/1.1, in turn."""
    firsts = (b"hello\n", b"ICY 200 OK\r\n\r\n", b"HTTP/1.1 200\n\n", b"\x16\x03\x01\x02\x00", b"")
    return Answer(status="0", raw=firsts[visit.n % len(firsts)])


HEADS = tuple(
    Behaviour(f"head-{name}", pages_only(answer))
    for name, answer in {
        "status": odd_status,
        "constant-etag": constant_etag,
        "weak-etag": weak_etag,
        "broken-etag": broken_etag,
        "wrong-dates": wrong_dates,
        "wrong-waits": wrong_waits,
        "long-wait": long_wait,
        "many": many_headers,
        "broken": broken_headers,
        "no-http": no_http,
    }.items()
)
