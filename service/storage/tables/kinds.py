"""Types of columns, the schema they belong to, and how busy tables are kept."""

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

metadata = sa.MetaData(
    naming_convention={
        "pk": "%(table_name)s_pkey",
        "uq": "%(table_name)s_%(column_0_name)s_key",
        "ix": "%(table_name)s_%(column_0_name)s_idx",
        "fk": "%(table_name)s_%(column_0_name)s_fkey",
    }
)

Instant = sa.DateTime(timezone=True).with_variant(sa.BigInteger(), "sqlite")
"""Type of instants, UTC: `timestamptz` on Postgres, microseconds since 1970 on SQLite."""
Key = sa.LargeBinary(16).with_variant(postgresql.UUID(as_uuid=False), "postgresql")
Id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
Short: sa.types.TypeEngine[float] = sa.Double().with_variant(sa.REAL, "postgresql")
"""Type of numbers with seven digits, four bytes on Postgres, for tables with many rows."""
Json = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")

HOT = {
    "fillfactor": "70",
    "autovacuum_vacuum_scale_factor": "0.05",
    "autovacuum_vacuum_cost_delay": "0",
}
