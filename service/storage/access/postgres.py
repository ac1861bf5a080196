"""Keys and the audit in the SQL of Postgres."""

from typing_extensions import override

from service.storage.access.contract import AccessSql
from service.storage.postgres.dialect import PostgresDialect

MAY_CUT_AUDIT = "SELECT has_table_privilege('audit', 'DELETE')"


class PostgresAccess(AccessSql, PostgresDialect):
    """Keys and the audit in the SQL of Postgres."""

    @override
    def may_cut_audit(self) -> bool:
        return bool(self.scalar(MAY_CUT_AUDIT))
