"""Keys that sites present by IndexNow: the order of their checks, and the verdicts.

A peer is the address of a client. Bounds hold in total, for each peer and for each site. A new
submission beyond a bound replaces one of the holder with the largest weight. The submission is
refused where its own holder has as much. Turns go round over the peers, and within each peer over
its sites. This avoids that one busy peer or site delays the others.
"""

import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Literal, NamedTuple

import structlog

from service.connectors.guarded import AddressNotPublic
from service.connectors.indexnow import KeyClaim, KeyFileAway, shows_key
from service.model.errors import Overloaded, TooManyRequests

MAX_BYTES = 1_000_000
"""Maximum inflated size of a body without an API key, bytes."""
MAX_HELD, MAX_HELD_OF_PEER = 16_000_000, 2_000_000
"""Maximum size of bodies without an API key in memory, in total and for one peer, bytes."""


class Room:
    """Account of the bytes of bodies in memory; only for the event loop."""

    def __init__(self, most: int = MAX_HELD, most_of_peer: int = MAX_HELD_OF_PEER) -> None:
        self.most = most
        self.most_of_peer = most_of_peer
        self._held: Counter[str] = Counter()

    @contextmanager
    def held(self, peer: str) -> Iterator[Callable[[int], None]]:
        """Count a peer's bytes until the block ends; `TooManyRequests` beyond the limit."""
        n_bytes = 0

        def hold(n_more: int) -> None:
            nonlocal n_bytes
            of_peer, of_all = self._held[peer] + n_more, self._held.total() + n_more
            if of_peer > self.most_of_peer or of_all > self.most:
                raise TooManyRequests("too many bodies are being read; try again later")
            self._held[peer] += n_more
            n_bytes += n_more

        try:
            yield hold
        finally:
            self._held[peer] -= n_bytes
            self._held += Counter()  # removes peers without bytes


LEAST_WEIGHT = 32_768
"""Minimum weight of a submission, bytes; because of it, bounds in bytes limit the number too."""
ALL_WEIGHT = 16_777_216
"""Maximum weight of all waiting submissions, bytes: 512 submissions of few URLs."""
SHARE_WEIGHT = 2_097_152
"""Maximum weight for one peer, and for one site, bytes: 64 submissions of few URLs."""
MAX_PEER_TURNS = 16
"""Maximum keys of one peer that are checked at a time, out of `N_FETCHERS`."""
MAX_SITE_TURNS = 2
"""Maximum keys of one site that are checked at a time."""

RETRIES_S = (30.0, 120.0, 600.0)
"""Waits before the second, third and last look at a key file whose site is away, seconds; a longer
Retry-After counts up to the last of them."""

Outcome = Literal["believed", "refused", "dropped", "unchecked"]


@dataclass(frozen=True, slots=True, eq=False)
class Waiting:
    """A submission that waits for its key."""

    claim: KeyClaim
    peer: str
    n_bytes: int
    then: Callable[[Outcome], object]
    """Function that receives the outcome once, at the end of the wait."""

    @property
    def site(self) -> str:
        """The host that the key is for."""
        return self.claim.host

    @property
    def weight(self) -> int:
        """Weight against the bounds, bytes."""
        return max(self.n_bytes, LEAST_WEIGHT)


class Bound(NamedTuple):
    """A maximum weight of the submissions that have the same value of `among`."""

    most: int
    among: Callable[[Waiting], Hashable]
    holder: Callable[[Waiting], Hashable]
    """Function to the holder of a submission; the holder with the largest weight yields."""
    refusal: str


BOUNDS = (
    Bound(SHARE_WEIGHT, lambda w: w.peer, lambda w: w.site, "of your address"),
    Bound(SHARE_WEIGHT, lambda w: w.site, lambda w: w.peer, "for this site"),
    Bound(ALL_WEIGHT, lambda _: None, lambda w: w.peer, "in all"),
)


class Delay(NamedTuple):
    """A wait for a site that was away."""

    until: datetime
    n_looks: int
    """Number of looks at the key file so far."""


