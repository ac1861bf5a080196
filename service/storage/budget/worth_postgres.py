"""The worth of new pages in the SQL of Postgres."""

from datetime import datetime
from typing import Any

from typing_extensions import override

from service.model.arrays import Ints
from service.storage.budget.worth import WRITTEN, HeldPages, NewLevels, UrlLevels
from service.storage.budget.worth_sql import OF_HELD, WorthSql
from service.storage.postgres.dialect import PostgresDialect
from service.storage.postgres.words import given

ADD_LEVELS = f"""
INSERT INTO url_levels (level, parent, name, since)
SELECT level, parent, name, %(now)s FROM {given("level", "parent", "name")}
WHERE NOT EXISTS (SELECT FROM url_levels WHERE url_levels.level = given.level)
ORDER BY level ON CONFLICT DO NOTHING
"""
SAVE_LEVELS = f"""
UPDATE url_levels SET {", ".join(f"{name} = given.{name}" for name in WRITTEN)},
    since = CASE WHEN url_levels.stopped = given.stopped THEN since ELSE %(now)s END
FROM {given("level", *WRITTEN)} WHERE url_levels.level = given.level
"""
WAITING_PAGES = f"""
SELECT page_id, level FROM {given("level", "at_most")} CROSS JOIN LATERAL (
    SELECT page_id FROM page_states WHERE held = level
    ORDER BY page_id LIMIT at_most FOR NO KEY UPDATE SKIP LOCKED
) AS waiting
"""
ADD_DIGESTS = """
INSERT INTO digests (digest) SELECT value FROM {ids} ORDER BY value
ON CONFLICT DO NOTHING RETURNING digest
"""


class PostgresWorth(WorthSql, PostgresDialect):
    """The statements on levels in the SQL of Postgres."""

    @override
    def add_levels(self, levels: NewLevels, now: datetime) -> None:
        if len(levels):
            self.run(ADD_LEVELS, **levels.arrays(), now=now)

    @override
    def save_levels(self, levels: UrlLevels, now: datetime) -> None:
        if len(levels):
            written = {name: getattr(levels, name) for name in WRITTEN}
            self.run(SAVE_LEVELS, level=levels.level, **written, now=now)

    @override
    def waiting_pages(self, level: Ints, at_most: Ints) -> HeldPages:
        some = {"level": level, "at_most": at_most}
        waiting: dict[str, Any] = dict(self.arrays(WAITING_PAGES, OF_HELD, **some))
        return HeldPages(**waiting)

    @override
    def add_digests(self, digest: Ints) -> Ints:
        return self.id_array(
            f"WITH added AS ({ADD_DIGESTS}) SELECT array_agg(digest ORDER BY digest) FROM added",
            ids=digest,
        )
