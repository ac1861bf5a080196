"""Epochs: the list, one epoch with its certificate, and a request for a new one."""

from fastapi import Response

from recrawl_client.wire.listing import PagesAnswer
from recrawl_client.wire.orders import BudgetAnswer
from recrawl_client.wire.schedule import Epoch, EpochsAnswer
from service.api.routes import epochs, listing, orders
from service.console.achieved import achieved
from service.console.reliability import reliability
from service.console.visit import Visit
from service.history.reading import calibrations_of

PART = 20
REACH = 4.0
"""Reach of the slider of the bandwidth, as a factor on the bandwidth in force."""
RUNNING = frozenset({"requested", "running"})
FORECASTS = "30d"
"""Range of time whose forecasts the list compares with crawls."""
OPTIMAL = 1e-6
"""Largest violation of an optimality condition that is rounding, a share."""


def show_all(visit: Visit) -> Response:
    """Show a part of the list of epochs."""
    values = {"limit": PART} | visit.parameters("list_epochs")
    part = visit.ask(EpochsAnswer, epochs.list_epochs, request=visit.request, **values)
    with visit.service.store.begin(write=False) as tx:
        published = tx.epoch_in_force()
    certificate = published and published.certificate
    amount = visit.service.budget.amount
    bandwidth = certificate and (amount.value if amount else certificate.bandwidth)
    low, high = (bandwidth / REACH, bandwidth * REACH) if bandwidth else (0.0, 0.0)
    return visit.page(
        "epochs.html",
        part=part,
        bandwidth=bandwidth,
        unit=visit.service.budget.unit,
        budget=visit.ask(BudgetAnswer, orders.get_budget) if visit.may("get_budget") else None,
        low=low,
        high=high,
        optimality=optimality,
        reliability=[] if "cursor" in values else reliability(achieved(visit, FORECASTS).forecasts),
        lacks_worker=not part.items and not visit.service.embedded and has_pages(visit),
    )


def optimality(violation: float | None) -> tuple[str, str, str] | None:
    """Return how good a plan is: a word, the kind of its badge, and the figure behind it.

    >>> optimality(3.7e-16)
    ('optimal', 'good', 'largest violation of an optimality condition: 3.7e-16')
    >>> optimality(0.02)[0]
    'off by up to 2%'
    """
    if violation is None:
        return None
    figure = f"largest violation of an optimality condition: {violation:.2g}"
    if violation <= OPTIMAL:
        return "optimal", "good", figure
    return f"off by up to {100 * violation:.2g}%", "warn", figure


def has_pages(visit: Visit) -> bool:
    """Return whether a page is registered."""
    listed = visit.ask(
        PagesAnswer,
        listing.list_all_pages,
        request=visit.request,
        caller=visit.caller,
        limit=1,
    )
    return bool(listed.items)


def show(visit: Visit) -> Response:
    """Show one epoch; the page of one that runs refreshes itself."""
    epoch = visit.ask(Epoch, epochs.get_epoch, **visit.parameters("get_epoch"))
    with visit.service.store.begin(write=False) as tx:
        forecasts = calibrations_of(tx, epoch.epoch)
    return visit.page(
        "part_epoch.html" if visit.wants_part else "epoch.html",
        epoch=epoch,
        runs=epoch.status in RUNNING,
        optimality=optimality,
        reliability=reliability(forecasts),
    )


def request(visit: Visit) -> Response:
    """Request an epoch, and show how far it is."""
    epoch = epochs.request_epoch(visit.service, visit.actor)
    return visit.go(f"/console/epochs/{epoch.epoch}")