class KeyQueue:
    """The queue of waiting submissions; for one thread at a time."""

    def __init__(self) -> None:
        self.waiting: list[Waiting] = []
        self.running: list[Waiting] = []
        """The submissions whose claims are being checked now."""
        self._turn = 0
        self._last: dict[Hashable, int] = {}
        """The last turn of each peer, and of each of its sites."""
        self._delays: dict[KeyClaim, Delay] = {}
        """The claims whose sites were away."""

    @property
    def has_delays(self) -> bool:
        """Return whether a claim waits for its site."""
        return bool(self._delays)

    def add(self, new: Waiting) -> list[Waiting]:
        """Add a submission and return those that it replaced; raise `Overloaded`."""
        rest = list(self.waiting)
        dropped = [victim for bound in BOUNDS for victim in _make_room(rest, new, bound)]
        self.waiting = [*rest, new]
        if dropped:
            self._forget_delays()
        for name in _names(new):
            self._last.setdefault(name, self._turn)
        return dropped

    def next(self, now: datetime | None = None) -> KeyClaim | None:
        """Return the next claim to check; None while no check may begin.

        `now` leaves out the claims whose delay is not over.
        """
        claims = {w.claim for w in self.running}
        claims |= {c for c, delay in self._delays.items() if now is not None and now < delay.until}
        peers, sites = Counter(w.peer for w in self.running), Counter(w.site for w in self.running)
        ready = [
            w
            for w in self.waiting
            if w.claim not in claims
            and peers[w.peer] < MAX_PEER_TURNS
            and sites[w.site] < MAX_SITE_TURNS
        ]
        if not ready:
            return None
        first = min(ready, key=lambda w: [self._last[name] for name in _names(w)])
        self._turn += 1
        self._last |= dict.fromkeys(_names(first), self._turn)
        self.running.append(first)
        return first.claim

    def postpone(self, claim: KeyClaim, now: datetime, retry_after_s: float) -> bool:
        """Look at the claim again after a wait; return False after the last look."""
        n_looks = self._delays[claim].n_looks if claim in self._delays else 0
        if n_looks == len(RETRIES_S):
            return False
        wait_s = max(RETRIES_S[n_looks], min(retry_after_s, RETRIES_S[-1]))
        self.running = [w for w in self.running if w.claim != claim]
        self._delays[claim] = Delay(now + timedelta(seconds=wait_s), n_looks + 1)
        self._forget_delays()
        return True

    def _forget_delays(self) -> None:
        """Remove the delays of claims that nobody waits for any more."""
        present = {w.claim for w in self.waiting}
        self._delays = {c: delay for c, delay in self._delays.items() if c in present}

    def done(self, claim: KeyClaim) -> list[Waiting]:
        """Remove and return all submissions of a claim."""
        settled = [w for w in self.waiting if w.claim == claim]
        self.waiting = [w for w in self.waiting if w.claim != claim]
        self.running = [w for w in self.running if w.claim != claim]
        self._delays.pop(claim, None)
        present = {name for w in self.waiting for name in _names(w)}
        self._last = {name: turn for name, turn in self._last.items() if name in present}
        return settled


def _names(waiting: Waiting) -> tuple[Hashable, Hashable]:
    return waiting.peer, (waiting.peer, waiting.site)


def _make_room(rest: list[Waiting], new: Waiting, bound: Bound) -> list[Waiting]:
    """Remove submissions from `rest` until `new` fits, the latest of the heaviest holder first."""
    dropped: list[Waiting] = []
    while True:
        rivals = [w for w in rest if bound.among(w) == bound.among(new)]
        weights: Counter[Hashable] = Counter()
        for rival in rivals:
            weights[bound.holder(rival)] += rival.weight
        if weights.total() + new.weight <= bound.most:
            return dropped
        heaviest = max(weights, key=weights.__getitem__)
        if weights[heaviest] <= weights[bound.holder(new)] + new.weight:
            raise Overloaded(f"too many keys {bound.refusal} wait to be checked; try again later")
        dropped.append([w for w in rivals if bound.holder(w) == heaviest][-1])
        rest.remove(dropped[-1])


POLL_S = 0.5
"""Time between two looks for a delay that is over, seconds."""
N_FETCHERS = 32
"""Maximum key files that are fetched at a time, each in its own thread."""
MAX_BELIEVED, MAX_REFUSED = 100_000, 10_000
"""Maximum stored verdicts; refused keys never displace accepted ones."""
BELIEVED_FOR, REFUSED_FOR = timedelta(days=1), timedelta(minutes=5)
"""Lifetime of an accepting and of a refusing verdict."""

