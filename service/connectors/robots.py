"""robots.txt: the delay between crawls that a host requests."""

from math import isfinite
from pathlib import Path

from protego import Protego

from service.model.errors import UnreadableFile

MAX_DELAY_S = 86_400.0
"""Maximum delay, seconds."""

MAX_BYTES = 512_000
"""Maximum length of the file that is read, bytes; RFC 9309 requires 500 KiB or more."""


def requested_delay(content: bytes, user_agent: str) -> float | None:
    r"""Return the longer delay of Crawl-delay and Request-rate, seconds; None without both.

    A rate for some hours of the day holds for all hours.

    Examples
    --------
    >>> robots = b"User-agent: *\nCrawl-delay: 5\n\nUser-agent: newsbot\nRequest-rate: 1/10s"
    >>> requested_delay(robots, "AnyBot"), requested_delay(robots, "newsbot")
    (5.0, 10.0)
    """
    rules = Protego.parse(content[:MAX_BYTES].decode("utf-8-sig", "replace"))
    delay, rate = rules.crawl_delay(user_agent), rules.request_rate(user_agent)
    delays = [float(delay)] if delay is not None else []
    if rate is not None and rate.requests > 0:
        delays.append(rate.seconds / rate.requests)
    sound = [min(seconds, MAX_DELAY_S) for seconds in delays if isfinite(seconds) and seconds >= 0]
    return max(sound, default=None)


def host_of(file: Path) -> str:
    """Return the host of a robots.txt from the name of its file: HOST/robots.txt or HOST.txt.

    Raises
    ------
    UnreadableFile
        The file is called robots.txt, and its folder has no name.

    Examples
    --------
    >>> host_of(Path("mirror/example.org/robots.txt")), host_of(Path("example.com.txt"))
    ('example.org', 'example.com')
    """
    host = file.parent.name if file.name == "robots.txt" else file.name.removesuffix(".txt")
    if "." not in host:
        raise UnreadableFile(f"{file} does not name its host; name the host by --host or --url")
    return host
