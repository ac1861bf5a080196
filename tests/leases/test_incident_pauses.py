"""Pauses of hosts in incidents: one page probes, and the host is back soon after its content."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
from support.crawl_cases import HOUR, POLITE, RULES, SECOND, UNTIL, ids, queue, take
from support.store_cases import (
    DAY,
    T0,
    crawl_columns,
    instants,
    publish,
    register,
    schedule_columns,
    states_of,
)

from service.ingest.recent_digests import RecentDigests
from service.ingest.record import record
from service.leases.settle import LeaseSettler
from service.model.domain import ItemVerdict

N = 20
OUTAGE = T0 + 10 * DAY
MINUTE = timedelta(minutes=1)


class Crawler:
    """A crawler that takes a page a second from one host, and reports it at once."""

    def __init__(self, store, sign):
        self.store, self.sign = store, sign
        self.page_id = np.sort(register(store, N))
        self.settler = LeaseSettler(POLITE, UNTIL, RULES.rng)
        self.recent = RecentDigests()
        publish(store, schedule_columns(self.page_id, crawl_rate=1.0))
        with store.begin() as tx:
            quiet = crawl_columns(self.page_id, T0 + 9 * DAY, status=200, digest=self.page_id)
            record(tx, quiet, RULES)
        queue(store, self.page_id, OUTAGE)

    def crawl(self, now, *, broken):
        """Lease at most one page and report it; return whether there was one."""
        crawls = take(self.store, now, count=1, polite=POLITE)
        if not crawls:
            return False
        page_id = np.array(ids(crawls))
        shown = self.sign if broken else {"status": 200, "digest": page_id}
        tokens = np.array([crawl.token for crawl in crawls])
        reported = replace(
            crawl_columns(page_id, instants([now]), **shown), leased_page_id=page_id, token=tokens
        )
        with self.store.begin() as tx:
            states, leased = self.settler.lock(tx, page_id, reported, scheduled=True)
            made = record(tx, reported, RULES, states, recent=self.recent)
            new = made.verdict == ItemVerdict.accepted
            self.settler.settle_crawls(
                tx, reported, new, made.states, leased, now, made.in_incident
            )
        return True


@pytest.mark.dear
@pytest.mark.parametrize(
    "sign", [{"status": 404}, {"status": 403}, {"status": 200, "digest": 7}], ids=str
)
@pytest.mark.parametrize("hours", [1, 20])
def test_a_host_in_an_incident_is_probed_and_is_back_soon(queue_store, sign, hours):
    crawler = Crawler(queue_store, sign)
    ends, now, n_crawled = OUTAGE + hours * HOUR, OUTAGE, 0
    while now < ends:
        n_crawled += crawler.crawl(now, broken=True)
        since = now - OUTAGE
        now += 2 * SECOND if since < MINUTE else max(since / 20, 10 * SECOND)
    # the first pages show the incident, then pauses double up to an hour
    # the page with the digest of the incident is believed, and may end it for five pages more
    n_believed = int("digest" in sign)
    assert n_crawled <= 5 + 7 + 1.5 * hours + (1 + 5) * n_believed
    minutes = (ends + minute * MINUTE for minute in range(100))
    back = next(at for at in minutes if crawler.crawl(at, broken=False))
    assert back - ends <= min(2 * hours * HOUR, HOUR) + 2 * MINUTE
    # pages that the incident has put off are due within the hour, one a second
    n = 1
    for second in range(2 * N):
        n += crawler.crawl(back + HOUR + second * SECOND, broken=False)
    states = states_of(queue_store, crawler.page_id)
    # a page that was refused before the incident began waits for its interval, as without one
    assert n >= N - 4
    assert states.n_failures.sum() <= 4
    # the first page with the digest of others is believed
    assert states.n_changes.sum() <= (2 if "digest" in sign else 0)
