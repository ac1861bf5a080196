"""Politeness: the times at which a host queue may be crawled, by its settings and state. Pure.

A host queue is open if the delay since the last crawl and its pauses are over. Also, fewer leases
must run than the concurrency allows. The site pauses its host queue by trouble. An operator's pause
is apart: no report ends it or makes it longer. The store keeps all instants over a restart.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.core import latency, waits
from service.core.latency import Latency
from service.model.arrays import NO_TIME, Bools, Floats, Instants, Ints
from service.storage.queue.columns import HostQueues

Spans = NDArray[np.timedelta64]

ANY_NUMBER = np.iinfo(np.int32).max
"""Room of a gate without limits, crawls."""
FIRST, LAST = np.datetime64(0, "us"), np.datetime64("9999-12-31", "us")
NO_DELAY = np.timedelta64(0, "us")

SETTINGS = ("min_delay_s", "robots_delay_s", "max_concurrency", "latency_factor", "max_delay_s")
"""Fields of a host queue that callers set."""
STATE = ("n_failures", "paused_until", "paused_at", "ready_at", "next_at")
"""Fields of a host queue that crawls and reports change, and that decide when its gate opens."""
LATENCY = ("latency_s", "usual_latency_s", "n_latencies")
"""Fields of a host queue that have its latency."""


@dataclass(frozen=True, slots=True)
class Politeness:
    """The politeness of host queues without settings of their own."""

    delay_s: float = 1.0
    """Delay from one crawl to the next, seconds."""
    concurrency: int = 1
    """Leases that may run at a time; 0: any number."""
    latency_factor: float = 0.0
    """Delay of a host that is slower than usual, over its latency; 0: latencies cause no delay."""
    max_delay_s: float = 30.0
    """Maximum delay by latency, seconds."""

    @property
    def gated(self) -> bool:
        """True if a crawl may have to wait for another crawl."""
        return self.delay_s > 0 or self.concurrency > 0 or self.latency_factor > 0


class Gates(NamedTuple):
    """(N,) gates of host queues at one instant."""

    delay: Spans
    concurrency: Ints
    """Leases that may run at a time; 0: any number."""
    n_running: Ints
    """Leases that run, or expired less than a delay ago."""
    room: Ints
    """Crawls that may be leased now."""


# -- limits in force


def delays(min_delay_s: Floats, robots_delay_s: Floats, polite: Politeness) -> Floats:
    """Return delays in force, seconds: at least the delay of robots.txt, at most a day."""
    return waits.delay_in_force(min_delay_s, robots_delay_s, polite.delay_s)


def concurrencies(max_concurrency: Ints, polite: Politeness) -> Ints:
    """Return the numbers of leases that may run at a time; 0: any number."""
    return np.where(max_concurrency > 0, max_concurrency, polite.concurrency)


def latency_of(host_queues: HostQueues) -> Latency:
    """Return the latencies of host queues."""
    return Latency(host_queues.latency_s, host_queues.usual_latency_s, host_queues.n_latencies)


def latency_factors(host_queues: HostQueues, polite: Politeness) -> Floats:
    """Return the factors on the latency in force; 0: latencies cause no delay."""
    own = host_queues.latency_factor
    return np.where(np.isnan(own), polite.latency_factor, own)


def delays_by_latency(host_queues: HostQueues, polite: Politeness) -> Floats:
    """Return the delays that latencies cause, seconds; 0: none."""
    most_s = host_queues.max_delay_s
    most_s = np.where(np.isnan(most_s), polite.max_delay_s, most_s)
    return latency.delay_s(latency_of(host_queues), latency_factors(host_queues, polite), most_s)


def slowed(host_queues: HostQueues, polite: Politeness) -> Bools:
    """Return which host queues have one crawl at a time, because they are slower than usual."""
    slow = latency.one_at_a_time(latency_of(host_queues))
    return slow & (latency_factors(host_queues, polite) > 0)


def limits_s(host_queues: HostQueues, polite: Politeness) -> tuple[Floats, Ints]:
    """Return each host queue's delay, seconds, and concurrency in force."""
    delay_s = delays(host_queues.min_delay_s, host_queues.robots_delay_s, polite)
    concurrency = concurrencies(host_queues.max_concurrency, polite)
    if np.isnan(host_queues.latency_s).all():  # most fleets
        return delay_s, concurrency
    slow = slowed(host_queues, polite)
    if slow.any():
        delay_s = np.fmax(delay_s, delays_by_latency(host_queues, polite))
        concurrency = np.where(slow, 1, concurrency)
    return delay_s, concurrency


