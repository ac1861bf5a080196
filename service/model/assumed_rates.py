"""Change rates that are assumed, because their pages have no evidence. Pure."""

from typing import Any

import numpy as np

from service.model.domain import Observability


def assumed(pages: Any) -> Any:
    """Return whether the change rate of a page, or of (N,) pages, rests on no evidence of its own.

    Evidence is an interval between two crawls or captures, or a ping of a `complete` page. Pings of
    other pages show no change until a crawl has found it. `pages` has `n_observations`, `n_pings`,
    `observability` and `estimate`.
    """
    pinged = (pages.n_pings > 0) & (pages.observability == Observability.complete)
    return ~(np.any(pages.estimate, axis=-1) | (pages.n_observations > 0) | pinged)
