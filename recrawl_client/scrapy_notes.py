"""Notes of pages, with the names and the JSON of the requests that a spider yielded.

    {"scrapy": {"spider": "news", "callback": "parse_item", "errback": "failed", …}}

No code is stored. A lease returns the note, in this process or another, and the methods of the
spider are found by name. Spiders of one service receive each other's pages, and often have
callbacks of the same names. So each page has the name of its spider, and no other spider calls its
own method for it. A note without the key `scrapy` is of another crawler: it has no effect.
"""

import inspect
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from msgspec import json
from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.http import Response
from scrapy.settings import BaseSettings
from twisted.python.failure import Failure

MOST_BYTES = 1_024
"""Maximum size of a note, bytes of compact JSON, as the service has it."""
CALLS = ("callback", "errback")
"""Functions of a request that are kept by name."""
OF_SCRAPY = frozenset(
    {
        "cache_timestamp",
        "cached_response",
        "dont_obey_robotstxt",
        "dont_redirect",
        "dont_retry",
        "download_latency",
        "download_slot",
        "download_timeout",
        "is_start_request",
        "proxy",
        "retry_times",
    }
)
"""Names in `meta` that Scrapy or the scheduler writes, which spiders copy from responses."""
NOT_MODIFIED = 304
REDIRECTS = (301, 302, 303, 307, 308)
"""Statuses of redirects that Scrapy follows."""
PREFIXES = ("_", "recrawl", "redirect_")
"""Beginnings of further names of that kind."""

MOST_NAMED = 100
"""Maximum number of requests or notes that errors name, each once."""

PLAIN: tuple[type[Any], ...] = (str, int, float, list, dict)
"""Types whose subclasses count as their values."""

log = logging.getLogger(__name__)


def _plain(value: Any) -> Any:
    """Return the plain value of a subclass, such as one of lxml's texts."""
    for kind in PLAIN:
        if isinstance(value, kind):
            return kind(value)
    raise TypeError


JSON = json.Encoder(enc_hook=_plain)


class NotKept(Exception):
    """A request that no note can keep, or a note that the spider does not know."""


class UnnamedFunction(NotKept):
    """A callback that is no method of the spider, which every such request would have."""


class TooLong(NotKept):
    """A request whose note would have too many bytes."""


class NoJson(NotKept):
    """A request with arguments that JSON does not bring back."""


class Faults:
    """The log of requests or notes that are not kept: each is one error, up to `MOST_NAMED`."""

    def __init__(self) -> None:
        self.named: set[str] = set()
        self.hides = False
        """True once the log states that further errors are on the level DEBUG alone."""

    def log(self, error: NotKept, subject: str) -> None:
        """Log the first fault of a subject as an error, and the others on the level DEBUG."""
        is_new = subject not in self.named
        is_shown = is_new and len(self.named) < MOST_NAMED
        log.log(logging.ERROR if is_shown else logging.DEBUG, "%s", error)
        if is_shown:
            self.named.add(subject)
        elif is_new and not self.hides:
            self.hides = True
            log.error(
                "%d errors of this kind are in the log. The statistics count further ones, and the "
                "log names them on the level DEBUG alone: %s",
                MOST_NAMED,
                error,
            )


class RequestNote(NamedTuple):
    """The note of a request."""

    json: bytes
    is_plain: bool
    """True if only the name of the spider is kept."""


@dataclass(frozen=True, slots=True)
class ReportingErrback:
    """The errback of a leased page, which reports the failure before the spider sees it."""

    report: Callable[[Failure], None]
    unhandled: Callable[[Failure], Failure | None]
    """Function for a failure that the spider leaves; it returns what Scrapy is to log."""
    own: Callable[[Failure], Any] | None
    """Errback of the spider; None: none has the failure. Neither a redirect nor a 304 is one."""

    def __call__(self, failure: Failure) -> Any:
        """Report a failure, and return what the spider makes of it."""
        self.report(failure)
        made: Any = failure
        if self.own is not None and not _leads_on(getattr(failure.value, "response", None)):
            try:
                made = self.own(failure)
            except Exception as error:
                if error is not failure.value:  # `failure.trap` raises the failure again
                    raise
        return self.unhandled(failure) if made is failure else made


def _leads_on(response: Any) -> bool:
    """Return whether an answer is a 304, or a redirect that Scrapy itself would follow."""
    if not isinstance(response, Response):
        return False
    return response.status == NOT_MODIFIED or (
        response.status in REDIRECTS and "Location" in response.headers
    )


