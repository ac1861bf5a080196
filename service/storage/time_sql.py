"""Dates written by a clock that was set back since, in the words that both databases share."""

from datetime import datetime

from typing_extensions import override

from service.storage.contract import Transaction
from service.storage.dialect import Dialect

REDATE_LEASES = """
UPDATE due_pages SET leased_at = %(now)s, expires_at = %(now)s + (expires_at - leased_at),
    next_at = %(now)s + (expires_at - leased_at)
WHERE token IS NOT NULL AND leased_at > %(now)s
"""
"""Shifts each lease as a whole, so that its worker has as much time as was promised."""

OF_STATES = ("last_crawl_at", "last_observed_at", "last_ping_at", "pings_since", "requested_at")


def redate(table: str, *columns: str) -> str:
    """Return the statement that walks along a key; rows without a later date are not written."""
    earlier = (f"{at} = CASE WHEN {at} > %(now)s THEN %(now)s ELSE {at} END" for at in columns)
    later = " OR ".join(f"{at} > %(now)s" for at in columns)
    return f"""
UPDATE {table} SET {", ".join(earlier)}
WHERE page_id > %(after)s AND page_id <= %(last)s AND ({later})
"""


REDATE_PAGES, REDATE_STATES = redate("pages", "created_at"), redate("page_states", *OF_STATES)


class TimeSql(Dialect, Transaction):
    """The statements that bring dates back from the future."""

    @override
    def redate_leases(self, now: datetime) -> None:
        self.run(REDATE_LEASES, now=now)

    @override
    def redate_pages(self, after: int, last: int, now: datetime) -> None:
        for statement in (REDATE_PAGES, REDATE_STATES):
            self.run(statement, after=after, last=last, now=now)
