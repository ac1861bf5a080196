"""What was written by a clock that has been set back since, in words that both databases share."""

from datetime import datetime
from typing import Any

import sqlalchemy as sa

from service.storage.queue import QueueTransaction
from service.storage.tables import Instant, crawls, page_states, pages

OF_STATES = ("last_crawl_at", "last_observed_at", "last_ping_at", "pings_since", "wanted_at")


class TimeSql(QueueTransaction):
    """The statements that bring dates back from the future."""

    connection: sa.Connection

    def redate_leases(self, now: datetime) -> None:
        """Shift each lease as a whole, so that its worker has as much time as was promised."""
        at = sa.literal(now, Instant)
        ends = at + (crawls.c.expires_at - crawls.c.leased_at)
        later = crawls.update().where(crawls.c.token.is_not(None), crawls.c.leased_at > at)
        self.connection.execute(later.values(leased_at=at, expires_at=ends, next_at=ends))

    def redate_pages(self, after: int, last: int, now: datetime) -> None:
        """Walk along the keys; rows without a later date are not written."""
        self._redate(pages, ("created_at",), after, last, now)
        self._redate(page_states, OF_STATES, after, last, now)

    def _redate(
        self, table: sa.Table, names: tuple[str, ...], after: int, last: int, now: datetime
    ) -> None:
        at = sa.literal(now, Instant)
        columns = [table.c[name] for name in names]
        dated: dict[Any, Any] = {c: sa.case((c > at, at), else_=c) for c in columns}
        later = sa.or_(*(column > at for column in columns))
        block = table.update().where(table.c.page_id > after, table.c.page_id <= last, later)
        self.connection.execute(block.values(dated))
