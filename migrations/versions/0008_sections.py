"""Sections: pages of one directory are believed to change alike.

Every page's section is computed from its URL, a block of pages at a time. On Postgres the rows are
written anew, as by as many observations, and what they leave is used again by the next ones.

Revision ID: 0008
Revises: 0007
"""

import sqlalchemy as sa
from alembic import op

from service.sections import sections

revision = "0008"
down_revision = "0007"

BLOCK = 20_000
"""Pages in memory at a time."""

Id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

READ = sa.text("SELECT page_id, url FROM pages WHERE page_id > :after ORDER BY page_id LIMIT :n")

POSTGRES_WRITE = sa.text("""
UPDATE page_states SET section = given.section
FROM unnest(CAST(:page_id AS bigint[]), CAST(:section AS integer[])) AS given (page_id, section)
WHERE page_states.page_id = given.page_id
""")

SQLITE_WRITE = sa.text("UPDATE page_states SET section = :section WHERE page_id = :page_id")


def upgrade() -> None:
    section = sa.Column("section", sa.Integer, nullable=False, server_default="0")
    op.add_column("page_states", section)
    op.create_table(
        "section_rates",
        sa.Column("epoch", Id, autoincrement=False),
        sa.Column("rate", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("epoch", name="section_rates_pkey"),
        comment="Mean change rate of each section; compressed, one row an epoch that is kept.",
    )
    connection, after = op.get_bind(), 0
    while rows := connection.execute(READ, {"after": after, "n": BLOCK}).all():
        page_id, urls = zip(*rows, strict=True)
        write(connection, list(page_id), sections(urls).tolist())
        after = page_id[-1]


def downgrade() -> None:
    op.drop_table("section_rates")
    op.drop_column("page_states", "section")


def write(connection: sa.Connection, page_id: list[int], section: list[int]) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(POSTGRES_WRITE, {"page_id": page_id, "section": section})
        return
    rows = [{"page_id": p, "section": s} for p, s in zip(page_id, section, strict=True)]
    connection.execute(SQLITE_WRITE, rows)
