"""Options and fields of the settings that hosts and groups of hosts share."""

import json
from collections.abc import Iterable
from typing import Annotated, Any

import typer

from service.cli.durations import read_duration
from service.cli.options import finite
from service.cli.output import shown
from service.cli.pairs import pairs

NULL = "null"
"""Text of an option that restores the default."""

Delay = Annotated[str | None, typer.Option(help="Time between two crawls, such as 2s")]
AtATime = Annotated[int | None, typer.Option(min=1, help="Maximum of leases at a time")]
ADay = Annotated[float | None, typer.Option(min=0, callback=finite, help="Maximum of crawls a day")]
LatencyFactor = Annotated[
    float | None,
    typer.Option(min=0, callback=finite, help="Delay over a high latency, such as 5; 0: none"),
]
MaxDelay = Annotated[str | None, typer.Option(help="Maximum delay by latency, such as 30s")]
Windows = Annotated[
    str | None, typer.Option(help="Windows, such as 'Mon-Fri 22:00-06:00 Europe/Berlin'")
]
Blackouts = Annotated[
    str | None, typer.Option(help="Days without crawls, such as '2026-12-24 Europe/Berlin'")
]


def fields_of(
    settings: list[str] | None,
    delay: str | None,
    at_a_time: int | None,
    a_day: float | None,
    latency_factor: float | None,
    max_delay: str | None,
    windows: str | None,
    blackouts: str | None,
    members: list[str] | None = None,
) -> dict[str, Any]:
    """Return the fields that texts NAME=VALUE and options set; None restores a default."""
    options = {
        "min_delay_s": _seconds(delay),
        "max_concurrency": at_a_time,
        "max_crawl_rate": a_day,
        "latency_factor": latency_factor,
        "max_delay_s": _seconds(max_delay),
        "windows": windows,
        "blackouts": blackouts,
        "members": members or None,
    }
    fields: dict[str, Any] = settings_of(settings)
    fields |= {
        name: None if value == NULL else value
        for name, value in options.items()
        if value is not None
    }
    for name in ("windows", "blackouts"):
        if isinstance(fields.get(name), str):
            fields[name] = [part.strip() for part in fields[name].split(";") if part.strip()]
    if not fields:
        raise typer.BadParameter("nothing to set; name a field or an option", param_hint="SETTINGS")
    return fields


def values_of(answer: Any, names: Iterable[str]) -> str:
    """Return the values of fields after a change, in words."""
    from msgspec import to_builtins

    values = to_builtins(answer)
    values |= {"blocked_until": values["host_queue"]["blocked_until"]}
    return ", ".join(f"{name} {shown(values.get(name)) or 'by default'}" for name in names)


def _seconds(duration: str | None) -> float | str | None:
    """Return a duration such as 2s in seconds; `0` and `0s` are durations too, `null` is none."""
    if duration is None or duration == NULL:
        return duration
    if duration == "0":
        return 0.0
    return read_duration(duration, zero=True).total_seconds()


def settings_of(texts: list[str] | None) -> dict[str, Any]:
    """Return settings by name, from NAME=VALUE; a value that is no JSON is a text."""
    return {name: _value(text) for name, text in pairs(texts or (), "SETTINGS")}


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
