"""From what use cases give to the answers of the wire."""

import base64
import binascii
import re
from datetime import datetime
from typing import Any, Literal, cast

import msgspec
import numpy as np
from fastapi.responses import Response
from msgspec import json

from service.api.page_schemas import (
    CrawlAnswer,
    EstimateAnswer,
    Interval,
    PageAnswer,
    PageScheduleAnswer,
    RedirectAnswer,
    WhyAnswer,
)
from service.api.schemas import BatchAnswer, EpochAnswer, LeasedCrawl, Rejection, ScheduledPage
from service.arrays import INSTANT, Codes, Instants, Ints
from service.columns import ScheduledPages
from service.crawls import Leased
from service.domain import Certificate, Epoch, LogEntry, Observability, Page, Verdict
from service.errors import BadCursor, BatchRejected
from service.estimates import PageEstimate

UNITS = (("days", 1.0), ("hours", 1 / 24), ("minutes", 1 / 1_440))
"""A span is told in the first unit of which it has two."""

NOTABLE = 0.05
"""What siblings have shown is told of a page that they bring forward or let wait by more."""

LISTED = 1_000
"""Of a stream of several blocks so many rejected items are listed, and all counted."""


class RemovedPage(msgspec.Struct):
    """A line of a stream of changes for a page that is no longer scheduled."""

    page_id: int
    removed: bool = True


def answer(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Answer with JSON."""
    return Response(json.encode(body), status, headers, media_type="application/json")


def batch_counts(
    verdict: Codes, index: Ints, page_id: Ints, rejected: list[Rejection]
) -> dict[str, Any]:
    """Count what became of the items."""
    n_of = np.bincount(verdict, minlength=len(Verdict)).tolist()
    unknown = []
    if n_of[Verdict.unknown] or n_of[Verdict.elsewhere]:
        unknown = [
            _refused(int(index[i]), Verdict(verdict[i]), by_id=bool(page_id[i]))
            for i in np.flatnonzero(verdict >= int(Verdict.unknown))
        ]
    return {
        "accepted": n_of[Verdict.accepted],
        "duplicate": n_of[Verdict.duplicate],
        "late": n_of[Verdict.late],
        "n_rejected": len(rejected) + len(unknown),
        "rejected": sorted([*rejected, *unknown], key=lambda r: r.index),
    }


def _refused(index: int, verdict: Verdict, *, by_id: bool) -> Rejection:
    """Say why what only the store can tell keeps an item from being taken."""
    if verdict is Verdict.elsewhere:
        detail = "the lease is on another page than `url` names; leave `url` out"
        return Rejection(index=index, code="lease_mismatch", field="lease", detail=detail)
    return Rejection(
        index=index, code="page_not_found", field="page_id" if by_id else "url",
        detail="no such page; register it with POST /pages or name it by `url` with "
        "`register=true`",
    )  # fmt: skip


def add_counts(counts: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Count a stream's next block with those before it."""
    added = {name: counts[name] + more[name] for name in counts}
    return {**added, "rejected": added["rejected"][:LISTED]}


def refuse_empty(counts: dict[str, Any]) -> None:
    """Raise `BatchRejected` for a batch whose every item was rejected."""
    taken = counts["accepted"] + counts["duplicate"] + counts["late"]
    if counts["rejected"] and not taken:
        first = counts["rejected"][0]
        raise BatchRejected(
            f"none of the {counts['n_rejected']} items could be taken; item {first.index}: "
            f"{first.detail}",
            field=first.field,
            **{name: counts[name] for name in BatchAnswer.__struct_fields__},
        )


def encode_schedule(pages: ScheduledPages) -> list[ScheduledPage]:
    """Give the rows of columns."""
    columns = {name: getattr(pages, name) for name in ScheduledPages.__dataclass_fields__}
    due = moments(columns.pop("next_crawl_at"))
    return list(map(ScheduledPage, *(column.tolist() for column in columns.values()), due))


def encode_leased(leased: Leased) -> list[LeasedCrawl]:
    """Give the crawls of columns."""
    pages, leases = leased.pages, leased.leases
    last = moments(pages.last_crawl_at)
    return [
        LeasedCrawl(
            lease=f"{page_id}-{token:x}", page_id=page_id, url=url, host=host,
            reason="ping" if wanted else "first" if crawled is None else "due",
            due_at=due_at, last_crawl_at=crawled, overdue=overdue, expires_at=expires_at,
        )
        for page_id, token, url, host, wanted, due_at, crawled, overdue, expires_at in zip(
            pages.page_id.tolist(), leases.token.tolist(), pages.url.tolist(),
            pages.host.tolist(), pages.wanted.tolist(), moments(pages.due_at), last,
            leased.overdue.tolist(), moments(leases.expires_at), strict=True,
        )
    ]  # fmt: skip


def moments(instants: Instants) -> list[datetime | None]:
    """Give instants as datetimes: through floats of seconds, exact until the year 2223.

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
    """Name a place in an epoch's schedule."""
    return base64.urlsafe_b64encode(f"{epoch}:{after}".encode()).decode().rstrip("=")


def decode_cursor(cursor: str) -> tuple[int, int]:
    """Find the place a cursor names; raises `BadCursor`."""
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        place = base64.b64decode(padded, altchars=b"-_", validate=True).decode("ascii")
    except (ValueError, binascii.Error) as error:
        raise BadCursor from error
    if not re.fullmatch(r"\d{1,18}:\d{1,18}", place):
        raise BadCursor
    epoch, after = place.split(":")
    return int(epoch), int(after)


def encode_epoch(epoch: Epoch) -> EpochAnswer:
    """Encode one run, its certificate spread out."""
    answered = EpochAnswer(
        epoch=epoch.epoch,
        status=epoch.status.value,
        requested_at=epoch.requested_at,
        started_at=epoch.started_at,
        finished_at=epoch.finished_at,
        reason=epoch.reason,
    )
    for name in EpochAnswer.__struct_fields__:
        if epoch.certificate is not None and hasattr(epoch.certificate, name):
            setattr(answered, name, getattr(epoch.certificate, name))
    return answered


def encode_page(
    page: Page, log: list[LogEntry], epoch: Epoch | None, estimate: PageEstimate
) -> PageAnswer:
    """Encode one page with its estimate, its schedule and why."""
    scheduled = why = None
    if epoch is not None and page.crawl_rate is not None:
        scheduled = PageScheduleAnswer(
            epoch=epoch.epoch,
            change_rate=page.change_rate or 0.0,
            crawl_rate=page.crawl_rate,
            crawl_probability=page.crawl_probability or 0.0,
            pace=page.pace or 1.0,
            next_crawl_at=page.next_crawl_at,
        )
        why = _why(page, epoch, estimate)
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
        retired=page.retired,
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
        section_change_rate=estimate.section_change_rate,
        estimator=estimate.estimator,
        n_observations=page.n_observations,
        n_changes=page.n_changes,
        n_pings=page.n_pings,
        last_observed_at=page.last_observed_at,
        last_ping_at=page.last_ping_at,
    )


