"""Calls of commands to a service: a notice during a wait, and a remedy with each error."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx

from recrawl_client import ClientError, Refused, Unauthorized, Unavailable
from recrawl_client.patience import NAME_AUTHORITY, WRITE_HTTP
from service.model.errors import StoreUnavailable, UnexpectedAnswer

NOTICE_S = 1.0
"""Time without an answer after which a command reports that it waits, seconds."""
CONNECT_S = 1.0
"""Maximum time for a connection to open, seconds, because a host may be away."""
BUSY = frozenset({429, 502, 503, 504, 507})
"""Statuses of a service that is busy, and of a proxy before a service that is away."""
STRANGER = "; is that the service?"
RUNNING = "; is it running?"
"""End of the client's error where nothing listens at the address."""
START = f"{RUNNING} Start it by `recrawl serve`, or name its address by --to or RECRAWL_URL"
COMPLETE = ("?", NAME_AUTHORITY, WRITE_HTTP)
"""Ends of the client's errors that have a remedy."""
BY_COMMAND = ("with POST /pages", "by `recrawl import`, or with POST /pages")
"""A remedy of the service, and what to do from a command line."""
LATER = "; it is busy, or its database is away: try again"
GENERAL = str(StoreUnavailable())
"""Detail of a problem that has no other remedy than `LATER`."""
SHOW_KEY = "; pass one of the service's keys by --api-key or RECRAWL_API_KEY"


class Notice:
    """Show one sentence when a service is `NOTICE_S` late with an answer.

    `Client` repeats a request by itself; the time counts from the first attempt.
    """

    def __init__(
        self, sentence: str, show: Callable[[str], None], interval_s: float = NOTICE_S
    ) -> None:
        self.sentence = sentence
        self.show = show
        self.interval_s = interval_s
        self.timer: threading.Timer | None = None
        self.is_busy = False
        """True where the last answer has a status of `BUSY`."""
        self.detail = ""
        """Detail of the problem in that answer; empty: a proxy's answer has none."""

    @contextmanager
    def watching(self, http: httpx.Client) -> Iterator[None]:
        """Watch the requests of a client during the block."""
        http.event_hooks = {"request": [self._begin], "response": [self._answered]}
        try:
            yield
        finally:
            self._stop()

    def _begin(self, request: httpx.Request) -> None:
        request.extensions["timeout"]["connect"] = CONNECT_S
        self.is_busy = False
        if self.timer is None:
            # a service without news answers at the end of the wait that the request asks for
            wait_s = float(request.url.params.get("wait_s", 0.0))
            self.timer = threading.Timer(self.interval_s + wait_s, self.show, [self.sentence])
            self.timer.daemon = True
            self.timer.start()

    def _answered(self, response: httpx.Response) -> None:
        self.is_busy = response.status_code in BUSY
        self.detail = _detail(response) if self.is_busy else ""
        if not self.is_busy:
            self._stop()

    def _stop(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self.timer = None


def _detail(response: httpx.Response) -> str:
    """Return the detail of the problem in an answer; "" if it has none."""
    if not response.headers.get("Content-Type", "").startswith("application/problem+json"):
        return ""
    response.read()
    try:
        problem = response.json()
    except ValueError:
        return ""
    return str(problem.get("detail") or "") if isinstance(problem, dict) else ""


def explained(error: ClientError, notice: Notice) -> UnexpectedAnswer:
    """Return the error of a call with a remedy."""
    sentence, remedy = str(error).removesuffix(RUNNING).replace(*BY_COMMAND), START
    if isinstance(error, Unauthorized):
        remedy = SHOW_KEY
    elif isinstance(error, Refused):
        remedy = "" if error.code else STRANGER
    elif not isinstance(error, Unavailable) or sentence.endswith(COMPLETE):
        remedy = ""
    elif notice.is_busy:
        remedy = LATER if notice.detail in ("", GENERAL) else f": {notice.detail}"
    return UnexpectedAnswer(f"{sentence.removesuffix('.') if remedy else sentence}{remedy}")
