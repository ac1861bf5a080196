"""The rate by which a page without content is tried again: that of its last share. Pure.

The epoch takes the share of a page that lacks content (`outcomes.lacks_content`), so its rate in
the schedule becomes 0. The rate of its last share stays in the page's state meanwhile, and until
its second content: a page that is back has no share before the next epoch.

| crawls of a batch | `retry_rate` after them |
| --- | --- |
| the last one without content | the rate in force; without a share as before |
| the last one with content, after one without, no share in force | as before |
| any other | 0 |

Until its next crawl, the rate of a page with content is that of its plan if pings have earned the
crawl (`ingest.credit`).

A batch of crawls with content reads no rates in force, which are NaN then and count as no share.
"""

import numpy as np

from service.model.arrays import Floats, Ints
from service.model.columns import PageStates


def retry_rates(states: PageStates, n_failures: Ints) -> Floats:
    """Return (P,) retry rates, 1/day, after crawls of pages with these `states` before them.

    `n_failures` has the (P,) crawls in a row without content after the crawls.
    """
    lacking, before = n_failures > 0, states.retry_rate
    if not (lacking.any() or before.any()):
        return before
    shared = states.crawl_rate > 0
    kept = np.where(lacking | (states.n_failures > 0), before, 0.0)
    return np.where(shared, np.where(lacking, states.crawl_rate, 0.0), kept)
