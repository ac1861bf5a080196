"""The store after its clock was set back: nothing in it is dated later than now.

A clock that runs ahead for a while and is set right leaves crawls, leases and delays that are dated
in the future. Until the clock has caught up, pages would not be due, leases would not end, hosts
would stay shut and reports would come late.
"""

from dataclasses import replace

import numpy as np

from service.leases import politeness
from service.leases.politeness import Politeness
from service.model.arrays import instant
from service.storage import Store
from service.storage.clock import Clock

BLOCK = 20_000
"""Pages, or hosts, that one transaction looks at."""


def redate(store: Store, polite: Politeness, now: Clock) -> None:
    """Date nothing later than now: pages, then leases, then hosts, a block a transaction.

    It changes nothing where nothing is dated later, so it may be run at any time, by anybody. The
    queue has to be filled afterwards.
    """
    after = 0
    while True:
        with store.begin() as tx:
            block = tx.next_page_ids(after, BLOCK)
            if not len(block):
                break
            tx.redate_pages(after, int(block[-1]), now())
        after = int(block[-1])
    with store.begin() as tx:
        tx.redate_leases(now())
    _redate_host_queues(store, polite, now)


def _redate_host_queues(store: Store, polite: Politeness, now: Clock) -> None:
    after = int(np.iinfo(np.int64).min)
    while True:
        with store.begin() as tx:
            before = tx.next_host_queues(after, BLOCK)
            if not len(before):
                return
            at = instant(now())
            back = politeness.set_back(before, polite, at)
            back = replace(back, next_at=np.minimum(back.next_at, at))  # leases may end sooner
            tx.save_host_queues(back.take(politeness.differs(before, back)))
        after = int(before.queue_id[-1])
