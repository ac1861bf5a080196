"""Old days of the log on Postgres, set aside for the archive.

A partition of old days is detached and becomes a child of `sealed_observations` under a new name.
Nobody appends to it from then on, so it is copied without a lock, and dropped by the commit that
names its files. Each step takes one short transaction and waits a short time for a lock
(`postgres.partitions`). Readers see detached entries all the time, because they read both tables.
"""

from datetime import datetime
from uuid import uuid4

from service.storage.log.partitions import old_partitions
from service.storage.postgres.partitions import Begin, in_steps, partitions

OLDEST_LATE = "SELECT min(observed_at) FROM observations_default WHERE observed_at < %(before)s"


def seal(begin: Begin, before: datetime) -> None:
    """Set aside the partitions that end before an instant, and entries outside of partitions."""
    with begin() as tx:
        names = old_partitions(partitions(tx, "observations"), before)
        steps = [detached(name) for name in names]
        if (oldest := tx.scalar(OLDEST_LATE, before=before)) is not None:
            steps.append(moved(oldest, before))
    in_steps(begin, steps)


def detached(name: str) -> tuple[str, ...]:
    """Return the statements that set a partition aside."""
    sealed = f"sealed_{name.removeprefix('observations_')}_{uuid4().hex[:8]}"
    return (
        f"ALTER TABLE observations DETACH PARTITION {name}",
        f"ALTER TABLE {name} RENAME TO {sealed}",
        f"ALTER TABLE {sealed} INHERIT sealed_observations",
    )


def moved(oldest: datetime, before: datetime) -> tuple[str, ...]:
    """Return the statements that set aside the old entries of the default partition."""
    sealed = f"sealed_{oldest:%Y_%m}_{uuid4().hex[:8]}"
    old = f"DELETE FROM observations_default WHERE observed_at < '{before.isoformat()}'"
    return (
        f"CREATE TABLE {sealed} (LIKE observations)",
        f"WITH old AS ({old} RETURNING *) INSERT INTO {sealed} SELECT * FROM old",
        f"CREATE INDEX ON {sealed} (page_id)",
        f"ANALYZE {sealed}",
        f"ALTER TABLE {sealed} INHERIT sealed_observations",
    )