def _why(page: Page, epoch: Epoch, estimate: PageEstimate) -> WhyAnswer:
    """Say in one sentence what drives the page's rate."""
    certificate = epoch.certificate
    change_rate, crawl_rate = page.change_rate or 0.0, page.crawl_rate or 0.0
    share = None if certificate is None else _rank(certificate, crawl_rate)
    trouble = _trouble(page)
    if trouble and page.gone:
        how = trouble
    elif page.observability is Observability.complete:
        how = f"crawled on {page.crawl_probability or 0.0:.0%} of its pings"
    elif crawl_rate > 0:
        how = f"crawled every {_span(1 / crawl_rate)}"
        if page.crawl_probability:
            how += f" and on {page.crawl_probability:.0%} of its pings"
    else:
        how = "not crawled: the bandwidth is worth more elsewhere"
    drivers = (
        f"it changes about every {_span(1 / change_rate)}" if change_rate else "it never changes"
    )
    if estimate.section_change_rate:
        drivers += f", pages of its section every {_span(1 / estimate.section_change_rate)},"
    rank = (
        ""
        if share is None or not crawl_rate
        else f"; {share:.0%} of all pages are crawled less often"
    )
    return WhyAnswer(
        sentence=how
        if page.gone
        else f"{how}: {drivers} and its importance is {page.importance:g}{rank}"
        + (f"; {trouble}" if trouble else _siblings(page, certificate)),
        multiplier=None if certificate is None else certificate.multiplier,
        crawled_more_often_than=share,
        next_change_expected_in_days=1 / change_rate if change_rate else float("inf"),
    )


def _siblings(page: Page, certificate: Certificate | None) -> str:
    """Say what siblings have shown since the page's last crawl, where it matters."""
    unrest = (page.pace or 1.0) / (certificate.haste if certificate else 1.0)
    if abs(unrest - 1.0) < NOTABLE:
        return ""
    if unrest > 1.0:
        how, then = "more", f"it is crawled {unrest:.1f} times as soon"
    else:
        how, then = "less", f"it can wait {1 / unrest:.1f} times as long"
    return f"; since its last crawl its section has changed {how} than expected, so {then}"


def _rank(certificate: Certificate, crawl_rate: float) -> float | None:
    """Give the share of the pages that are crawled less often; to 1 % where they are many."""
    quantiles, n_pages = certificate.crawl_rate_quantiles, certificate.n_pages
    if not quantiles:
        return None
    last = len(quantiles) - 1
    at = min(int(np.searchsorted(quantiles, crawl_rate)), last)
    return at * (n_pages - 1) // last / n_pages


def _trouble(page: Page) -> str:
    """Say what is the matter with a page that is gone, or does not answer."""
    if not page.gone:
        return f"{_crawls(page.n_failures)} got no answer, it is tried again" * (
            page.n_failures > 0
        )
    how = "has moved" if page.redirects_to else "is gone"
    if page.retired:
        return (
            f"not crawled: it {how}, as {_crawls(page.n_failures)} found; a change notice or "
            "POST /pages with its url has it crawled once more"
        )
    return f"checked ever more rarely: it {how}, as {_crawls(page.n_failures)} found"


def _crawls(n: int) -> str:
    return "its last crawl" if n <= 1 else f"its last {n} crawls"


def _span(days: float) -> str:
    for unit, length in UNITS:
        if days >= 2 * length:
            return f"{days / length:,.1f} {unit}"
    return f"{days * 86_400:.2g} seconds"
