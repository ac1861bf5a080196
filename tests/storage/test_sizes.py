"""What a database weighs stays what it is, however many epochs it has seen."""

from datetime import timedelta

import numpy as np
import pytest
from support.store_cases import DAY, T0, crawl_columns, register

from service.core.estimators.gamma import Gamma
from service.epochs.plan import Plan
from service.epochs.run import run_epoch
from service.estimation.rules import Rules
from service.ingest.record import record
from service.model.arrays import instant
from service.model.domain import EpochStatus, Timing

N_PAGES = 5_000
RULES = Rules(Gamma(), Timing.periodic, np.random.default_rng(1))
PLAN = Plan(Gamma(), retention=timedelta(days=2))

POSTGRES = """
SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class
WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace AND relname !~ '^observations'
"""
"""Without the log, which is dropped by the month."""
SQLITE = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"


@pytest.mark.slow
def test_after_the_third_epoch_a_database_with_retention_grows_by_less_than_a_tenth(sql_store):
    rng = np.random.default_rng(2)
    ids = np.sort(register(sql_store, N_PAGES))
    on_postgres = sql_store.engine.dialect.name == "postgresql"
    weighed = POSTGRES if on_postgres else SQLITE
    sizes = []
    for day in range(21):
        now = T0 + day * DAY
        crawled = np.sort(rng.choice(ids, N_PAGES // 10, replace=False)) if day else ids
        crawls = crawl_columns(crawled, np.repeat(instant(now), len(crawled)), changed=day % 2)
        with sql_store.begin() as tx:
            record(tx, crawls, RULES)
        assert run_epoch(sql_store, PLAN, lambda now=now: now).status is EpochStatus.published
        if on_postgres:  # in a day autovacuum comes by
            with sql_store.engine.connect() as connection:
                bare = connection.execution_options(isolation_level="AUTOCOMMIT")
                bare.exec_driver_sql("VACUUM page_states, epochs")
        with sql_store.begin(write=False) as tx:
            sizes.append(tx.scalar(weighed))
    assert abs(sizes[20] / sizes[3] - 1) < 0.1, sizes