log = structlog.get_logger()


class KeyChecks:
    """Verdicts by key and address; daemon threads fetch key files after the first question."""

    def __init__(
        self, now: Callable[[], datetime], look: Callable[[KeyClaim], bool] = shows_key
    ) -> None:
        self.now = now
        self.look = look
        self.bodies = Room()
        self._line = KeyQueue()
        self._changed = threading.Condition()
        self._until: dict[bool, dict[bytes, datetime]] = {True: {}, False: {}}
        self._private: set[bytes] = set()
        """Refused claims whose sites have an address that is not public."""
        self._n_fetchers = 0
        self._stopped = False

    def ask(self, new: Waiting) -> bool | None:
        """Return whether the site shows the key; None while the check runs.

        After None, another thread calls `new.then` once with the outcome. Raise `Overloaded`
        where the queue has no room for this submission.
        """
        with self._changed:
            if (verdict := self._verdict(new.claim)) is not None:
                return verdict
            dropped = self._line.add(new)
            self._changed.notify()
            self._start_fetcher()
        _end_wait(dropped, "dropped")
        return None

    def refusal(self, claim: KeyClaim) -> str:
        """Return why a claim was refused."""
        at = claim.location[:300]
        if _digest(claim) in self._private:
            return (
                f"{at} is not fetched: its host has an address that is not public; send an API key"
            )
        return f"{at} does not show the key; put it there"

    def stop(self) -> None:
        """Begin no further check and drop the waiting submissions."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def _verdict(self, claim: KeyClaim) -> bool | None:
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
            verdict = is_private = False
            try:
                verdict = self.look(claim)
            except KeyFileAway as away:
                _end_wait(self._postpone(claim, away.retry_after_s), "unchecked")
                continue
            except AddressNotPublic:
                is_private = True
            except Exception:
                log.exception("a key file could not be checked", key_location=claim.location)
            settled = self._settle(claim, verdict, is_private=is_private)
            _end_wait(settled, "believed" if verdict else "refused")

    def _next(self) -> KeyClaim | None:
        """Return the next claim, after a wait for its turn; None once stopped."""
        with self._changed:
            while not self._stopped:
                if (claim := self._line.next(self.now())) is not None:
                    return claim
                self._changed.wait(POLL_S if self._line.has_delays else None)
            return None

    def _postpone(self, claim: KeyClaim, retry_after_s: float) -> list[Waiting]:
        """Look again later; return the submissions that waited, after the last look."""
        with self._changed:
            if self._stopped:
                return []
            if self._line.postpone(claim, self.now(), retry_after_s):
                self._changed.notify_all()
                return []
            self._changed.notify_all()  # this site and this peer have one free turn more
            return self._line.done(claim)

    def _settle(
        self,
        claim: KeyClaim,
        verdict: bool,  # noqa: FBT001
        *,
        is_private: bool,
    ) -> list[Waiting]:
        """Store a verdict and return the submissions that waited for the verdict."""
        name, span = _digest(claim), BELIEVED_FOR if verdict else REFUSED_FOR
        with self._changed:
            for until in self._until.values():
                until.pop(name, None)
            verdicts = self._until[verdict]
            verdicts[name] = self.now() + span
            while len(verdicts) > (MAX_BELIEVED if verdict else MAX_REFUSED):
                verdicts.pop(next(iter(verdicts)))
            self._private -= {name}
            self._private |= {name} if is_private else set()
            self._private &= self._until[False].keys()
            self._changed.notify_all()  # this site and this peer have one free turn more
            return [] if self._stopped else self._line.done(claim)


def _digest(claim: KeyClaim) -> bytes:
    # because the claim itself may have 2 KB
    return blake2b(f"{claim.key} {claim.location}".encode(), digest_size=16).digest()


def _end_wait(settled: list[Waiting], outcome: Outcome) -> None:
    for waiting in settled:
        try:
            waiting.then(outcome)
        except Exception:
            log.exception("a submission by IndexNow was lost", host=waiting.site[:100])
