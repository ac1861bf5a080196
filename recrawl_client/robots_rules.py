"""The rules of a robots.txt for one crawler: allowed URLs and the delay (RFC 9309)."""

import codecs
import re
from math import isfinite

from protego import Protego

LONGEST_DELAY_S = 86_400.0
"""Longest delay in force, seconds; a longer one counts as a day."""
MAX_BYTES = 512_000
"""Length of the file that is read, bytes; RFC 9309 requires 500 KiB or more."""
ANY = "*"
"""Token of all crawlers."""
NOBODY = "\x00"
"""Token of a group for other crawlers; no crawler has it."""
USER_AGENT = re.compile(r"\s*user[- ]?agent\s*[:\s]\s*(.*)", re.IGNORECASE)
"""Line of a robots.txt that names a crawler."""
BROWSER = re.compile(r"mozilla/\S+\s*\(compatible;\s*(.*)", re.IGNORECASE)
"""Header of a crawler that begins like a browser's."""


class Rules:
    r"""The rules for one crawler; an empty file allows all.

    `user_agent` is the crawler's header or its product token.

    Examples
    --------
    >>> rules = Rules(b"User-agent: *\nDisallow: /no\nCrawl-delay: 5\n", "AnyBot/1.0")
    >>> rules.allowed("https://example.com/no"), rules.allowed("https://example.com/yes")
    (False, True)
    >>> rules.delay_s
    5.0
    """

    def __init__(self, content: bytes = b"", user_agent: str = ANY) -> None:
        self.token = product_token(user_agent)
        lines = own_lines(readable(content), self.token)
        self.size = sum(map(len, lines))
        """Length of the rules, characters."""
        self.parsed = Protego.parse("\n".join(lines))
        self.sitemaps = list(dict.fromkeys(self.parsed.sitemaps))
        """Addresses of the site's sitemaps, each once, as the file names them."""
        self.delay_s = self._delay_s()
        """Longer delay of Crawl-delay and Request-rate, seconds; None without both."""

    def allowed(self, url: str) -> bool:
        """Return whether the rules allow a request of the URL."""
        return bool(self.parsed.can_fetch(url, self.token))

    def _delay_s(self) -> float | None:
        """Return the delay; a rate for some hours of the day holds for all hours."""
        delay, rate = self.parsed.crawl_delay(self.token), self.parsed.request_rate(self.token)
        delays = [float(delay)] if delay is not None else []
        if rate is not None and rate.requests > 0:
            delays.append(min(rate.seconds, LONGEST_DELAY_S * rate.requests) / rate.requests)
        sound = [min(s, LONGEST_DELAY_S) for s in delays if isfinite(s) and s >= 0]
        return max(sound, default=None)


def product_token(user_agent: str) -> str:
    """Return the product token of a User-Agent, in lower case; `*` where there is none.

    >>> product_token("NewsBot/2.1 (+https://example.com/bot)")
    'newsbot'
    >>> product_token("Mozilla/5.0 (compatible; NewsBot/2.1; +https://example.com/bot)")
    'newsbot'
    """
    compatible = BROWSER.match(user_agent.strip())
    name = compatible[1] if compatible else user_agent.strip()
    token = re.split(r"[/\s;,(]", name, maxsplit=1)[0].lower()
    return token.rstrip("*") or ANY


def own_lines(text: str, token: str) -> list[str]:
    """Return the lines of a robots.txt, with each group named for this crawler, all, or nobody.

    Parsers compare names by parts, so that `news` would be `news-bot` too. RFC 9309 compares whole
    tokens.
    """
    lines = []
    for line in text.splitlines():
        line = line.partition("#")[0].strip()  # noqa: PLW2901 - the line without its comment
        if agent := USER_AGENT.match(line):
            named = product_token(agent[1]) if agent[1].strip() else ""
            line = f"User-agent: {named if named in (token, ANY) else NOBODY}"  # noqa: PLW2901
        if line:
            lines.append(line)
    return lines


def readable(content: bytes) -> str:
    """Return the text of a robots.txt, without a last line that the limit has cut.

    The text is UTF-8, or UTF-16 with its mark; else it counts as Latin-1.
    """
    cut = content[:MAX_BYTES]
    for mark, encoding in ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be")):
        if cut.startswith(mark):
            text = cut[len(mark) :].decode(encoding, "replace")
            break
    else:
        text = _eight_bits(cut)
    if len(content) > MAX_BYTES:
        ends = max(text.rfind("\n"), text.rfind("\r"))
        text = text[: ends + 1]
    return text.replace("\x00", "").lstrip("\ufeff")


def _eight_bits(content: bytes) -> str:
    try:
        # a limit may cut a character, so incomplete bytes at the end are no fault
        return codecs.getincrementaldecoder("utf-8")().decode(content)
    except UnicodeDecodeError:
        return content.removeprefix(codecs.BOM_UTF8).decode("latin-1")
