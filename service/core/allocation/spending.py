r"""Spend in place of crawl rates: the problem with costs as one without. Pure.

A crawl of a page takes c of the budget. The spend :math:`y = c \rho` of a page solves the problem
without costs at a change rate of :math:`c \Delta`, because the harmonic cost depends on
:math:`\Delta / \rho` alone. Bounds become :math:`c a \le y \le c b`.
"""

import numpy as np

from service.core.allocation.blocks import Pages
from service.core.checks import Floats, InvalidInput

LEAST, MOST = 1e-60, 1e60
"""Bounds of a change rate times a cost, with which no product in a pass leaves float64."""


def spending(pages: Pages) -> Pages:
    """Return pages without costs whose optimal rates are the spend of these pages, amount a day.

    Raise `InvalidInput` where a change rate times a cost leaves the range of the solver.
    """
    check_range(pages)
    cost, least, most = cost_of(pages), pages.min_crawl_rate, pages.max_crawl_rate
    return pages._replace(
        change_rate=pages.change_rate * cost,
        min_crawl_rate=None if least is None else least * cost,
        max_crawl_rate=None if most is None else most * cost,
        cost=None,
    )


def check_range(pages: Pages) -> None:
    """Raise `InvalidInput` where a change rate times a cost leaves the range of the solver."""
    cost, change_rate = cost_of(pages), pages.change_rate
    if not cost.size or (
        cost.min() * change_rate.min() > LEAST and cost.max() * change_rate.max() < MOST
    ):
        return
    with np.errstate(over="ignore"):
        product = change_rate * cost
    beyond = (product > 0) & ~((product > LEAST) & (product < MOST))
    if beyond.any():
        raise InvalidInput("cost", "times change_rate is out of range", np.flatnonzero(beyond))


def cost_of(pages: Pages) -> Floats:
    """Return the costs of crawls of pages; raise `InvalidInput` without."""
    if pages.cost is None:
        raise InvalidInput("cost", "is missing")
    return pages.cost
