"""Politeness: what stands in front of a lane, a host or the hosts that share a server. Pure.

A gate is open when the delay since the last crawl is over, fewer leases run than may, and the
pause after trouble has passed. Gates are kept by instants in the store, so a restart forgets
none, and a lane whose gate is shut is not even looked at before it opens.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.arrays import EPOCH, NEVER, Bools, Codes, Floats, Instants, Ints, instant
from service.core import timing
from service.domain import MOST_FAILURES
from service.storage.queue import Lanes, Settled

SLOW_DOWN = (429, 503)
TROUBLE = 500
TROUBLE_AFTER = 3
"""So many reports of other trouble in a row make a lane pause as well."""

PAUSE_S = 60.0
LONGEST_PAUSE_S = 86_400.0
FORGIVEN_AFTER_S = 86_400.0
"""After the end of a pause; crawls without a lease tell lanes of nothing but trouble."""
LONGEST_DELAY_S = 86_400.0

ANY_NUMBER = np.iinfo(np.int32).max
FIRST, LAST = instant(EPOCH), np.datetime64("9999-12-31", "us")
SECOND_US = 1e6
NO_DELAY = np.timedelta64(0, "us")


@dataclass(frozen=True, slots=True)
class Politeness:
    """What holds for a lane of which nothing else was said."""

    delay_s: float = 1.0
    """From one crawl to the next."""
    concurrency: int = 1
    """Leases that run at a time; 0: any number."""

    @property
    def gated(self) -> bool:
        """Whether crawls have to wait for others at all."""
        return self.delay_s > 0 or self.concurrency > 0


class Gates(NamedTuple):
    """(N,) what lets crawls pass now."""

    delay: NDArray[np.timedelta64]
    concurrency: Ints
    """0: any number."""
    n_running: Ints
    """Leases that run, or ran out less than a delay ago."""
    room: Ints
    """So many crawls may be leased now."""


def limits(lanes: Lanes, polite: Politeness) -> tuple[NDArray[np.timedelta64], Ints]:
    """Give each lane's delay, at least what robots.txt asks, and its concurrency."""
    said = np.where(np.isnan(lanes.min_delay_s), polite.delay_s, lanes.min_delay_s)
    delay_s = np.minimum(np.fmax(said, lanes.robots_delay_s), LONGEST_DELAY_S)
    concurrency = np.where(lanes.max_concurrency > 0, lanes.max_concurrency, polite.concurrency)
    return seconds(delay_s), concurrency


def seconds(spans: Floats) -> NDArray[np.timedelta64]:
    """Give seconds as time spans, rounded up: no gate opens early."""
    return np.ceil(spans * SECOND_US).astype("m8[us]")


def gates(
    lanes: Lanes, delay: NDArray[np.timedelta64], concurrency: Ints, n_running: Ints,
    at: np.datetime64,
) -> Gates:  # fmt: skip
    """Tell how many crawls each lane may have now, by its `limits`."""
    room = np.where(concurrency > 0, np.maximum(concurrency - n_running, 0), ANY_NUMBER)
    room = np.where(delay > NO_DELAY, np.minimum(room, 1), room)
    waits = (lanes.ready_at > at) | (lanes.blocked_until > at)
    return Gates(delay, concurrency, n_running, np.where(waits, 0, room))


def set_back(lanes: Lanes, polite: Politeness, at: np.datetime64) -> Lanes:
    """Return lanes as they are where nothing was written later than now.

    A later time shows that the clock was set back. What is left of a delay or of a pause counts
    from now, and the lane is looked at again. A lane that was blocked by hand stays blocked.
    """
    delay, _ = limits(lanes, polite)
    ready_at = np.fmin(lanes.ready_at, at + delay)
    ready_at = np.where(np.isnat(lanes.ready_at), NEVER, ready_at)
    ahead = lanes.paused_at > at
    left = lanes.blocked_until - lanes.paused_at
    again = ahead | (lanes.ready_at > ready_at)
    return replace(
        lanes,
        ready_at=ready_at,
        blocked_until=np.where(ahead, at + left, lanes.blocked_until),
        paused_at=np.where(ahead, at, lanes.paused_at),
        next_at=np.where(again, np.fmin(lanes.next_at, at), lanes.next_at),
    )


def heads(n: int, lane: Ints, bound: Instants, before: Instants, each: int) -> Instants:
    """Give a lower bound of when each of n lanes has a page; NaT where it has none.

    Of each, the first `each` rows were read, in the order of `before`; `bound` is what became
    of them (NaT: out). Where as many were read, others may lie behind the last.
    """
    first, last = np.full(n, LAST), np.full(n, FIRST)
    kept = ~np.isnat(bound)
    np.minimum.at(first, lane[kept], bound[kept])
    np.maximum.at(last, lane, before)
    more = np.bincount(lane, minlength=n) >= each
    first = np.where(more, np.minimum(first, last), first)
    return np.where(first == LAST, NEVER, first)


def shut(
    lanes: Lanes, gates: Gates, n_taken: Ints, ends: Instants, head: Instants, at: np.datetime64
) -> Lanes:
    """Give lanes after crawls were leased; `ends` is when the first lease of each ends.

    Whoever let a lease expire may have crawled at its last instant: the delay counts from there.
    """
    waits = (n_taken > 0) & (gates.delay > NO_DELAY)
    ready_at = np.where(waits, at + gates.delay, lanes.ready_at)
    full = (gates.concurrency > 0) & (gates.n_running + n_taken >= gates.concurrency)
    opens = np.fmax(
        np.fmax(ready_at, lanes.blocked_until), np.where(full, ends + gates.delay, NEVER)
    )
    next_at = np.where(np.isnat(head), NEVER, np.fmax(head, opens))
    return replace(lanes, ready_at=ready_at, next_at=next_at)


