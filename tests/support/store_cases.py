"""Columns and steps for tests of the store and of its users."""

from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import numpy as np

from service.leases.due import due_at, next_crawl_at
from service.model.arrays import COLUMN, NO_TIME, UNSPECIFIED, instant, moment
from service.model.columns import (
    NOT_SHIFTED,
    CrawlColumns,
    LogColumns,
    PageColumns,
    PingColumns,
    ScheduleColumns,
)
from service.model.domain import Certificate, ScheduleFilter
from service.model.urls import normalise
from service.storage.epochs.contract import GroupTables, Learnt

T0 = datetime(2026, 5, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)
MICROSECOND = timedelta(microseconds=1)
EVERYTHING = ScheduleFilter()

EXTREME = [0.0, 1e-300, 1e-30, 1 / 3, 1e30, 1e300]
"""Rates within and beyond the range of four-byte numbers."""

CERTIFICATE = Certificate(
    bandwidth=10.0,
    bandwidth_used=9.999999999999998,
    multiplier=0.1 + 0.2,
    harmonic_cost=1e-300,
    binary_cost=5e-324,
    kkt_residual=2.220446049250313e-16,
    duality_gap=float("inf"),
    passes=7,
    n_pages=3,
    prior={"a": 0.5, "b": 15.000000000000002},
    crawl_rate_quantiles=(0.0, 0.1, 1.7976931348623157e308),
    seconds={"load": 0.25, "publish": 1.5},
    budget_factor=1.0000000000000002,
    observed_ratios=(),
)


def columns(columns_type, n, /, **values):
    """Return columns of `n` rows; a single value fills all rows, None is no column."""
    arrays = {}
    for field in fields(columns_type):
        dtype = COLUMN[field.type]
        value = values.get(field.name)
        if value is None:
            continue
        arrays[field.name] = np.empty(n, dtype)
        if dtype.kind == "M":
            value = instants(value)
        arrays[field.name][:] = value
    return columns_type(**arrays)


def instants(values):
    """Return datetimes, None or datetime64 as array elements."""
    if isinstance(values, np.ndarray | np.datetime64):
        return values
    if isinstance(values, datetime):
        return instant(values)
    return np.array([np.datetime64("NaT", "us") if v is None else instant(v) for v in values])


def page_columns(urls, **fields):
    """Return the columns of new pages."""
    normal = [normalise(url) for url in urls]
    unsaid = {
        "importance": np.nan,
        "observability": UNSPECIFIED,
        "min_crawl_rate": np.nan,
        "max_crawl_rate": np.nan,
    }
    return columns(
        PageColumns,
        len(normal),
        key=np.array([np.void(n.key) for n in normal], "V16"),
        url=[n.url for n in normal],
        host=[n.host for n in normal],
        **{**unsaid, **fields},
    )


def urls(n, host="example.org"):
    return [f"https://{host}/{i}" for i in range(n)]


def register(store, n=3, now=T0, host="example.org", **fields):
    """Register n pages in one transaction; return their ids."""
    with store.begin() as tx:
        return tx.register(page_columns(urls(n, host), **fields), now).page_id


def crawl_columns(
    page_id,
    observed_at,
    changed=UNSPECIFIED,
    digest=0,
    status=UNSPECIFIED,
    redirects_to=0,
    leads=0,
    last_modified=NO_TIME,
    etag=None,
    note=None,
    own_hosts=None,
    cost=None,
    weight=None,
):
    bare = ((changed, UNSPECIFIED), (digest, 0), (status, UNSPECIFIED), (redirects_to, 0))
    if all(np.isscalar(value) and value == default for value, default in bare):
        # a crawl with content; the page's first one is compared with nothing
        changed = 0
    return columns(
        CrawlColumns,
        len(page_id),
        page_id=page_id,
        observed_at=observed_at,
        changed=changed,
        digest=digest,
        status=status,
        leased_page_id=0,
        token=0,
        retry_after_s=np.nan,
        redirects_to=redirects_to,
        leads=leads,
        last_modified=last_modified,
        etag=etag,
        note=note,
        own_hosts=own_hosts,
        cost=cost,
        weight=weight,
        verdict=None,
    )


