"""Tokens of leases, with the second in which the lease began. Pure.

A token has 63 bits: the second of the lease since 1970, in 32 bits, before 31 random ones. The
random bits keep a token from being guessed; two leases of a page in one second differ by them.
"""

import numpy as np

from service.model.arrays import Instants, Ints

RANDOM_BITS = 31


def new_tokens(n: int, leased_at: np.datetime64, rng: np.random.Generator) -> Ints:
    """Return (n,) tokens of leases from an instant between 1970 and 2106; none is 0."""
    second = int(leased_at.astype("M8[s]").astype(np.int64)) % (1 << 32)
    # 0 is a crawl without a lease
    return (second << RANDOM_BITS) + rng.integers(1, 1 << RANDOM_BITS, n)


def leased_since(tokens: Ints) -> Instants:
    """Return the (N,) full seconds in which the leases of tokens began."""
    return (tokens >> RANDOM_BITS).astype("M8[s]").astype("M8[us]")
