"""robots.txt: the delay between crawls that a host requests."""

from pathlib import Path

from recrawl_client.robots_rules import Rules
from service.model.errors import UnreadableFile


def requested_delay(content: bytes, user_agent: str) -> float | None:
    r"""Return the longer delay of Crawl-delay and Request-rate, seconds; None without both.

    Examples
    --------
    >>> robots = b"User-agent: *\nCrawl-delay: 5\n\nUser-agent: newsbot\nRequest-rate: 1/10s"
    >>> requested_delay(robots, "AnyBot"), requested_delay(robots, "newsbot")
    (5.0, 10.0)
    """
    return Rules(content, user_agent).delay_s


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
