"""Answers as JSON: from columns and values to the structs of the wire."""

import base64
import binascii
import re
from datetime import datetime
from typing import Any, Literal, cast

import msgspec
import numpy as np
from fastapi.responses import Response
from msgspec import json

from recrawl_client.wire import schedule as wire
from recrawl_client.wire.leases import Crawl
from recrawl_client.wire.pages import (
    CrawlAnswer,
    EstimateAnswer,
    Interval,
    PageAnswer,
    PageScheduleAnswer,
    RedirectAnswer,
)
from recrawl_client.wire.schedule import ScheduledPage
from service.api.responses.why import explain
from service.estimation.estimates import PageEstimate
from service.leases import due
from service.leases.lease import LeasedPages
from service.model.arrays import INSTANT, Instants
from service.model.columns import ScheduledPages
from service.model.domain import Epoch, LogEntry, Page
from service.model.errors import BadCursor


class RemovedPage(msgspec.Struct):
    """A line of a stream of changes: a page that is no longer scheduled."""

    page_id: int
    removed: bool = True


def answer(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return a response of JSON."""
    return Response(json.encode(body), status, headers, media_type="application/json")


def encode_schedule(pages: ScheduledPages) -> list[ScheduledPage]:
    """Return the rows of columns."""
    names = ScheduledPage.__struct_fields__[:-1]
    columns = (getattr(pages, name).tolist() for name in names)
    return list(map(ScheduledPage, *columns, moments(due.due_at(pages))))


def encode_leased(leased: LeasedPages) -> list[Crawl]:
    """Return the crawls of columns."""
    pages, leases = leased.pages, leased.leases
    return [
        Crawl(
            lease=f"{page_id}-{token:x}",
            page_id=page_id,
            url=url,
            host=host,
            reason="ping" if requested else "first" if last_crawl_at is None else "due",
            due_at=due_at,
            last_crawl_at=last_crawl_at,
            overdue=overdue,
            expires_at=expires_at,
        )
        for page_id, token, url, host, requested, due_at, last_crawl_at, overdue, expires_at in zip(
            pages.page_id.tolist(),
            leases.token.tolist(),
            pages.url.tolist(),
            pages.host.tolist(),
            leased.requested.tolist(),
            moments(leased.due_at),
            moments(pages.last_crawl_at),
            leased.overdue.tolist(),
            moments(leases.expires_at),
            strict=True,
        )
    ]


def moments(instants: Instants) -> list[datetime | None]:
    """Return instants as datetimes, through floats of seconds: exact until the year 2223.

    >>> moments(np.array(["2026-05-01T12:00:00.000001", "NaT"], "M8[us]"))
    [datetime.datetime(2026, 5, 1, 12, 0, 0, 1, tzinfo=datetime.timezone.utc), None]
    """
    seconds = instants.astype(INSTANT).view(np.int64) / 1e6
    never = np.isnat(instants)
    if never.any():
        seconds = seconds.astype(object)
        seconds[never] = None
    return msgspec.convert(seconds.tolist(), list[datetime | None], strict=False)


def encode_cursor(epoch: int, after: int) -> str:
    """Return the cursor of a place in an epoch's schedule."""
    return base64.urlsafe_b64encode(f"{epoch}:{after}".encode()).decode().rstrip("=")


def decode_cursor(cursor: str) -> tuple[int, int]:
    """Return the epoch and the page_id of a cursor; raise `BadCursor`."""
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        place = base64.b64decode(padded, altchars=b"-_", validate=True).decode("ascii")
    except (ValueError, binascii.Error) as error:
        raise BadCursor from error
    if not re.fullmatch(r"\d{1,18}:\d{1,18}", place):
        raise BadCursor
    epoch, after = place.split(":")
    return int(epoch), int(after)


def encode_epoch(epoch: Epoch) -> wire.Epoch:
    """Return one run, with the fields of its certificate."""
    certificate = epoch.certificate
    names = wire.Epoch.__struct_fields__ if certificate is not None else ()
    return wire.Epoch(
        epoch=epoch.epoch,
        status=epoch.status.value,
        requested_at=epoch.requested_at,
        started_at=epoch.started_at,
        finished_at=epoch.finished_at,
        reason=epoch.reason,
        **{name: getattr(certificate, name) for name in names if hasattr(certificate, name)},
    )


def encode_page(
    page: Page, log: list[LogEntry], epoch: Epoch | None, estimate: PageEstimate
) -> PageAnswer:
    """Return one page with its estimate, its schedule and the reason of its rate."""
    scheduled = why = None
    if epoch is not None and page.crawl_rate is not None:
        scheduled = PageScheduleAnswer(
            epoch=epoch.epoch,
            change_rate=page.change_rate or 0.0,
            crawl_rate=page.crawl_rate,
            crawl_probability=page.crawl_probability or 0.0,
            urgency=page.urgency or 1.0,
            next_crawl_at=due.next_crawl_at(page),
        )
        why = explain(page, epoch, estimate)
    return PageAnswer(
        page_id=page.page_id,
        url=page.url,
        host=page.host,
        importance=page.importance,
        observability=cast("Literal['incomplete', 'complete', 'auto']", page.observability.name),
        min_crawl_rate=page.min_crawl_rate,
        max_crawl_rate=page.max_crawl_rate,
        created_at=page.created_at,
        gone=page.gone,
        n_failures=page.n_failures,
        retired=due.retired(page),
        redirects_to=None
        if page.redirects_to is None
        else RedirectAnswer(page_id=page.redirects_to, url=page.redirects_to_url),
        last_crawl_at=page.last_crawl_at,
        estimate=_estimate(page, estimate),
        schedule=scheduled,
        why=why,
        last_crawls=[
            CrawlAnswer(
                observed_at=entry.observed_at,
                kind=cast("Literal['crawl', 'ping']", entry.kind.name),
                changed=entry.changed,
                interval=entry.interval,
                status=entry.status,
            )
            for entry in log
        ],
    )


def _estimate(page: Page, estimate: PageEstimate) -> EstimateAnswer:
    bounds = estimate.interval
    return EstimateAnswer(
        change_rate=estimate.change_rate,
        credible_interval=bounds and Interval(low=bounds[0], high=bounds[1]),
        url_group_change_rate=estimate.url_group_change_rate,
        estimator=estimate.estimator,
        n_observations=page.n_observations,
        n_changes=page.n_changes,
        n_pings=page.n_pings,
        last_observed_at=page.last_observed_at,
        last_ping_at=page.last_ping_at,
    )
