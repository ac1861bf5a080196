"""Submissions that wait for a key: their bounds, and whose turn it is.

Bounds hold for all, for each peer and for each site. A newcomer beyond a bound takes the place of
the rival that holds most, if that one holds more than the newcomer; else it is refused. Turns go
round over the peers, and within each peer over its sites. So those who send much wait for one
another, and the others pass them by.
"""

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from service.connectors.indexnow import Claim
from service.model.errors import Overloaded

LEAST_WEIGHT = 32_768
"""Minimum that a submission counts for, bytes; so bounds in bytes bound the number too."""
ALL_WEIGHT = 16_777_216
"""Maximum weight of all that waits, bytes: 512 submissions of few URLs."""
SHARE_WEIGHT = 2_097_152
"""Maximum weight for one peer, and for one site, bytes: 64 submissions of few URLs."""
MAX_PEER_TURNS = 16
"""Maximum keys of one peer that are checked at a time, of `keychecks.N_FETCHERS`."""
MAX_SITE_TURNS = 2
"""Maximum keys of one site that are checked at a time."""

Outcome = Literal["believed", "refused", "dropped"]


@dataclass(frozen=True, slots=True, eq=False)
class Waiting:
    """A submission that waits for its key."""

    claim: Claim
    peer: str
    n_bytes: int
    then: Callable[[Outcome], object]
    """Called once, when the wait is over."""

    @property
    def site(self) -> str:
        """The host that the key is for."""
        return self.claim.host

    @property
    def weight(self) -> int:
        """What it counts for, bytes."""
        return max(self.n_bytes, LEAST_WEIGHT)


class Bound(NamedTuple):
    """A maximum weight among rivals, who are those that agree with a newcomer in `among`."""

    most: int
    among: Callable[[Waiting], Hashable]
    holder: Callable[[Waiting], Hashable]
    """The part of the rivals that is compared with the newcomer's part."""
    refusal: str


BOUNDS = (
    Bound(SHARE_WEIGHT, lambda w: w.peer, lambda w: w.site, "of your address"),
    Bound(SHARE_WEIGHT, lambda w: w.site, lambda w: w.peer, "for this site"),
    Bound(ALL_WEIGHT, lambda _: None, lambda w: w.peer, "in all"),
)


class Line:
    """The line of all submissions that wait; for one thread at a time."""

    def __init__(self) -> None:
        self.waiting: list[Waiting] = []
        self.running: list[Waiting] = []
        """The submissions whose claims are being checked now."""
        self._turn = 0
        self._last: dict[Hashable, int] = {}
        """The last turn of each peer, and of each of its sites."""

    def add(self, new: Waiting) -> list[Waiting]:
        """Put a submission in the line and return those that made room; raise `Overloaded`."""
        rest = list(self.waiting)
        dropped = [victim for bound in BOUNDS for victim in _make_room(rest, new, bound)]
        self.waiting = [*rest, new]
        for name in _names(new):
            self._last.setdefault(name, self._turn)
        return dropped

    def next(self) -> Claim | None:
        """Return the next claim to check; None while none may begin."""
        claims = {w.claim for w in self.running}
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

    def done(self, claim: Claim) -> list[Waiting]:
        """Take all submissions of a claim out of the line."""
        settled = [w for w in self.waiting if w.claim == claim]
        self.waiting = [w for w in self.waiting if w.claim != claim]
        self.running = [w for w in self.running if w.claim != claim]
        present = {name for w in self.waiting for name in _names(w)}
        self._last = {name: turn for name, turn in self._last.items() if name in present}
        return settled


def _names(waiting: Waiting) -> tuple[Hashable, Hashable]:
    return waiting.peer, (waiting.peer, waiting.site)


def _make_room(rest: list[Waiting], new: Waiting, bound: Bound) -> list[Waiting]:
    """Remove from `rest` what must yield to a newcomer, the latest of the heaviest holder first."""
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
