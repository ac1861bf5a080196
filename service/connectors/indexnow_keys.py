"""IndexNow keys that their sites have shown: looked at beside the requests, and remembered."""

import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from hashlib import blake2b

import structlog

from service.connectors.indexnow import Claim, shows_key
from service.connectors.indexnow_queue import Line, Outcome, Waiting
from service.connectors.strangers import Room

N_FETCHERS = 32
"""Maximum key files that are fetched at a time, each in a thread that mostly waits."""
MAX_BELIEVED, MAX_REFUSED = 100_000, 10_000
"""Maximum verdicts that are remembered; those of strangers push out no believed key."""
BELIEVED_FOR, REFUSED_FOR = timedelta(days=1), timedelta(minutes=5)
"""Time for which a verdict holds."""

log = structlog.get_logger()


class KeyChecks:
    """Verdicts by key and place; daemon threads fetch key files from the first question on."""

    def __init__(
        self, now: Callable[[], datetime], look: Callable[[Claim], bool] = shows_key
    ) -> None:
        self.now = now
        self.look = look
        self.bodies = Room()
        self._line = Line()
        self._changed = threading.Condition()
        self._until: dict[bool, dict[bytes, datetime]] = {True: {}, False: {}}
        self._n_fetchers = 0
        self._stopped = False

    def ask(self, new: Waiting) -> bool | None:
        """Return whether the site shows the key; None while that is being looked at.

        After None, `new.then` is called once with the outcome, by another thread. Raises
        `Overloaded` where the line has no room for this submission.
        """
        with self._changed:
            if (verdict := self._verdict(new.claim)) is not None:
                return verdict
            dropped = self._line.add(new)
            self._changed.notify()
            self._start_fetcher()
        _end_wait(dropped, "dropped")
        return None

    def stop(self) -> None:
        """Begin no further check; what waits is forgotten."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def _verdict(self, claim: Claim) -> bool | None:
        name = _digest(claim)
        for verdict, until in self._until.items():
            if name in until and self.now() < until[name]:
                return verdict
        return None

    def _start_fetcher(self) -> None:
        if self._n_fetchers < N_FETCHERS:
            self._n_fetchers += 1
            threading.Thread(target=self._fetch, name="indexnow", daemon=True).start()

    def _fetch(self) -> None:
        while (claim := self._next()) is not None:
            verdict = False
            try:
                verdict = self.look(claim)
            except Exception:
                log.exception("a key file could not be looked at", key_location=claim.location)
            _end_wait(self._settle(claim, verdict), "believed" if verdict else "refused")

    def _next(self) -> Claim | None:
        """Wait for a turn; None once stopped."""
        with self._changed:
            while not self._stopped:
                if (claim := self._line.next()) is not None:
                    return claim
                self._changed.wait()
            return None

    def _settle(self, claim: Claim, verdict: bool) -> list[Waiting]:  # noqa: FBT001
        """Remember a verdict and return what waited for it."""
        name, span = _digest(claim), BELIEVED_FOR if verdict else REFUSED_FOR
        with self._changed:
            for until in self._until.values():
                until.pop(name, None)
            verdicts = self._until[verdict]
            verdicts[name] = self.now() + span
            while len(verdicts) > (MAX_BELIEVED if verdict else MAX_REFUSED):
                verdicts.pop(next(iter(verdicts)))
            self._changed.notify_all()  # this site and this peer have a turn less
            return [] if self._stopped else self._line.done(claim)


def _digest(claim: Claim) -> bytes:
    """Return a short name of a claim, whose own words may have 2 KB."""
    return blake2b(f"{claim.key} {claim.location}".encode(), digest_size=16).digest()


def _end_wait(settled: list[Waiting], outcome: Outcome) -> None:
    for waiting in settled:
        try:
            waiting.then(outcome)
        except Exception:
            log.exception("a submission by IndexNow was lost", host=waiting.site[:100])
