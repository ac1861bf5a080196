"""Pauses as they are sent: by a duration, or by an end."""

from datetime import datetime, timedelta

from msgspec import UnsetType

from recrawl_client.wire.orders import PauseBody
from service.model.arrays import LATEST
from service.model.errors import InvalidField


def end_of(pause: PauseBody, now: datetime) -> datetime:
    """Return the end of a pause that begins now; raise `InvalidField`."""
    until, for_s = pause.until, pause.for_s
    if isinstance(until, UnsetType) == isinstance(for_s, UnsetType):
        both = "both for_s and until are" if isinstance(until, datetime) else "no field is"
        raise InvalidField(
            "until", f"{both} sent; send for_s, such as 3600 for an hour, or until, an instant"
        )
    if isinstance(for_s, float | int):
        return now + timedelta(seconds=for_s)
    if isinstance(until, UnsetType) or not now < until <= LATEST:
        raise InvalidField(
            "until",
            f"{until} is not after now ({now:%Y-%m-%dT%H:%M:%SZ}) and before the year 9000; send "
            "a later instant, or DELETE to end a pause",
        )
    return until
