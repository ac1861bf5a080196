"""Evidence: reports of crawlers, and pings."""

from functools import partial
from typing import Annotated

import numpy as np
from fastapi import APIRouter, Query, Request, Response

from recrawl_client.wire.evidence import Decision, Observation, Ping, Pinged, Reported
from service.api import openapi
from service.api.admission import TheCaller
from service.api.assembly import TheBody, TheService
from service.api.examples import EXAMPLES
from service.api.requests.blocks import BlockReader, CrawlStream
from service.api.requests.decode import decode_crawls, decode_pings
from service.api.requests.settling import settled
from service.api.responses.encode import answer
from service.api.responses.outcomes import batch_counts, refuse_empty
from service.api.route import GUARDED, DirectRoute
from service.model.domain import ItemVerdict

router = APIRouter(tags=["evidence"], route_class=DirectRoute, dependencies=GUARDED)

Register = Annotated[
    bool,
    Query(description="True to register new URLs, false to reject them"),
]


OBSERVATIONS = """\
Report crawls.

Each item succeeds or fails alone. Sending a batch again changes nothing.

`observed_at` is the instant at which your crawler sent its request. A ping or a request that is
newer may not be in the answer, so it leads to another crawl. With `lease` you may leave the field
out: the start of the lease then counts.

`changed` is your own judgement. A `digest` is compared with that of the last crawl. A `status` of
304 means unchanged; 404 and 410 mean gone, once a second look confirms it. Failures (0, other 4xx,
5xx) are no evidence. A page that fails is due again after an hour, or after its interval if that is
shorter. Every further failure doubles the time, up to 30 days. A page without content in three
crawls in a row has no share of the budget until its content is back. A page that is gone is due
after 1, 2, 4, 8 and 16 days, then it is retired. Time moves forward per page: an item that is not
newer than the page's last crawl counts as `duplicate` or `late` and changes nothing. The first
crawl of a page opens its first interval.

Send `robots_denied` in place of a `status` for a page that robots.txt forbids. Nobody asked for the
page then, so of the other values only the `note` counts.

Send `last_modified` when the site states it, as a header or a date in the page. A change at a
stated instant is better evidence than a change at some time since the last crawl. The date does
not decide whether the page has changed. A date before the last crawl, after this crawl, or less
than a minute before this crawl is ignored. So is a text that is no date with a zone.

Send `redirect_url` with a redirect. The target is registered, and recorded as `redirects_to` of
the page. A page that has moved for good (301, 308) is checked like a page that is gone. Other
redirects are neither evidence nor failures. `changed` and `digest` of a redirect are ignored,
because they describe another page. So are those of a crawl that has followed a redirect, which has
the `status` of the target beside `redirect_url`.

With `lease`, the lease of the crawl ends if it still runs, and the page is due again by its crawl
rate. A crawl dated before its lease counts at the start of the lease, because your clock must be
slow. One dated after its report counts at the report, because your clock must be fast. After the
end of its lease, a report is evidence like any other, but answers no request. After 429, 503,
timeouts and server errors the service pauses the host, for `retry_after_s` if you send it.

NDJSON may have any length, compressed too. The service commits it as it arrives, in blocks of at
most `max_items` lines and 1 MB. So send the crawls of a page in the order of time; `hint` states
how many were `late`. The answer sums up all blocks. `index` counts from the first line without
blank lines. Several blocks list the first 1,000 `rejected`, and `n_rejected` counts all. If a
stream breaks off, the committed blocks stay: `lines_taken` of the problem counts their lines.
Sending everything again is safe."""
"""Description of the call."""


@router.post(
    "/observations",
    description=OBSERVATIONS,
    responses=openapi.answers(Reported, EXAMPLES["observations_answer"], *openapi.WRITES),
    openapi_extra=openapi.request_body(Observation, EXAMPLES["observations"]),
)
async def post_observations(
    request: Request, service: TheService, caller: TheCaller, register: Register = True
) -> Response:
    """Record crawls as they arrive, and return the counts of their outcomes."""
    decode = partial(decode_crawls, unit=service.budget.unit)
    reader = BlockReader(service, caller, Observation, decode)
    counts = await CrawlStream(reader, register=register).write(request)
    service.lease_waiters.wake(counts["leases_ended"])
    refuse_empty(counts)
    return answer(Reported(**counts))


@router.post(
    "/pings",
    responses=openapi.answers(Pinged, EXAMPLES["pings_answer"], *openapi.WRITES),
    openapi_extra=openapi.request_body(Ping, EXAMPLES["pings"]),
)
async def post_pings(
    service: TheService, caller: TheCaller, body: TheBody, register: Register = True
) -> Response:
    """Announce changes of pages.

    The answer states for each page whether to crawl it now, and why. A crawl that starts later
    follows, also if the page is being crawled now. Reasons to crawl:
    `never_crawled`; `credit`, its pings have earned a crawl; `unscheduled`, no epoch has scheduled
    it yet; `may_be_back`, it is gone or lacks content, and is `complete`, or it is retired or lacks
    content, and was not crawled for 16 days. Reasons not to crawl now: `held`, the page
    waits until its URL group is worth a first crawl; `window_closed`, it is crawled when its host
    opens; `later`, its next crawl is brought forward to
    the time at which it has earned one; `saving`, it has earned a part of a
    crawl; `crawled_since`, also within `RECRAWL_PING_DELAY_S` after a crawl; `not_trusted`, the
    page is `incomplete`, or its pings have not proved reliable; `not_newer`.
    """
    now = service.now()
    pings = await BlockReader(service, caller, Ping, decode_pings).read(body, now)
    done = await settled(service.ping_reports.submit(pings.report(now, register=register)))
    rejected = [each.rejection for each in pings.refusals]
    counts = batch_counts(done.verdict, pings.index, pings.named.page_id, rejected)
    service.telemetry.count_items("ping", counts)
    refuse_empty(counts)
    decisions = [
        Decision(
            index=int(pings.index[i]),
            page_id=int(done.page_id[i]),
            crawl=bool(done.crawl[i]),
            reason=str(done.reason[i]),
        )
        for i in np.flatnonzero(done.verdict != ItemVerdict.unknown)
    ]
    return answer(Pinged(**counts, decisions=decisions))
