"""Keys and the audit in the SQL of SQLite."""

from typing_extensions import override

from service.storage.access.contract import AccessSql
from service.storage.sqlite.sql import SqliteDialect


class SqliteAccess(AccessSql, SqliteDialect):
    """Keys and the audit in the SQL of SQLite."""

    @override
    def may_cut_audit(self) -> bool:
        return True