def limits(host_queues: HostQueues, polite: Politeness) -> tuple[Spans, Ints]:
    """Return each host queue's delay and concurrency in force."""
    delay_s, concurrency = limits_s(host_queues, polite)
    return seconds(delay_s), concurrency


def seconds(spans: Floats) -> Spans:
    """Return seconds as time spans, rounded up so that no gate opens early."""
    return np.ceil(spans * 1e6).astype("m8[us]")


# -- leasing


def ends_of_pauses(host_queues: HostQueues) -> Instants:
    """Return when the pauses of host queues end, by an operator and by the site; NaT: no pause."""
    ends: Instants = np.fmax(host_queues.blocked_until, host_queues.paused_until)
    return ends


def gates(
    host_queues: HostQueues, delay: Spans, concurrency: Ints, n_running: Ints, at: np.datetime64
) -> Gates:
    """Return the gates of host queues at an instant, by their `limits`."""
    room = np.where(concurrency > 0, np.maximum(concurrency - n_running, 0), ANY_NUMBER)
    # a delay runs from one crawl to the next, so only one crawl may begin now
    room = np.where(delay > NO_DELAY, np.minimum(room, 1), room)
    waits = (host_queues.ready_at > at) | (ends_of_pauses(host_queues) > at)
    return Gates(delay, concurrency, n_running, np.where(waits, 0, room))


def heads(n: int, host_queue: Ints, bound: Instants, before: Instants, each: int) -> Instants:
    """Return a lower bound of the time at which each of n host queues has a page; NaT: no page.

    At most `each` rows of a host queue were read, in the order of `before`. `bound` is the time at
    which each row can be leased now; NaT: the row was removed. If `each` rows were read, more rows
    may follow.
    """
    first, last = np.full(n, LAST), np.full(n, FIRST)
    present = ~np.isnat(bound)
    np.minimum.at(first, host_queue[present], bound[present])
    np.maximum.at(last, host_queue, before)
    more = np.bincount(host_queue, minlength=n) >= each
    first = np.where(more, np.minimum(first, last), first)
    return np.where(first == LAST, NO_TIME, first)


def shut(
    host_queues: HostQueues,
    gates: Gates,
    n_taken: Ints,
    ends: Instants,
    head: Instants,
    at: np.datetime64,
) -> HostQueues:
    """Return host queues after crawls were leased; `ends` has the end of each one's first lease.

    Because a worker whose lease expires may have crawled at its last instant, the delay counts from
    there.
    """
    waits = (n_taken > 0) & (gates.delay > NO_DELAY)
    ready_at = np.where(waits, at + gates.delay, host_queues.ready_at)
    full = (gates.concurrency > 0) & (gates.n_running + n_taken >= gates.concurrency)
    opens = np.fmax(
        np.fmax(ready_at, ends_of_pauses(host_queues)), np.where(full, ends + gates.delay, NO_TIME)
    )
    next_at = np.where(np.isnat(head), NO_TIME, np.fmax(head, opens))
    return replace(host_queues, ready_at=ready_at, next_at=next_at)


# -- saving


def set_back(host_queues: HostQueues, polite: Politeness, at: np.datetime64) -> HostQueues:
    """Return host queues after the clock was set back, without crawls and pauses after `at`.

    The remaining time of a delay or a pause counts from now. A pause by an operator keeps its end.
    """
    if not ((host_queues.ready_at > at) | (host_queues.paused_at > at)).any():
        return host_queues
    delay, _ = limits(host_queues, polite)
    ready_at = np.fmin(host_queues.ready_at, at + delay)
    # fmin makes a delay of NaT, but no crawl has begun one
    ready_at = np.where(np.isnat(host_queues.ready_at), NO_TIME, ready_at)
    ahead = host_queues.paused_at > at
    rest = host_queues.paused_until - host_queues.paused_at
    again = ahead | (host_queues.ready_at > ready_at)
    return replace(
        host_queues,
        ready_at=ready_at,
        paused_until=np.where(ahead, at + rest, host_queues.paused_until),
        paused_at=np.where(ahead, at, host_queues.paused_at),
        next_at=np.where(again, np.fmin(host_queues.next_at, at), host_queues.next_at),
    )


def differs(
    before: HostQueues,
    after: HostQueues,
    names: tuple[str, ...] = (*STATE, *LATENCY, "first_credit", "paused_status"),
) -> Bools:
    """Return which host queues differ in the named fields, so that they must be saved."""
    different = np.zeros(len(before), np.bool_)
    for name in names:
        old, new = getattr(before, name), getattr(after, name)
        if old is new:
            continue
        different |= (old != new) & ~(np.isnan(old) & np.isnan(new))
    return different