class Notes:
    """Notes of the requests of a spider, and the requests of notes."""

    def __init__(self, crawler: Crawler, settings: BaseSettings) -> None:
        self.crawler = crawler
        self.named: str | None = settings.get("RECRAWL_SPIDER")
        self.with_depth = settings.getint("DEPTH_LIMIT") > 0
        self.left_out: set[Any] = set()
        """Names in `meta` that were left out with a warning."""

    @property
    def spider(self) -> str:
        """The name with which this spider's pages are kept."""
        return self.named or str(getattr(self.crawler.spider, "name", ""))

    def of(self, request: Request) -> RequestNote:
        """Return the note of a request; raise `NotKept`."""
        kept: dict[str, Any] = {}
        for part in CALLS:
            function = getattr(request, part)
            if isinstance(function, ReportingErrback):
                function = function.own
            if function is not None:
                kept[part] = self._name(request, part, function)
        if request.cb_kwargs:
            kept["cb_kwargs"] = _arguments(request)
        if meta := self._meta(request):
            kept["meta"] = meta
        note = self._note(kept)
        if len(note) > MOST_BYTES and meta.pop("link_text", None):
            note = self._note(kept)  # a rule of a CrawlSpider does not need the text of its link
        if len(note) > MOST_BYTES:
            raise TooLong(
                f"the page of {request} is not registered: the names of its callbacks, its "
                f"cb_kwargs and its meta have {len(note):,} bytes of JSON, and Recrawl keeps at "
                f"most {MOST_BYTES:,}. Pass a key instead of the values, or read the values from "
                "the page"
            )
        return RequestNote(note, is_plain=not any(kept.values()))

    def _note(self, kept: dict[str, Any]) -> bytes:
        kept = {part: value for part, value in kept.items() if value}
        return JSON.encode({"scrapy": {"spider": self.spider, **kept}})

    def request(self, note: Any) -> dict[str, Any]:
        """Return the arguments of the request that a note keeps; raise `NotKept`."""
        kept = note.get("scrapy") if isinstance(note, dict) else None
        if not isinstance(kept, dict):
            return {"meta": {}}
        if (other := kept.get("spider", self.spider)) != self.spider:
            raise NotKept(
                f"this spider, {self.spider!r}, has leased pages of the spider {other!r}. They are "
                "not crawled, and their leases are returned. Give each spider hosts of its own by "
                f"RECRAWL_HOSTS, or a service of its own. If {other!r} is another name of this "
                f"spider, set RECRAWL_SPIDER to {other!r}"
            )
        request: dict[str, Any] = {"meta": _mapping(kept, "meta")}
        if cb_kwargs := _mapping(kept, "cb_kwargs"):
            request["cb_kwargs"] = cb_kwargs
        for part in CALLS:
            if (name := kept.get(part)) is not None:
                request[part] = function = getattr(self.crawler.spider, str(name), None)
                if not callable(function):
                    raise NotKept(
                        f"the spider has no method {name!r}, which is the {part} of pages "
                        "registered earlier. These pages are not crawled, and their leases are "
                        "returned. Restore the method, such as by its old name for the new one"
                    )
        return request

    def _name(self, request: Request, part: str, function: Callable[..., Any]) -> str:
        """Return the name of a spider's function; raise `UnnamedFunction`."""
        spider, name = self.crawler.spider, getattr(function, "__name__", "")
        if getattr(spider, name, None) == function:
            return name
        # names with two underscores, which classes mangle, and methods with two names
        for other, method in inspect.getmembers(spider, inspect.ismethod):
            if method == function:
                return other
        raise UnnamedFunction(
            f"the page of {request} is not registered: its {part} {name or function!r} is no "
            "method of the spider, and Recrawl keeps callbacks by the names of methods. Make it a "
            "method and pass values by cb_kwargs, or crawl the request at once, with "
            "meta={'recrawl_now': True}"
        )

    def _meta(self, request: Request) -> dict[str, Any]:
        """Return the values in `meta` that the spider set, without those that are no JSON."""
        meta = {}
        for name, value in request.meta.items():
            if name in OF_SCRAPY or str(name).startswith(PREFIXES):
                continue
            if name == "depth" and not self.with_depth:
                continue
            if isinstance(name, str) and survives(value):
                meta[name] = value
            elif name not in self.left_out:
                self.left_out.add(name)
                log.warning(
                    "meta[%r] of %s is lost until the page is due, because it is no JSON: %s",
                    name,
                    request,
                    type(value).__name__,
                )
        return meta


def survives(value: Any) -> bool:
    """Return whether JSON brings a value back as it is.

    >>> survives({"page": 2, "of": ["a", None]}), survives((1, 2)), survives({1: "a"})
    (True, False, False)
    """
    try:
        return bool(json.decode(JSON.encode(value)) == value)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return False


def _arguments(request: Request) -> dict[str, Any]:
    for name, value in request.cb_kwargs.items():
        if not survives(value):
            raise NoJson(
                f"the page of {request} is not registered: JSON does not bring back its "
                f"cb_kwargs[{name!r}] as it is, {value!r:.100}. Pass texts, numbers, lists and "
                "dicts with texts as keys; a list instead of a tuple, isoformat() of a date"
            )
    return dict(request.cb_kwargs)


def _mapping(kept: dict[str, Any], part: str) -> dict[str, Any]:
    value = kept.get(part)
    return dict(value) if isinstance(value, dict) else {}
