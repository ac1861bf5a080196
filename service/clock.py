"""The time of day: the only place where the service reads the machine's clock."""

from datetime import UTC, datetime


def system_clock() -> datetime:
    """Return the machine's time of day, UTC."""
    return datetime.now(UTC)
