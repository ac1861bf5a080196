"""Numbers with seven digits (float4), for tables with many rows: decision record 8."""

import numpy as np
from numpy.typing import NDArray

from service.model.arrays import Floats

SHORT = ("interval_factor", "last_interval", "last_age", "retry_rate")
"""Columns of a state that are float4, seven digits."""
SHORT_RATES = ("change_rate", "crawl_rate")
"""Columns of a schedule that are float4, seven digits."""

LEAST, MOST = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)
"""Bounds of a positive float4."""


def short(numbers: Floats) -> Floats:
    """Return numbers rounded to float4; Postgres itself refuses numbers out of float4's range."""
    return np.minimum(np.maximum(numbers, -MOST), MOST).astype(np.float32).astype(np.float64)


def narrow(rate: Floats) -> NDArray[np.float32]:
    """Return rates as float4, as a schedule stores them; a rate above 0 stays above 0."""
    short_rate = np.minimum(rate, MOST).astype(np.float32)
    return np.maximum(short_rate, LEAST, out=short_rate, where=rate > 0)


def broad(rate: Floats) -> Floats:
    """Return rates rounded to the seven digits of float4: 0.1 instead of 0.10000000149.

    >>> broad(np.array([0.1, 1 / 3, 0.0, 1e9], np.float32).astype(np.float64))
    array([1.000000e-01, 3.333333e-01, 0.000000e+00, 1.000000e+09])
    """
    place = np.floor(np.log10(rate, out=np.zeros_like(rate), where=rate > 0)) - 6
    up, down = 10.0 ** np.maximum(-place, 0), 10.0 ** np.maximum(place, 0)
    return np.asarray(np.rint(rate * up / down) / up * down)
