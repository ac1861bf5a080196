"""robots.txt: the delay between crawls that a host asks of a crawler."""

from math import isfinite
from pathlib import Path

from protego import Protego

from service.model.errors import UnreadableFile

MAX_DELAY_S = 86_400.0
"""Maximum delay, seconds."""

MAX_BYTES = 512_000
"""Maximum of the file that is read, bytes; RFC 9309 asks for 500 KiB or more."""


def requested_delay(content: bytes, user_agent: str) -> float | None:
    r"""Give the seconds that Crawl-delay or Request-rate ask for, the longer; None: neither does.

    A rate for some hours of the day holds for all.

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
    """Tell by its name whose robots.txt a file is: HOST/robots.txt or HOST.txt.

    Raises
    ------
    UnreadableFile
        It is called robots.txt and lies nowhere.

    Examples
    --------
    >>> host_of(Path("mirror/example.org/robots.txt")), host_of(Path("example.com.txt"))
    ('example.org', 'example.com')
    """
    host = file.parent.name if file.name == "robots.txt" else file.name.removesuffix(".txt")
    if "." not in host:
        raise UnreadableFile(f"whose robots.txt is {file}? Say it by --host or --url")
    return host
