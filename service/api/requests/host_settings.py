"""Settings of hosts and groups as they are sent: what a PUT clears, what is refused."""

from datetime import datetime
from math import isfinite
from typing import Any

from recrawl_client.wire.hosts import GroupBody, HostBody
from service.api.assembly import Service
from service.api.requests.items import sent_fields
from service.api.requests.rules import EARLIEST
from service.core.waits import LONGEST_DELAY_S
from service.epochs.constraints import CONSTRAINED
from service.leases.host_settings import HOURS
from service.model.arrays import LATEST
from service.model.calendars import HourRules, never_open
from service.model.errors import InvalidField
from service.model.windows import checked

ROBOTS = "robots_delay_s"
"""Setting that crawlers change, too."""


def all_settings(body: HostBody | GroupBody) -> dict[str, Any]:
    """Return the settings of a PUT; those left out become None.

    A pause, the doubt about 304 answers, and members stay.
    """
    cleared = set(body.__struct_fields__) - {"blocked_until", "false_304_at", "members"}
    return dict.fromkeys(cleared) | sent_fields(body)


def check_hours(rules: HourRules, settings: dict[str, Any], now: datetime) -> None:
    """Raise `InvalidField` if windows and blackouts that were set leave no opening in a year."""
    for name in HOURS:
        if settings.get(name) and (reason := never_open(rules, now)):
            raise InvalidField(name, f"{name} would close the host for good: {reason}")


def check_settings(service: Service, settings: dict[str, Any]) -> None:
    """Raise `InvalidField` for a value out of range; cut a delay of robots.txt at a day."""
    for name in ("blocked_until", "false_304_at"):
        at = settings.get(name)
        if at is not None and not EARLIEST <= at <= LATEST:
            raise InvalidField(name, f"{name} lies before 1990 or after 9000; send another instant")
    if settings.get("max_crawl_rate") is not None and service.plan.objective != CONSTRAINED:
        raise InvalidField(
            "max_crawl_rate",
            f"the objective {service.plan.objective} keeps no caps of hosts; set "
            f"RECRAWL_OBJECTIVE={CONSTRAINED} or leave max_crawl_rate out",
        )
    for name in HOURS:
        if settings.get(name) is not None:
            settings[name] = checked(name, settings[name])
    if settings.get(ROBOTS) is not None:
        if not isfinite(settings[ROBOTS]):
            raise InvalidField(ROBOTS, f"{ROBOTS} is no finite number; send seconds, 0 or more")
        settings[ROBOTS] = min(settings[ROBOTS], LONGEST_DELAY_S)
