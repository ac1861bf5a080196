"""Keys and the audit in the SQL of Postgres."""

from typing_extensions import override

from service.storage.access.contract import AccessSql
from service.storage.postgres.dialect import PostgresDialect

KEYS_CHANNEL = "recrawl_keys"
"""Channel on which changes of keys are notified."""
NOTIFY_KEYS = f"SELECT pg_notify('{KEYS_CHANNEL}', '')"
MAY_CUT_AUDIT = "SELECT has_table_privilege('audit', 'DELETE')"


class PostgresAccess(AccessSql, PostgresDialect):
    """Keys and the audit in the SQL of Postgres."""

    @override
    def changed_keys(self) -> None:
        super().changed_keys()
        self.run(NOTIFY_KEYS)

    @override
    def may_cut_audit(self) -> bool:
        return bool(self.scalar(MAY_CUT_AUDIT))
