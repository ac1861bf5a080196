"""Columns as Postgres stores them: NULL for none, fewer bytes where they do."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.model.arrays import NO_TIME, UNSPECIFIED, Floats
from service.model.columns import PageStates
from service.storage.postgres import binary
from service.storage.postgres.sql import OF_STATES

NULL_FOR_ZERO = (
    "digest",
    "n_pings",
    "ping_credit",
    "pings_since_crawl",
    "real_pings",
    "false_pings",
    "trust",
    "n_failures",
    "redirects_to",
)
NULL_FOR_NO_TIME = ("last_crawl_at", "last_observed_at", "last_ping_at", "requested_at")

SELDOM_SET = {
    **dict.fromkeys((name for name in NULL_FOR_ZERO if name != "digest"), 0),
    **dict.fromkeys(("last_ping_at", "requested_at"), NO_TIME),
}
"""Columns of a state that few pages have, those of pings, requests and failures: their None."""

NARROW = {
    "n_observations": np.int32,
    "n_changes": np.int32,
    "n_pings": np.int32,
    "pings_since_crawl": np.int32,
    "n_failures": np.int16,
    "interval_factor": np.float32,
    "last_interval": np.float32,
}
"""Columns of a state that the tables keep in fewer bytes."""

SHORT = ("interval_factor", "last_interval")
"""Numbers of a state that are float4, seven digits."""
SHORT_RATES = ("change_rate", "crawl_rate")
"""Rates of a schedule that are float4, seven digits."""

LEAST, MOST = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)
"""Bounds of a positive float4."""


def short(numbers: Floats) -> Floats:
    """Return numbers as a float4 holds them: Postgres refuses what is too large or rounds to 0."""
    return np.clip(numbers, -MOST, MOST).astype(np.float32).astype(np.float64)


def narrow(rate: Floats) -> NDArray[np.float32]:
    """Return rates as a schedule keeps them; a rate above 0 stays above 0."""
    kept = np.minimum(rate, MOST).astype(np.float32)
    return np.maximum(kept, LEAST, out=kept, where=rate > 0)


def broad(rate: Floats) -> Floats:
    """Return the seven digits of rates that were kept: 0.1 is 0.1 again, not 0.10000000149.

    Examples
    --------
    >>> broad(np.array([0.1, 1 / 3, 0.0, 1e9], np.float32).astype(np.float64))
    array([1.000000e-01, 3.333333e-01, 0.000000e+00, 1.000000e+09])
    """
    place = np.floor(np.log10(rate, out=np.zeros_like(rate), where=rate > 0)) - 6
    up, down = 10.0 ** np.maximum(-place, 0), 10.0 ** np.maximum(place, 0)
    return np.asarray(np.rint(rate * up / down) / up * down)


def rare_first(states: PageStates) -> tuple[PageStates, int]:
    """Return states with those in front that have a rare value, and the number of those.

    Ten columns that are empty for most pages would take a quarter of the time of an update.
    """
    has_rare = np.zeros(len(states), bool)
    for name, none in SELDOM_SET.items():
        column = getattr(states, name)
        has_rare |= ~np.isnat(column) if none is NO_TIME else column != none
    return states.take(np.argsort(~has_rare, kind="stable")), int(has_rare.sum())


def stored(states: PageStates) -> list[NDArray[Any]]:
    """Return states as COPY takes them, NULL where the tables have it."""
    columns = {name: getattr(states, name) for name in OF_STATES if name != "observability"}
    for name in SHORT:
        columns[name] = short(columns[name])
    for name, dtype in NARROW.items():
        columns[name] = columns[name].astype(dtype)
    for name in NULL_FOR_ZERO:
        columns[name] = np.ma.masked_equal(columns[name], 0, copy=False)
    for name in NULL_FOR_NO_TIME:
        columns[name] = np.ma.array(columns[name], mask=np.isnat(columns[name]))
    columns["estimate"] = binary.wire(columns["estimate"])
    return [*columns.values(), states.observability]


def masked(column: NDArray[Any]) -> NDArray[Any]:
    """Mask what stands for none: NaN of a number, UNSPECIFIED of a code."""
    if column.dtype.kind != "f" and column.dtype != np.int16:
        return column
    none = np.isnan(column) if column.dtype.kind == "f" else column == UNSPECIFIED
    return np.ma.array(column, mask=none) if none.any() else column
