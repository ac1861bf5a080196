"""Change rates and hours that epochs learn, and the schedules that they publish."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from service.storage.tables.kinds import HOT, Id, Instant, Json, metadata

epochs = sa.Table(
    "epochs",
    metadata,
    sa.Column("epoch", Id, sa.Identity(), primary_key=True),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("requested_at", Instant, nullable=False),
    sa.Column("started_at", Instant),
    sa.Column("finished_at", Instant),
    sa.Column("reason", sa.Text),
    sa.Column("bandwidth", sa.Double),
    sa.Column("bandwidth_used", sa.Double),
    sa.Column("multiplier", sa.Double),
    sa.Column("harmonic_cost", sa.Double),
    sa.Column("binary_cost", sa.Double),
    sa.Column("kkt_residual", sa.Double),
    sa.Column("duality_gap", sa.Double),
    sa.Column("passes", sa.Integer),
    sa.Column("n_pages", sa.BigInteger),
    sa.Column("prior", Json),
    sa.Column("crawl_rate_quantiles", Json),
    sa.Column("seconds", Json),
    sa.Column("budget_factor", sa.Double),
    sa.Column("observed_ratios", Json),
    sa.Column("planned", sa.Double),
    sa.Column("overhead", sa.Double),
    sa.Column("first_crawls", sa.Double),
    sa.Column("unit", sa.Text),
    sa.Column("age_evidence", Json),
    sa.Column("recalibration", Json),
    sa.Column("window_losses", Json),
    sa.Column("window_demand", Json),
    sa.Column("feedback", sa.Double),
    sa.Column("still_due", sa.Double),
    sa.Column("delay_losses", Json),
    sa.Column("n_assumed_costs", sa.BigInteger),
    sa.Column("min_bandwidth", sa.Double),
    sa.Index(
        "epochs_one_request_idx",
        "status",
        unique=True,
        postgresql_where=sa.text("status = 'requested'"),
        sqlite_where=sa.text("status = 'requested'"),
    ),
    sqlite_autoincrement=True,
)

url_groups = sa.Table(
    "url_groups",
    metadata,
    sa.Column("epoch", Id, primary_key=True, autoincrement=False),
    sa.Column("shard", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("rate", sa.LargeBinary),
    sa.Column("share_evidence", sa.LargeBinary),
    sa.Column("wide_revisions", sa.LargeBinary),
    sa.Column("ping_feeds", sa.LargeBinary),
    comment="Mean change rates and shares of url_groups; compressed, by kept epoch and shard.",
)

url_levels = sa.Table(
    "url_levels",
    metadata,
    sa.Column("level", Id, primary_key=True, autoincrement=False),
    sa.Column("parent", Id, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    *(
        sa.Column(name, sa.BigInteger, nullable=False, server_default="0")
        for name in (
            *("n_first", "n_new", "n_opened", "n_opened_new"),
            *("n_in_flight", "n_forbidden", "n_led"),
        )
    ),
    sa.Column("rule", sa.SmallInteger),
    sa.Column("stopped", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("since", Instant, nullable=False),
    sa.Column("sampled_at", Instant),
    sa.Index(None, "parent"),
    sa.Index(None, "name"),
    sa.Index(
        "url_levels_stopped_idx",
        "sampled_at",
        "level",
        postgresql_where=sa.text("stopped"),
        sqlite_where=sa.text("stopped"),
    ),
    comment="First crawls and verdicts of the levels of URLs, from hosts to last segments.",
    postgresql_with=HOT,
)

digests = sa.Table(
    "digests",
    metadata,
    sa.Column("digest", sa.BigInteger, primary_key=True, autoincrement=False),
    comment="Digests that first crawls have brought, which are new no more.",
)

change_hours = sa.Table(
    "change_hours",
    metadata,
    sa.Column("host_id", Id, primary_key=True, autoincrement=False),
    sa.Column("learnt_at", Instant, nullable=False),
    sa.Column("has_hours", sa.Boolean, nullable=False),
    sa.Column("evidence", sa.LargeBinary, nullable=False),
    sa.Column("profile", sa.LargeBinary, nullable=False),
    sa.Index(
        "change_hours_has_hours_idx",
        "host_id",
        postgresql_where=sa.text("has_hours"),
        sqlite_where=sa.text("has_hours"),
    ),
    comment="Evidence of the hours at which pages of hosts change; a host learns once a day.",
    postgresql_with={"fillfactor": "90"},
)

group_hours = sa.Table(
    "group_hours",
    metadata,
    sa.Column("host_id", Id, primary_key=True, autoincrement=False),
    sa.Column("url_group", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("seen_at", Instant, nullable=False),
    sa.Column("page_id", Id),
    sa.Column("in_force", sa.Boolean),
    sa.Column("has_own", sa.Boolean),
    sa.Column("screen", sa.LargeBinary),
    sa.Column("evidence", sa.LargeBinary),
    sa.Column("profile", sa.LargeBinary),
    sa.Index(
        "group_hours_has_own_idx",
        "host_id",
        "url_group",
        postgresql_where=sa.text("has_own"),
        sqlite_where=sa.text("has_own"),
    ),
    comment="Change hours of URL groups: a screen, or evidence and the profile in force.",
    postgresql_with={"fillfactor": "90"},
)


def _by_block(kind: type[sa.types.TypeEngine[Any]], element: Any) -> sa.types.TypeEngine[Any]:
    """Return the type of a column of schedules: on Postgres the numbers of a block of pages."""
    return kind().with_variant(postgresql.ARRAY(element), "postgresql")


MINUTES = sa.SmallInteger().with_variant(sa.LargeBinary(), "postgresql")
"""Type of moves; on Postgres those of a block are packed (`epochs.schedule_blocks`)."""

schedule = sa.Table(
    "schedule",
    metadata,
    sa.Column("block", sa.BigInteger, nullable=False, info={"only": "postgresql"}),
    sa.Column("epoch", sa.Integer, nullable=False),
    sa.Column("page_id", Id, nullable=False, info={"only": "sqlite"}),
    sa.Column("change_rate", _by_block(sa.Double, sa.REAL), nullable=False),
    sa.Column("crawl_rate", _by_block(sa.Double, sa.REAL), nullable=False),
    sa.Column("urgency", _by_block(sa.Double, sa.REAL), nullable=False),
    sa.Column("crawl_probability", _by_block(sa.Double, sa.Double)),
    sa.Column("shift", MINUTES),
    sa.Column("carried", MINUTES),
    sa.Column("observed_ratio", _by_block(sa.Double, sa.REAL)),
    sa.PrimaryKeyConstraint("epoch", "page_id").ddl_if("sqlite"),
    sa.Index(None, "block").ddl_if("postgresql"),
    comment="Schedules that epochs published; on Postgres one partition an epoch.",
    postgresql_partition_by="LIST (epoch)",
    sqlite_with_rowid=False,
)
