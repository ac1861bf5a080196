"""Evidence: reports of crawlers, and pings."""

from datetime import datetime
from typing import Annotated

import numpy as np
from fastapi import APIRouter, Query, Request, Response
from fastapi.concurrency import run_in_threadpool

from recrawl_client.wire.evidence import Decision, Observation, Ping, Pinged, Reported
from service.api import examples, openapi
from service.api.requests.bodies import Body, decode_batch, heavy
from service.api.requests.decode import Decoded, decode_crawls, decode_pings
from service.api.requests.stream import CrawlStream, settled
from service.api.responses.encode import answer, batch_counts, refuse_empty
from service.api.route import GUARDED, DirectRoute
from service.api.service import TheBody, TheService
from service.batching.reports import PingReport
from service.model.columns import CrawlColumns, PingColumns
from service.model.domain import Verdict

router = APIRouter(tags=["evidence"], route_class=DirectRoute, dependencies=GUARDED)

Register = Annotated[
    bool, Query(description="Register URLs not seen before; with false they are rejected")
]


OBSERVATIONS = """\
Report crawls. Each item succeeds or fails alone; sending a batch again changes nothing.

`changed` is your judgement; a `digest` is compared with the last one; a `status` of 304 means
unchanged, 404 and 410 mean gone, failures (0, other 4xx, 5xx) are no evidence. A page that
fails is due again after an hour, or its interval if that is less, and twice as long with every
further failure. A page that is gone is due after 1, 2, 4, 8 and 16 days, then it is retired;
one that comes back has changed. Per page time
moves forward: what is not newer than the page's last crawl is counted as `duplicate` or
`late` and changes nothing. The first crawl of a page opens its first interval.

Where the site says when the page was `last_modified` (the header of that name, or a date in
the page), pass it on: a change whose instant is known is better evidence than one at some time
since the last crawl. It does not say whether there was a change. A date before the last crawl,
after this one or within a minute before it is not used.

With a redirect, tell where it led as `redirect_url`: that page is registered, and recorded as
`redirects_to`. A page that has moved for good (301, 308) is checked like one that is gone.
Other redirects are no evidence, and no failure. `changed` and `digest` of a redirect are not
read: they are of another page.

With `lease` the lease under which the page was crawled ends, if it still runs, and the page
is due again by its crawl rate; a crawl that is dated before the lease counts at its start, as
your clock must be slow. Under a lease that had ended before, a report is evidence like any
other. 429, 503, timeouts and errors of a server make its host pause; `retry_after_s` says how
long it asked for.

NDJSON may be of any length, compressed too: it is committed as it arrives, in blocks of at
most `max_items` lines and 1 MB, so send each page's crawls in the order of time. The answer
sums up all blocks; `index` counts from the first line, blank ones left out; of several blocks
the first 1,000 `rejected` are listed and `n_rejected` counts all. If a stream ends half-way,
the blocks committed stay; the problem says `lines_taken`, and sending everything again is safe."""
"""Description of the call."""


@router.post(
    "/observations",
    description=OBSERVATIONS,
    responses=openapi.answers(Reported, examples.OBSERVATIONS_ANSWER, *openapi.WRITES),
    openapi_extra=openapi.request_body(Observation, examples.OBSERVATIONS),
)
async def post_observations(
    request: Request, service: TheService, register: Register = True
) -> Response:
    """Record crawls as they arrive, and count what became of them."""

    def decode(block: Body, now: datetime) -> Decoded[CrawlColumns]:
        return decode_crawls(decode_batch(block, Observation, service.max_items), now)

    counts = await CrawlStream(service, decode, register=register).write(request)
    service.lease_waiters.wake(counts["leases_ended"])
    refuse_empty(counts)
    return answer(Reported(**counts))


@router.post(
    "/pings",
    responses=openapi.answers(Pinged, examples.PINGS_ANSWER, *openapi.WRITES),
    openapi_extra=openapi.request_body(Ping, examples.PINGS),
)
async def post_pings(service: TheService, body: TheBody, register: Register = True) -> Response:
    """Announce changes; the answer says of each page whether to crawl it now, and why.

    Reasons to crawl: `never_crawled`, `credit` (its crawl probabilities have added up to one
    crawl), `unscheduled` (no epoch has scheduled it yet), `may_be_back` (it is gone, and is
    `complete` or retired and was not crawled for 16 days). Reasons not to: `saving` (they have
    not), `crawled_since` (also within `RECRAWL_PING_DELAY_S` after a crawl), `not_trusted` (the
    page is `incomplete`, or its pings have not proved themselves), `not_newer`.
    """
    now = service.now()

    def decode() -> Decoded[PingColumns]:
        return decode_pings(decode_batch(body, Ping, service.max_items), now)

    pings = await run_in_threadpool(decode) if heavy(body.content) else decode()
    report = PingReport(pings.columns, pings.named, register, now)
    done = await settled(service.ping_reports.submit(report))
    counts = batch_counts(done.verdict, pings.index, pings.named.page_id, pings.rejected)
    service.telemetry.count_items("ping", counts)
    refuse_empty(counts)
    decisions = [
        Decision(
            index=int(pings.index[i]),
            page_id=int(done.page_id[i]),
            crawl=bool(done.crawl[i]),
            reason=str(done.reason[i]),
        )
        for i in np.flatnonzero(done.verdict != Verdict.unknown)
    ]
    return answer(Pinged(**counts, decisions=decisions))
