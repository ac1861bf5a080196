"""Leases of a worker that are returned for it, because it is gone."""

from collections.abc import Callable

import numpy as np

from service.leases.settle import LeaseSettler
from service.storage import Store, Transaction

Note = Callable[[Transaction, int], None]
"""Function that receives each transaction with the number of leases that it has ended."""


def return_leases_of(
    store: Store,
    settler: LeaseSettler,
    worker: str,
    may_name: Callable[[str], bool],
    note: Note,
    *,
    dry_run: bool = False,
) -> int:
    """Return the running leases of a worker, and their number; a dry run changes nothing.

    `may_name` returns whether the caller may name a URL. Leases on other pages stay. The leases end
    in bounded transactions, so that a call that breaks off has ended some of them.
    """
    n_ended, after = 0, 0
    while True:
        with store.begin(write=not dry_run) as tx:
            now = tx.now()
            leases, following = tx.leases_of(worker, after, now)
            own = np.array([may_name(url) for url in leases.url], np.bool_)
            tokens = leases.tokens.take(own)
            n_here = len(tokens)
            if n_here and not dry_run:
                n_here = int(settler.return_leases(tx, tokens, now).sum())
                note(tx, n_here)
        n_ended += n_here
        if following is None:
            return n_ended
        after = following
