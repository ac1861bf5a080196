"""The store after its clock was set back: nothing in it is dated later than now.

A clock that runs ahead for a while and is set right leaves crawls, leases and delays that are dated
in the future. Until the clock has caught up, pages would not be due, leases would not end, hosts
would stay shut and reports would come late.
"""

from dataclasses import replace

import numpy as np

from service import lanes
from service.arrays import instant
from service.clock import Clock
from service.lanes import Politeness
from service.storage import QueueStore

BLOCK = 20_000
"""Pages, or hosts, that one transaction looks at."""


def redate(store: QueueStore, polite: Politeness, now: Clock) -> None:
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
    _redate_lanes(store, polite, now)


def _redate_lanes(store: QueueStore, polite: Politeness, now: Clock) -> None:
    after = int(np.iinfo(np.int64).min)
    while True:
        with store.begin() as tx:
            before = tx.next_lanes(after, BLOCK)
            if not len(before):
                return
            at = instant(now())
            back = lanes.set_back(before, polite, at)
            back = replace(back, next_at=np.minimum(back.next_at, at))  # leases may end sooner
            tx.save_lanes(back.take(lanes.moved(before, back)))
        after = int(before.lane_id[-1])
