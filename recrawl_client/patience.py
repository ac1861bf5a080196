"""The retries of a call while the service is busy or out of reach.

The module has no input or output: `Client` and `AsyncClient` send and wait by its decisions.
"""

import logging
import random
import ssl
import time
from collections.abc import Callable

import httpx

from recrawl_client.errors import Unavailable
from recrawl_client.headers import retry_after

BUSY = frozenset({429, *range(500, 600)}) - {501}
"""Statuses of a service that is busy or in trouble, and of a proxy before one that is away. A
repeated request may well succeed, but for one that the service does not offer (501)."""
BROKEN = (httpx.NetworkError, httpx.TimeoutException, httpx.RemoteProtocolError)
"""Temporary errors of connections."""
UNANSWERED = (httpx.RequestError, httpx.InvalidURL)
"""Errors of a request without an answer."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 10.0
"""First and longest pause before a request is sent again, seconds."""
PLAIN_HTTP = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE"})
"""Reasons of OpenSSL where a server answers a TLS handshake by plain HTTP."""
NAME_AUTHORITY = "; name the certificate's authority by SSL_CERT_FILE, or correct the address"
WRITE_HTTP = "; the service speaks no TLS: write http:// in its address"
NOTICE_S = 1.0
"""Wait after which a call sends its notice, seconds."""

log = logging.getLogger(__name__)


def log_wait(notice: str) -> None:
    """Log the notice of a waiting call; an unconfigured `logging` prints the notice on stderr."""
    log.warning("%s", notice)


class Patience:
    """The retries of one call.

    Parameters
    ----------
    what
        The call: method and URL.
    limit_s
        Maximum wait for an answer, seconds.
    on_wait
        Function that receives one sentence when the wait of the call reaches `NOTICE_S`.
    """

    def __init__(self, what: str, limit_s: float, on_wait: Callable[[str], object]) -> None:
        self.what = what
        self.on_wait = on_wait
        self.start = time.monotonic()
        self.deadline = self.start + limit_s
        self.attempt = 0
        self.noticed = False
        self.problem = ""
        self.cause: Exception | None = None

    def after_error(self, error: Exception) -> float:
        """Return the seconds until the next attempt, after an attempt without an answer.

        Raises
        ------
        Unavailable
            Too little time is left for the pause, TLS fails, or the error is no outage.
        """
        self.cause, self.problem = error, str(error) or type(error).__name__
        remedy = tls_remedy(error)
        if remedy:
            self.problem += remedy
        if remedy or not isinstance(error, BROKEN):
            raise self.over()
        return self._pause_s(f"{self.problem}; is it running?")

    def after_answer(self, response: httpx.Response) -> float:
        """Return the seconds until the next attempt, after an answer that is busy or a proxy's.

        Raises
        ------
        Unavailable
            Too little time is left for the pause.
        """
        self.cause = None
        return self._pause_s(f"it answered {described(response)}", retry_after(response))

    def _pause_s(self, problem: str, asked_s: float = 0.0) -> float:
        self.problem = problem
        pause_s = max(asked_s, backoff(self.attempt))
        self.attempt += 1
        now = time.monotonic()
        if now + pause_s > self.deadline:
            raise self.over()
        if now + pause_s > self.start + NOTICE_S and not self.noticed:
            self.noticed = True
            self.on_wait(f"{self} (waiting for up to {self.deadline - now:.0f} s more)")
        return pause_s

    def over(self) -> Unavailable:
        """Return the error of a call whose patience has ended."""
        error = Unavailable(str(self))
        error.__cause__ = self.cause
        return error

    def __str__(self) -> str:
        return f"{self.what}: {self.problem}"


def answered(response: httpx.Response) -> bool:
    """Return whether an answer comes from the service, and the service is not busy."""
    return response.status_code not in BUSY and not foreign(response)


def foreign(response: httpx.Response) -> bool:
    """Return whether a success comes from another server, such as the login page of a proxy."""
    return response.is_success and bool(response.content) and _media(response) != "application/json"


def described(response: httpx.Response) -> str:
    """Return the status of an answer, with the media type of another server's answer."""
    what = f"{response.status_code}"
    return f"{what} with {_media(response) or 'no JSON'}" if foreign(response) else what


def _media(response: httpx.Response) -> str:
    media: str = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    return media


def tls_remedy(error: BaseException | None) -> str:
    """Return the remedy of a failed TLS handshake, which a further attempt does not mend; or ""."""
    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__ or error.__context__
    if isinstance(error, ssl.SSLCertVerificationError):
        return NAME_AUTHORITY
    if error is not None and error.reason in PLAIN_HTTP:
        return WRITE_HTTP
    return ""


def backoff(attempt: int) -> float:
    """Return a random pause that doubles with each attempt, at most 10 s."""
    longest = min(FIRST_PAUSE_S * 2.0 ** min(attempt, 20), LONGEST_PAUSE_S)
    return longest * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, hides nothing
