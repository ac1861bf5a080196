"""Workers that ask for hosts, for a slice, for both, or for neither."""

from itertools import product

import numpy as np
import pytest
from support.crawl_cases import RUDE, UNTIL, next_ready_at, queue, take
from support.store_cases import T0, page_columns

from service.leases.host_settings import change_group
from service.leases.queue import fill_queue
from service.storage.queue.columns import LeaseFilter

HOSTS = ("a.example", "b.example", "c.example", "d.example", "e.example")
SHARED = ("d.example", "e.example")
"""Members of one group: one queue."""


@pytest.fixture
def stocked(queue_store):
    """Two due pages of each host, and the queue that each host is crawled in."""
    with queue_store.begin() as tx:
        new = tx.register(page_columns([f"https://{h}/{i}" for h in HOSTS for i in range(2)]), T0)
        change_group(tx, "shared", {}, SHARED, T0, RUDE)
        queues = {host: tx.host(host).host_id for host in HOSTS}
        queues |= dict.fromkeys(SHARED, tx.group("shared").group_id)
    queue(queue_store, np.sort(new.page_id), T0)
    return queue_store, queues


@pytest.mark.parametrize(
    ("hosts", "slices"),
    [*product([(), ("a.example",), ("b.example", "d.example"), ("nowhere.example",)], [1, 2, 3])],
)
def test_each_worker_is_given_what_it_asks_for_and_all_of_it(stocked, hosts, slices):
    store, queues = stocked
    for n in range(slices):
        expected = sorted(
            host for host in HOSTS if host in (hosts or HOSTS) and queues[host] % slices == n
        )
        reach = LeaseFilter(hosts, n, slices)
        with store.begin(write=False) as tx:
            assert (tx.next_ready_at(reach) is not None) == (len(expected) > 0)
        leased = []
        while given := take(store, T0, polite=RUDE, hosts=hosts, slice=n, slices=slices):
            leased += [crawl.host for crawl in given]
        assert sorted(leased) == sorted(expected * 2)


def test_filling_the_queue_leaves_every_reach_with_its_pages(stocked):
    store, _ = stocked
    fill_queue(store, T0 + UNTIL)
    assert len(take(store, T0, hosts=HOSTS, slice=0, slices=1)) == 10
    assert next_ready_at(store, HOSTS) is not None
