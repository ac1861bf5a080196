"""The amounts of the budget that crawls take. Pure."""

import numpy as np

from service.model.arrays import Floats
from service.storage.queue.columns import DuePages

GRAIN = 1.0
"""Maximum amount that one crawl takes, crawls."""


def amounts(pages: DuePages) -> Floats:
    """Return the (N,) amounts that crawls of these pages take, crawls."""
    return np.ones(len(pages))
