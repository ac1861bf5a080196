"""What Postgres stores of a column, and back: NULL for none, fewer bytes where they do."""

from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.arrays import UNSAID, Floats
from service.columns import PageStates
from service.storage import pgbinary
from service.storage.sql import PING_NUMBERS

EVENTFUL = ("recent_pings", "ping_credit", *PING_NUMBERS, "n_failures", "redirects_to")
"""NULL in the tables where they are 0, as they are of most pages."""

LEAST, MOST = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)
"""A schedule keeps rates in four bytes, seven digits: they are 0 or between these."""
KEPT_SHORT = ("change_rate", "crawl_rate")

NARROW = {
    "n_observations": np.int32, "n_changes": np.int32, "n_pings": np.int32,
    "recent_pings": np.int32, "n_failures": np.int16, "gap": np.float32,
    "last_interval": np.float32,
}  # fmt: skip
"""Columns of a state that the tables keep in fewer bytes."""

SHORT = ("gap", "last_interval")
"""Numbers of a state that Postgres keeps in four bytes."""

KINDS: dict[str, Any] = {f.name: f.type for f in fields(PageStates)}


def eventful(states: PageStates) -> bool:
    """Whether any page has what only pings, failures and redirects bring."""
    numbers = (getattr(states, name) for name in EVENTFUL)
    instants = (states.last_ping_at, states.wanted_at)
    return any(n.any() for n in numbers) or not all(np.isnat(at).all() for at in instants)


def short(numbers: Floats) -> Floats:
    """Return numbers as a `real` holds them: Postgres refuses what is too large or rounds to 0."""
    return np.clip(numbers, -MOST, MOST).astype(np.float32).astype(np.float64)


def stored(states: PageStates) -> list[NDArray[Any]]:
    """Give states as COPY takes them, NULL where the tables have it."""
    names = (name for name in KINDS if name not in ("crawl_rate", "crawl_probability"))
    columns = {name: getattr(states, name) for name in names}
    for name in SHORT:
        columns[name] = short(columns[name])
    for name, dtype in NARROW.items():
        columns[name] = columns[name].astype(dtype)
    for name in ("digest", *EVENTFUL):
        columns[name] = np.ma.masked_equal(columns[name], 0, copy=False)
    for name in ("last_crawl_at", "last_observed_at", "last_ping_at", "wanted_at"):
        columns[name] = np.ma.array(columns[name], mask=np.isnat(columns[name]))
    columns["estimate"] = pgbinary.wire(columns["estimate"])
    return list(columns.values())


def masked(column: NDArray[Any]) -> NDArray[Any]:
    """Mask what says "none": NaN of a number, UNSAID of a code."""
    if column.dtype.kind != "f" and column.dtype != np.int16:
        return column
    none = np.isnan(column) if column.dtype.kind == "f" else column == UNSAID
    return np.ma.array(column, mask=none) if none.any() else column


def narrow(rate: Floats) -> NDArray[np.float32]:
    """Give rates as a schedule keeps them; what is above 0 stays above."""
    short = np.minimum(rate, MOST).astype(np.float32)
    return np.maximum(short, LEAST, out=short, where=rate > 0)


def broad(rate: Floats) -> Floats:
    """Give the seven digits of rates that were kept: 0.1 is 0.1 again, not 0.10000000149.

    Examples
    --------
    >>> broad(np.array([0.1, 1 / 3, 0.0, 1e9], np.float32).astype(np.float64))
    array([1.000000e-01, 3.333333e-01, 0.000000e+00, 1.000000e+09])
    """
    place = np.floor(np.log10(rate, out=np.zeros_like(rate), where=rate > 0)) - 6
    up, down = 10.0 ** np.maximum(-place, 0), 10.0 ** np.maximum(place, 0)
    return np.asarray(np.rint(rate * up / down) / up * down)
