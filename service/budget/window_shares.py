"""The share of the plan that is of hosts with windows, and the pace after a change of it."""

from service.core.pace import regrouped
from service.model.amounts import CRAWLS
from service.model.domain import Certificate
from service.storage import Transaction


def window_share(certificate: Certificate | None) -> float:
    """Return the share of the planned amount a day that is of hosts with windows."""
    if certificate is None or not certificate.window_demand:
        return 0.0
    of_all = sum(a_day for *_, a_day in certificate.window_demand)
    closes = sum(a_day for *texts, a_day in certificate.window_demand if any(texts))
    return closes / of_all if of_all > 0 else 0.0


def follow_windows(tx: Transaction, before: Certificate | None, after: Certificate) -> None:
    """Count the crawls of the day by the hosts that have windows in the plan of a new epoch.

    Without an epoch before, leases have counted them.
    """
    was, share = window_share(before), window_share(after)
    if before is None or was == share:
        return
    pace = tx.lock_pace()
    if pace is not None:
        tx.save_pace(regrouped(pace, was, share), tx.pace_unit() or CRAWLS)
