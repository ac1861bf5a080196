"""Durations and instants as options of commands."""

from datetime import UTC, datetime, timedelta

import typer

from service.model.moments import duration_of, is_duration, moment_of


def read_duration(text: str, *, zero: bool = False) -> timedelta:
    """Return a duration; raise `BadParameter`."""
    try:
        return duration_of(text, zero=zero)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def read_moment(text: str, span: str = "how long ago it is") -> datetime:
    """Return an instant, as `moment_of`; raise `BadParameter`."""
    try:
        return moment_of(text, datetime.now(UTC), span)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def read_end(text: str) -> float | datetime:
    """Return the span of a pause: its duration, seconds, or the instant of its end."""
    if is_duration(text):
        return read_duration(text).total_seconds()
    return read_moment(text, "how long it lasts")