def ping_columns(page_id, changed_at):
    fields = {"changed_at": changed_at, "changed_by": changed_at}
    return columns(PingColumns, len(page_id), page_id=page_id, **fields)


def log_columns(
    page_id,
    observed_at,
    kind=0,
    changed=UNSPECIFIED,
    interval=np.nan,
    crawl_rate=np.nan,
    status=UNSPECIFIED,
):
    return columns(
        LogColumns,
        len(page_id),
        page_id=page_id,
        observed_at=observed_at,
        kind=kind,
        changed=changed,
        interval=interval,
        crawl_rate=crawl_rate,
        status=status,
    )


def schedule_columns(
    page_id,
    change_rate=0.5,
    crawl_rate=1.0,
    crawl_probability=0.0,
    urgency=1.0,
    shift=NOT_SHIFTED,
    carried=NOT_SHIFTED,
    observed_ratio=None,
):
    return columns(
        ScheduleColumns,
        len(page_id),
        page_id=page_id,
        change_rate=change_rate,
        crawl_rate=crawl_rate,
        crawl_probability=crawl_probability,
        urgency=urgency,
        shift=shift,
        carried=carried,
        observed_ratio=observed_ratio,
    )


def publish(store, schedule, now=T0, certificate=CERTIFICATE, **learnt):
    """Run an epoch that publishes this schedule; return its number."""
    with store.lead() as lead:
        with lead.begin() as tx:
            epoch = tx.start_epoch(now).epoch
        with lead.begin() as tx:
            tx.write_schedule(epoch, schedule)
        with lead.begin() as tx:
            change_hours = learnt.pop("change_hours", None)
            of_shards = {0: GroupTables(**learnt)} if learnt else {}
            tx.publish(epoch, certificate, now, Learnt(of_shards, change_hours))
    return epoch


def states_of(store, page_id):
    with store.begin() as tx:
        return tx.lock_states(np.asarray(page_id, np.int64), scheduled=True)


def save(store, page_id, **changes):
    """Change columns of some pages' states."""
    with store.begin() as tx:
        states = tx.lock_states(np.asarray(page_id, np.int64), scheduled=True)
        changed = {}
        for name, value in changes.items():
            changed[name] = getattr(states, name).copy()
            changed[name][:] = instants(value) if changed[name].dtype.kind == "M" else value
        tx.save_states(replace(states, **changed))


def page_of(store, page_id):
    with store.begin(write=False) as tx:
        return tx.page(int(page_id))


def due_of(store, page_id):
    return next_crawl_at(page_of(store, page_id))


class ScheduledPage(NamedTuple):
    """One row of `ScheduledPages`, with its due instant."""

    page_id: int
    url: str
    importance: float
    change_rate: float
    crawl_rate: float
    crawl_probability: float
    next_crawl_at: datetime | None


def rows(scheduled):
    """Return columns of the schedule as rows of plain values."""
    columns = [getattr(scheduled, name) for name in ScheduledPage._fields[:-1]]
    columns.append(due_at(scheduled))
    plain = [map(moment, c) if c.dtype.kind == "M" else c.tolist() for c in columns]
    return [ScheduledPage(*row) for row in zip(*plain, strict=True)]


def read_schedule(store, epoch, after=0, limit=1000, only=EVERYTHING):
    with store.begin(write=False) as tx:
        return rows(tx.schedule(epoch, after, limit, only).pages)


def same(left, right):
    """Assert that two sets of columns are equal to the last bit; None equals a column of none."""
    assert type(left) is type(right)
    assert len(left) == len(right)
    both = type(left).concatenate([left, right]).arrays()
    for field in fields(left):
        a, b = getattr(left, field.name), getattr(right, field.name)
        if a is None or b is None:
            a, b = np.split(both.get(field.name, np.zeros(2 * len(left))), 2)
        assert a.dtype == b.dtype, field.name
        np.testing.assert_array_equal(a, b, err_msg=field.name)
