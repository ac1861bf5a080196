"""Watch sitemaps: fetch them politely, one at a time, and pass them on to a running service.

An unchanged document is not sent again. Its validators (ETag, Last-Modified) are stored in a
small file, once the service has accepted the document. Children of an index are fetched after it.
"""

import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

import httpx

from recrawl_client import Client, Refused, SitemapRead, Unavailable, retry_after
from service.connectors.guarded import (
    USER_AGENT,
    AnswerTooLarge,
    FetchLimits,
    Outgoing,
    guarded_client,
)
from service.model.errors import SitemapNotFetched, UnreadableFile

NOT_MODIFIED, OK = 304, 200
BUSY = (429, 503)
UNWELCOME = (401, 404, 405)
"""Statuses of a service that refuses this client, and of a server that is no Recrawl."""
TOO_LARGE = 413
"""Status of the service, or of a proxy before it, for one document."""
CODINGS = ("gzip", "x-gzip", "deflate", "br", "zstd", "compress")
"""Content encodings; any other value of the header, such as utf-8, is ignored."""
MAX_DEPTH = 3
"""Maximum depth of indexes within indexes."""
DEFAULT_WAIT_S = 600.0
"""Pause for a busy site without Retry-After, seconds."""
LONGEST_S = 120.0
"""Maximum time for a document, seconds, so that one site does not delay the others."""
MAX_REDIRECTS = 10


class SitemapStep(NamedTuple):
    """Outcome for one sitemap."""

    url: str
    outcome: Literal["taken", "unchanged", "failed"]
    answer: SitemapRead | None = None
    """Answer of the service that accepted the sitemap."""
    reason: str = ""
    """Reason of the failure."""


class Fetched(NamedTuple):
    """Answer of a site."""

    url: str
    """Address after all redirects."""
    headers: httpx.Headers
    content: bytes | None
    """Document; None where it has not changed."""


