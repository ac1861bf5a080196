"""Partitions of the log on Postgres: create the next ones, drop old ones and old schedules.

A partition of the log is a month, or with an archive and a short retention a day.
"""

from collections.abc import Collection
from datetime import UTC, datetime, timedelta

from service.storage.postgres.dialect import PostgresDialect
from service.storage.postgres.partitions import Begin, in_steps, partitions

MOST_MOVED = 20_000
"""Maximum entries that move from the default partition to a new one: about 0.2 s."""
MOST_DAYS = timedelta(days=100)
"""Maximum retention for which partitions are days: a reader looks into each of them."""
DAYS_AHEAD = timedelta(days=14)
"""Time ahead for which partitions of days are made, so that an outage of days does no harm."""
MONTH = len("observations_2026_05")
"""Length of the name of a month; that of a day is longer."""


def keep_house(begin: Begin, keep_log_since: datetime | None, now: datetime) -> None:
    """Prepare the log for the next months; drop old schedules and old entries of the log."""
    with begin() as tx:
        todo = chores(tx, keep_log_since, now)
    in_steps(begin, todo)


def chores(
    tx: PostgresDialect, keep_log_since: datetime | None, now: datetime
) -> list[tuple[str, ...]]:
    """Return the steps of housekeeping, each the statements of one transaction."""
    names = partitions(tx, "observations")
    kept = timedelta.max if keep_log_since is None else now - keep_log_since
    by_day = tx.archive is not None and kept <= MOST_DAYS
    steps = [partition(tx, name) for name in names_ahead(now, names, by_day=by_day)]
    if keep_log_since is not None and tx.archive is None:
        steps += [(f"DELETE FROM observations_default WHERE observed_at < '{keep_log_since}'",)]
        steps += [(f"DROP TABLE {name}",) for name in old_partitions(names, keep_log_since)]
    in_use = {f"schedule_{e}" for e in tx.kept()}
    old = partitions(tx, "schedule") - in_use
    # Each writer locks `alembic_version` before it reads the epoch in force.
    return steps + [("LOCK TABLE alembic_version", f"DROP TABLE {name}") for name in old]


def partition(tx: PostgresDialect, name: str) -> tuple[str, ...]:
    """Return the statements that attach a partition and move its rows from the default partition.

    Return no statements if there are too many rows to move.
    """
    first, after = (f"{end:%Y-%m-%d}Z" for end in bounds(name))
    within = f"observed_at >= '{first}' AND observed_at < '{after}'"
    held = f"SELECT FROM observations_default WHERE {within} LIMIT {MOST_MOVED + 1}"
    n_held = tx.once(held).rowcount
    if n_held > MOST_MOVED:
        return ()
    moved = f"WITH moved AS (DELETE FROM observations_default WHERE {within} RETURNING *)"
    attach = f"ATTACH PARTITION {name} FOR VALUES FROM ('{first}') TO ('{after}')"
    return (
        "LOCK TABLE observations",  # otherwise a concurrent insert into the default one fails
        f"CREATE TABLE {name} (LIKE observations)",
        *([f"{moved} INSERT INTO {name} SELECT * FROM moved"] if n_held else ()),
        f"ALTER TABLE observations {attach}",
    )


def next_month(moment: datetime) -> datetime:
    """Return the first day of the next month."""
    return moment.replace(year=moment.year + moment.month // 12, month=moment.month % 12 + 1, day=1)


def bounds(name: str) -> tuple[datetime, datetime]:
    """Return the first instant of a partition, and the first after it, from its name.

    >>> [f"{end:%Y-%m-%d}" for end in bounds("observations_2026_12")]
    ['2026-12-01', '2027-01-01']
    >>> [f"{end:%Y-%m-%d}" for end in bounds("observations_2026_12_31")]
    ['2026-12-31', '2027-01-01']
    """
    year, month, *day = map(int, name.removeprefix("observations_").split("_"))
    first = datetime(year, month, day[0] if day else 1, tzinfo=UTC)
    return first, first + timedelta(days=1) if day else next_month(first)


def old_partitions(names: Collection[str], before: datetime) -> list[str]:
    """Return the partitions of the log that end before an instant, oldest first."""
    dated = (name for name in names if name != "observations_default")
    return sorted(name for name in dated if bounds(name)[1] <= before)


def names_ahead(now: datetime, names: Collection[str], *, by_day: bool) -> list[str]:
    """Return the partitions to add to those with these names.

    They cover the running month and the two after it, or with `by_day` the running day and
    `DAYS_AHEAD` days. A month with a partition for one of its days has one for each.

    >>> at = datetime(2026, 5, 31, tzinfo=UTC)
    >>> names_ahead(at, ["observations_2026_05"], by_day=False)
    ['observations_2026_06', 'observations_2026_07']
    >>> names_ahead(at, ["observations_2026_05"], by_day=True)[:2]
    ['observations_2026_06_01', 'observations_2026_06_02']
    """
    first = now.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    ends = next_month(next_month(next_month(first)))
    today, last = max(first, now.astimezone(UTC)), now + DAYS_AHEAD
    every = [first + timedelta(days=n) for n in range((ends - first).days)]
    split = {name[:MONTH] for name in names if name != name[:MONTH]}
    ahead = []
    for day in every:
        month = f"observations_{day:%Y_%m}"
        if month in names or month in ahead:
            continue
        if not by_day and month not in split:
            ahead.append(month)
        elif today.date() <= day.date() and (day <= last or not by_day):
            ahead.append(f"observations_{day:%Y_%m_%d}")
    return [name for name in ahead if name not in names]
