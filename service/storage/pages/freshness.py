"""Evidence of the freshness of pages: the contract, and the SQL that both databases share."""

from abc import abstractmethod

from service.model.arrays import Instants, Ints
from service.model.freshness import FreshnessColumns, LoggedChanges
from service.storage.dialect import IS_HELD, Subject
from service.storage.epochs.schedule import DUE_RATE


class FreshnessStatements(Subject):
    """The statements on freshness."""

    @abstractmethod
    def freshness_columns(self, page_id: Ints) -> FreshnessColumns:
        """Return the evidence of those of the pages that exist, ascending."""

    @abstractmethod
    def logged_changes(self, page_id: Ints, since: Instants) -> LoggedChanges:
        """Return the changes in the log of (N,) pages after (N,) instants, in this order."""


FRESHNESS = f"""
SELECT page_states.page_id, CASE WHEN last_crawl_at IS NULL THEN
        (SELECT created_at FROM pages WHERE pages.page_id = page_states.page_id) END AS created_at,
    last_crawl_at, requested_at, gone, coalesce(n_failures, 0) AS n_failures,
    coalesce(outcome, 0) AS outcome, coalesce(hops, 0) AS hops,
    coalesce(retry_rate, 0.0) AS retry_rate, interval_factor,
    {DUE_RATE} AS due_rate, {IS_HELD} AS held, observability, page_states.host_id,
    url_group, {{observed_at}} AS last_observed_at, last_interval, n_observations, n_changes,
    coalesce(n_pings, 0) AS n_pings, coalesce(recent_pings, 0.0) AS recent_pings, pings_since,
    coalesce(pings_since_crawl, 0) AS pings_since_crawl,
    last_ping_at, coalesce(real_pings, 0.0) AS real_pings,
    coalesce(false_pings, 0.0) AS false_pings, coalesce(trust, 0.0) AS trust, estimate, born_at,
    CASE WHEN shift IS NULL THEN urgency END AS urgency,
    coalesce(observed_ratio, 0.0) AS observed_ratio
FROM page_states
{{schedule_of: schedule, page_states.page_id, %(epoch)s}}
WHERE page_states.page_id {{among_ids}}
ORDER BY page_states.page_id
"""
"""Statement that looks into `pages` only for pages never crawled."""
CHANGES = """observations.changed = 1 AND observations."interval" IS NOT NULL
    AND observations.observed_at > given.since"""
"""Condition on the entries of the log that found a change after an instant."""
