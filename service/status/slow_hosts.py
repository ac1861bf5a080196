"""Hosts whose delay costs much freshness, by the epoch in force and their delay now."""

from datetime import UTC, datetime
from typing import NamedTuple

from service.core.waits import LONGEST_DELAY_S
from service.model.domain import Certificate
from service.model.errors import HostNotFound
from service.model.words import counted, span
from service.storage import Transaction

DAY_S = 86_400.0
SHORTER = 0.99
"""Delay over that of the epoch, from which on the epoch's figures no longer hold."""


class SlowHost(NamedTuple):
    """A host, or its group, that its delay keeps from many crawls."""

    host: str
    group: str
    """Group whose delay it is; "": none."""
    wanted: float
    """Crawls a day that the plan would have without the delay."""
    delay_s: float
    whose: str
    """`robots`, `operator` or `settings`."""
    staler: float
    """Share of the importance that is stale for want of crawls."""
    since: datetime

    @property
    def cause(self) -> str:
        """The delay, whose it is, and what it takes, as a clause."""
        of = f"its group {self.group}" if self.group else self.host
        whose = {
            "robots": f"robots.txt of {self.host} asks for a delay of {span(self.delay_s)}",
            "operator": f"an operator has set a delay of {span(self.delay_s)} for {of}",
            "settings": f"RECRAWL_HOST_DELAY_S sets a delay of {span(self.delay_s)}",
        }[self.whose]
        permitted = counted(max(round(DAY_S / self.delay_s), 1), "crawl")
        return f"{whose}, which leaves {permitted} a day of {self.wanted:,.0f} by the plan"

    @property
    def remedy(self) -> str:
        """The command that changes the delay, or accepts that of a site."""
        if self.whose == "robots":
            return f"recrawl needs accept delay_too_long {self.host}"
        name = f"groups set {self.group}" if self.group else f"hosts set {self.host}"
        return f"recrawl {name} --delay {_rounded(DAY_S / self.wanted)}s"


def slow_hosts(tx: Transaction, certificate: Certificate | None, delay_s: float) -> list[SlowHost]:
    """Return the hosts that the epoch in force names, and that have the same delay still.

    `delay_s` is that of hosts without one of their own.
    """
    slow = []
    for name, wanted, permitted, staler, since in certificate.delay_losses if certificate else ():
        try:
            host = tx.host(name)
        except HostNotFound:
            continue
        queue = host.host_queue
        own = delay_s if queue.min_delay_s is None else queue.min_delay_s
        of_robots = queue.robots_delay_s or 0.0
        now_s = min(max(own, of_robots), LONGEST_DELAY_S)
        if now_s < SHORTER * DAY_S / permitted:
            continue
        whose = "operator" if queue.min_delay_s is not None else "settings"
        whose = "robots" if of_robots > own else whose
        began = datetime.fromtimestamp(since, UTC)
        slow.append(SlowHost(name, host.group or "", wanted, now_s, whose, staler, began))
    return slow


def _rounded(delay_s: float) -> str:
    """Return a delay to a hundredth of a second, rounded down, so that it permits what is wanted.

    >>> _rounded(17.28), _rounded(0.8646), _rounded(3600.0)
    ('17.28', '0.86', '3600')
    """
    return f"{int(delay_s * 100) / 100:g}"
