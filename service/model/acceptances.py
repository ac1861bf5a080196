"""Needs that an operator has accepted for some time."""

from datetime import datetime
from typing import NamedTuple


class Acceptance(NamedTuple):
    """The acceptance of a need."""

    kind: str
    subject: str
    accepted_at: datetime
    until: datetime
    reason: str = ""
    """Words of the operator; "": none were sent."""
