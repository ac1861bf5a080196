"""Feeds of pings: what all pages of a host show of whether its feed has stopped. Pure.

A few pages of a host seldom ping, so only all of them together show that a feed is silent. An epoch
reads all pages and keeps their sums. Later verdicts about some pages use these sums. So a page has
one verdict, whichever other pages are judged with it.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.core.checks import Bools, Floats, InvalidInput
from service.core.pings import silent_feeds

Ints = NDArray[np.int64]
Instants = NDArray[np.datetime64]

DAY = np.timedelta64(1, "D")


class PingFeeds(NamedTuple):
    """(H,) hosts with pings, by ascending host_id.

    Examples
    --------
    Five pages of a host each ping every ten days, the last of them 19 days ago:

    >>> newest = np.array(["2026-05-01"], "M8[us]")
    >>> feeds = PingFeeds(np.array([7]), np.array([0.5]), newest)
    >>> one, now = np.array(["2026-04-25"], "M8[us]"), np.datetime64("2026-05-20")
    >>> feeds.silent(np.array([7]), one, now)
    array([ True])

    A page that has pinged since then breaks the silence for itself:

    >>> feeds.silent(np.array([7, 7]), np.append(one, now), now)
    array([ True, False])
    """

    host_id: Ints
    ping_rate: Floats
    """Pings of all pages of the host, 1/day."""
    last_ping_at: Instants
    """Newest ping of any page of the host."""

    @classmethod
    def none(cls) -> "PingFeeds":
        """Return no hosts: no feed is silent."""
        return cls(np.zeros(0, np.int64), np.zeros(0), np.zeros(0, "M8[us]"))

    @classmethod
    def of(cls, host_id: Ints, ping_rate: Floats, last_ping_at: Instants) -> "PingFeeds":
        """Return the feeds of all hosts by the ping rates and newest pings of their (N,) pages."""
        hosts, place = np.unique(host_id, return_inverse=True)
        newest = np.full(hosts.size, np.datetime64(0, "us"))
        np.fmax.at(newest, place, last_ping_at)
        return cls(hosts, np.bincount(place, ping_rate, hosts.size).astype(np.float64), newest)

    @classmethod
    def of_all(cls, parts: "Iterable[PingFeeds]") -> "PingFeeds":
        """Return the feeds of several parts, which share no host."""
        columns = zip(cls.none(), *parts, strict=True)
        host_id, ping_rate, last_ping_at = (np.concatenate(column) for column in columns)
        order = np.argsort(host_id, kind="stable")
        return cls(host_id[order], ping_rate[order], last_ping_at[order])

    @classmethod
    def unpacked(cls, packed: Ints) -> "PingFeeds":
        """Return feeds from the numbers of `packed`; raise `InvalidInput` for other lengths."""
        if packed.size % 3:
            raise InvalidInput("packed", f"has {packed.size} numbers, which are no feeds of pings")
        host_id, ping_rate, last_ping_at = packed.reshape(3, -1)
        return cls(host_id, ping_rate.view(np.float64), last_ping_at.view("M8[us]"))

    def packed(self) -> Ints:
        """Return all numbers, 24 bytes for each host."""
        rest = self.ping_rate.view(np.int64), self.last_ping_at.astype("M8[us]").view(np.int64)
        return np.concatenate((self.host_id, *rest))

    def silent(self, host_id: Ints, last_ping_at: Instants, now: np.datetime64) -> Bools:
        """Return whether the feeds of (N,) pages are silent at an instant.

        A page counts its own newest ping, which may be later than all that these sums have. The
        feed of a host without sums is not silent.
        """
        if not self.host_id.size:
            return np.zeros(len(host_id), np.bool_)
        row = np.minimum(self.host_id.searchsorted(host_id), self.host_id.size - 1)
        rate = np.where(self.host_id[row] == host_id, self.ping_rate[row], 0.0)
        newest = np.fmax(self.last_ping_at[row], last_ping_at)
        since: Any = now - newest
        days = np.maximum(since / DAY, 0.0)
        return silent_feeds(np.arange(len(host_id)), rate, days)