class Said(NamedTuple):
    """(N,) what was said of each lane in a batch of reports; NaT: nothing."""

    ended: Bools
    """Whether a lease ended."""
    last: Instants
    """The newest crawl whose lease ended."""
    good: Instants
    """The newest crawl that answered."""
    ill: Instants
    """The newest crawl in trouble."""
    n_ill: Ints
    slow: Bools
    """Whether it asked to slow down."""
    retry_after_s: Floats
    queued: Instants
    """The first of what was queued again."""


def trouble(status: Codes) -> Bools:
    """Tell which statuses say that a host is in trouble or wants to be left alone."""
    said: Bools = (status == 0) | slow_down(status) | (status >= TROUBLE)
    return said


def slow_down(status: Codes) -> Bools:
    """Tell which statuses say that a host wants to be left alone for a while."""
    said: Bools = (status == SLOW_DOWN[0]) | (status == SLOW_DOWN[1])
    return said


def sum_up(
    settled: Settled, observed_at: Instants, status: Codes, retry_after_s: Floats, new: Bools,
    at: np.datetime64,
) -> Said:  # fmt: skip
    """Sum reports up by lane; what was reported before says nothing again.

    What a slow clock dates before the lease was seen when the lease began; the host's delay counts
    from the report, as the fetch may have been at any time until then.
    """
    lane_id, n = settled.lanes.lane_id, len(settled.lanes)
    row = np.minimum(np.searchsorted(lane_id, settled.lane_id), n - 1)
    here = lane_id[row] == settled.lane_id
    seen = np.fmax(np.fmin(observed_at, at), settled.leased_at)
    seen = np.where(np.isnat(observed_at), NEVER, seen)
    fetched = np.where(observed_at <= settled.leased_at, at, seen)
    ended, speaks = here & settled.held, here & (settled.held | new)
    bad = speaks & trouble(status)
    good, slow = speaks & ~bad & ~np.isnat(seen), bad & slow_down(status)
    asked = np.zeros(n)
    np.maximum.at(asked, row[slow], np.nan_to_num(retry_after_s[slow]))
    queued = np.full(n, NEVER)
    np.fmin.at(queued, row[here], settled.next_at[here])
    return Said(
        ended=np.bincount(row[ended], minlength=n) > 0,
        last=_newest(n, row[ended], fetched[ended]),
        good=_newest(n, row[good], seen[good]),
        ill=_newest(n, row[bad], seen[bad]),
        n_ill=np.bincount(row[bad], minlength=n),
        slow=np.bincount(row[slow], minlength=n) > 0,
        retry_after_s=asked,
        queued=queued,
    )


def _newest(n: int, row: Ints, seen: Instants) -> Instants:
    newest = np.full(n, NEVER)
    np.fmax.at(newest, row, seen)
    return newest


def hear(lanes: Lanes, said: Said, polite: Politeness, at: np.datetime64, uniform: Floats) -> Lanes:
    """Give lanes after reports.

    A lane that said 429 or 503 pauses for as long as it asked, up to a day, and at least for a
    time that doubles with every batch of reports of trouble in a row, whatever else the batch
    says; of other trouble the third report in a row makes it pause. The pause counts from the
    crawl. One good answer under a lease and all is forgiven but the pause that runs; so it is
    where a day has passed since the last.
    """
    failing = ~np.isnat(said.ill) & ~(said.good > said.ill)
    rested = said.ill > lanes.blocked_until + seconds(np.array(FORGIVEN_AFTER_S))
    forgiven = np.where(np.isnat(said.good) & ~rested, lanes.n_failures, 0)
    in_a_row = np.where(np.isnat(said.good), said.n_ill, 1)
    at_once = np.minimum(forgiven + in_a_row, TROUBLE_AFTER)
    failures = np.where(failing, np.maximum(forgiven + 1, at_once), forgiven)
    n_failures = np.minimum(failures, MOST_FAILURES)
    turn = np.where(said.slow, np.maximum(n_failures, 1), n_failures - (TROUBLE_AFTER - 1))
    pause_s = timing.backoff(np.maximum(turn, 1), PAUSE_S, LONGEST_PAUSE_S, uniform)
    pause = seconds(np.maximum(pause_s, np.minimum(said.retry_after_s, LONGEST_PAUSE_S)))
    since: Instants = np.where(np.isnat(said.ill), at, said.ill)
    until = since + pause
    pauses = said.slow | (failing & (turn > 0))
    longer = pauses & ~(until <= lanes.blocked_until)
    blocked_until = np.where(longer, until, lanes.blocked_until)
    paused_at = np.where(longer, at, lanes.paused_at)
    delay, concurrency = limits(lanes, polite)
    waits = (delay > NO_DELAY) & said.ended
    ready_at = np.where(waits, np.fmax(lanes.ready_at, said.last + delay), lanes.ready_at)
    freed = np.where(said.ended & (concurrency > 0), at, NEVER)
    next_at = np.fmin(np.fmin(lanes.next_at, freed), said.queued)
    opens = np.fmax(ready_at, blocked_until)
    next_at = np.where(np.isnat(next_at), NEVER, np.fmax(next_at, opens))
    return replace(
        lanes, n_failures=n_failures, blocked_until=blocked_until, paused_at=paused_at,
        ready_at=ready_at, next_at=next_at,
    )  # fmt: skip


def moved(before: Lanes, after: Lanes) -> Bools:
    """Tell which lanes have to be written."""
    changed: Bools = before.n_failures != after.n_failures
    for name in ("blocked_until", "paused_at", "ready_at", "next_at"):
        then, now = getattr(before, name), getattr(after, name)
        changed |= (then != now) & ~(np.isnat(then) & np.isnat(now))
    return changed