class State:
    """Validators and children of each sitemap at the last fetch; for one receiver."""

    def __init__(self, path: Path, receiver: str) -> None:
        self.path = path
        self.receiver = receiver
        self.sitemaps: dict[str, dict[str, Any]] = {}
        if not path.is_file():
            return
        try:
            state = json.loads(path.read_text())
            sitemaps = state["sitemaps"] if state["receiver"] == receiver else {}
            self.sitemaps = {url: dict(sitemap) for url, sitemap in sitemaps.items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UnreadableFile(f"{path} is no state of sitemaps; remove or rename it") from error

    def remember(self, url: str, children: list[str], **validators: Any) -> None:
        """Replace a sitemap's entry in one step; in a read-only folder only in memory."""
        self.sitemaps[url] = {"children": children, **validators}
        new = self.path.with_name(self.path.name + ".new")
        with suppress(OSError):
            new.write_text(json.dumps({"receiver": self.receiver, "sitemaps": self.sitemaps}))
            new.replace(self.path)


@dataclass(frozen=True, slots=True)
class Manners:
    """Limits of requests to sites."""

    delay_s: float = 1.0
    """Time between two fetches from any sites, seconds."""
    max_bytes: int = 52_428_800
    """Maximum size of a document as it is sent, bytes; the default is the protocol's limit."""
    cross_host: bool = False
    www: bool = False
    """True where entries of the host with and without `www.` are taken."""
    private: bool = False
    """True where addresses that are not public are allowed."""
    user_agent: str = USER_AGENT
    proxy_guards: bool = False
    """True where the proxies of the environment refuse addresses of the operator's network."""


class Watcher:
    """A loop that fetches sitemaps and sends them to the service."""

    def __init__(
        self,
        client: Client,
        state: State,
        manners: Manners,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.client = client
        self.state = state
        self.manners = manners
        self.sleep = sleep
        self.clock = clock
        self._not_before: dict[str, float] = {}
        self._next_fetch = clock()

    def rounds(
        self, urls: list[str], interval_s: float, n: int | None = None
    ) -> Iterator[SitemapStep]:
        """Yield the steps of `n` rounds, or of endless ones.

        The interval runs from start to start. Without `n`, a service that is away ends only the
        round; the next round fetches the rest.
        """
        done = 0
        while True:
            started = self.clock()
            try:
                yield from self.look(urls)
            except Unavailable as error:
                if n is not None or not done:
                    raise
                yield SitemapStep(self.client.base_url, "failed", reason=str(error))
            done += 1
            if done == n:
                return
            self.sleep(max(started + interval_s - self.clock(), 0.0))

    def look(self, urls: Iterable[str]) -> Iterator[SitemapStep]:
        """Yield a step for each sitemap, and for the children of indexes.

        Raises
        ------
        Unavailable, Refused
            The service cannot be reached, or refuses this client.
        """
        waiting = deque((url, 1) for url in dict.fromkeys(urls))
        queued = {url for url, _ in waiting}
        bounds = FetchLimits(LONGEST_S, self.manners.max_bytes, MAX_REDIRECTS)
        with guarded_client(
            bounds,
            private=self.manners.private,
            headers={"Accept-Encoding": "gzip"},
            outgoing=Outgoing(self.manners.user_agent, self.manners.proxy_guards),
            event_hooks={"request": [self._wait]},
        ) as client:
            while waiting:
                url, depth = waiting.popleft()
                yield self._pass_on(client, url)
                children = self.state.sitemaps.get(url, {}).get("children", ())
                for child in children if depth < MAX_DEPTH else ():
                    if child not in queued:
                        queued.add(child)
                        waiting.append((child, depth + 1))

    def _pass_on(self, client: httpx.Client, url: str) -> SitemapStep:
        try:
            fetched = self._fetch(client, url)
            if fetched.content is None:
                return SitemapStep(url, "unchanged")
            encoding = fetched.headers.get("content-encoding", "").strip().lower()
            answer = self.client.sitemap(
                fetched.url,
                fetched.content,
                encoding=encoding if encoding in CODINGS else "identity",
                cross_host=self.manners.cross_host,
                www=self.manners.www,
            )
        except SitemapNotFetched as error:
            return SitemapStep(url, "failed", reason=str(error))
        except Refused as error:
            if error.status in UNWELCOME or not (error.code or error.status == TOO_LARGE):
                raise
            return SitemapStep(url, "failed", reason=f"{error.status} {error.problem.detail}")
        except Unavailable as error:
            if not isinstance(error.__cause__, httpx.ReadTimeout):
                raise
            reason = "the service took too long to read it; it may have read it all the same"
            return SitemapStep(url, "failed", reason=reason)
        validators = self._validators(fetched.headers) if answer.complete else {}
        self.state.remember(url, [child.loc for child in answer.children], **validators)
        return SitemapStep(url, "taken", answer)

    def _validators(self, headers: httpx.Headers) -> dict[str, Any]:
        """Return the validators of a document, and the options under which it was read."""
        words = {name: headers.get(name, "") for name in ("etag", "last-modified")}
        validators = {name: word for name, word in words.items() if word and word.isascii()}
        return {**validators, **self._scope()}

    def _scope(self) -> dict[str, bool]:
        """Return the options on other hosts that are set."""
        wide = {"cross_host": self.manners.cross_host, "www": self.manners.www}
        return {name: True for name, is_set in wide.items() if is_set}

    def _fetch(self, client: httpx.Client, url: str) -> Fetched:
        """Return a document as it is sent, or no content where it has not changed."""
        try:
            urlsplit(url)
        except ValueError as error:
            raise SitemapNotFetched(f"it is no address: {error}") from error
        conditions = self._conditions(url)
        try:
            with client.stream("GET", url, headers=conditions) as response:
                if response.status_code == NOT_MODIFIED and conditions:
                    return Fetched(url, response.headers, None)
                if response.status_code in BUSY:
                    at_once = response.headers.get("retry-after", "").strip() == "0"
                    wait = retry_after(response) or (0.0 if at_once else DEFAULT_WAIT_S)
                    self._not_before[_host(response.request)] = self.clock() + wait
                if response.status_code != OK:
                    raise SitemapNotFetched(f"the site answered {response.status_code}")
                content = b"".join(response.iter_raw())
                return Fetched(str(response.url), response.headers, content)
        except AnswerTooLarge as error:
            raise SitemapNotFetched(f"{error}; raise --max-bytes") from error
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise SitemapNotFetched(f"the site cannot be reached: {error}") from error
        finally:
            self._next_fetch = self.clock() + self.manners.delay_s

    def _wait(self, request: httpx.Request) -> None:
        """Wait for the delay before each request, also before those of redirects."""
        if (wait := self._not_before.get(_host(request), 0.0) - self.clock()) > 0:
            raise SitemapNotFetched(f"the site asked to be left alone for another {wait:.0f} s")
        self.sleep(max(self._next_fetch - self.clock(), 0.0))
        self._next_fetch = self.clock() + self.manners.delay_s

    def _conditions(self, url: str) -> dict[str, str]:
        entry = self.state.sitemaps.get(url, {})
        if {name: True for name in ("cross_host", "www") if entry.get(name)} != self._scope():
            return {}  # the entries that were left out then are read now
        named = (("etag", "If-None-Match"), ("last-modified", "If-Modified-Since"))
        return {condition: entry[name] for name, condition in named if name in entry}


def _host(request: httpx.Request) -> str:
    return request.url.netloc.decode()
