"""Late crawls: requests that were made, but whose reports came after a newer crawl of their page.

They teach nothing. A request costs all the same, so it counts against the budget of its day. A
report that is sent again is no request, and a past crawl is another crawler's.
"""

import numpy as np

from service.estimation.rules import Rules
from service.history.counting import CrawlEvents
from service.ingest.crawls import outcomes
from service.ingest.past import is_past_at
from service.model.arrays import UNSPECIFIED, Ints, positions
from service.model.columns import CrawlColumns, PageStates
from service.model.outcomes import IS_FAILURE
from service.storage import Transaction


def late_requests(tx: Transaction, states: PageStates, page: Ints, crawls: CrawlColumns) -> Ints:
    """Return the positions of the late crawls that are requests of their own.

    `page` has the row of each crawl's page in the states.
    """
    at = crawls.observed_at
    own = ~is_past_at(tx, states, page, at, crawls.token == 0)
    _, first = np.unique(np.stack([page, at.astype(np.int64)]), axis=1, return_index=True)
    once = np.zeros(len(page), np.bool_)
    once[first] = True
    row = positions(own & once)
    if not row.size:
        return row
    new: Ints = row[~tx.logged(crawls.page_id[row], at[row])]
    return new


def late_events(states: PageStates, page: Ints, crawls: CrawlColumns, rules: Rules) -> CrawlEvents:
    """Return late crawls as the history counts them: they teach nothing."""
    n, nothing = len(page), np.zeros(len(page), np.bool_)
    return CrawlEvents(
        states,
        page,
        crawls.observed_at,
        interval=np.full(n, np.nan),
        changed=np.full(n, UNSPECIFIED, np.int16),
        failing=IS_FAILURE[outcomes(crawls)],
        taught_nothing=~nothing,
        is_evidence=nothing,
        n_pings=np.zeros(n, np.int64),
        rules=rules,
        cost=crawls.cost,
    )
