"""Rows of the history, as answers."""

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

from recrawl_client.wire.history import Calibration, CalibrationBin, HistoryRow
from service.core.calibration import EDGES, N_BINS, CalibrationSums, calibration
from service.history.reading import Row
from service.model.amounts import CRAWLS, fine_units
from service.model.history import Gauges

GAUGES = tuple(name for name in HistoryRow.__struct_fields__ if name in Gauges.__dataclass_fields__)

SHOWN_BINS = 20
"""Number of bins of an answer, a divisor of `N_BINS`."""
SHOWN_EDGES = EDGES[N_BINS // SHOWN_BINS - 1 :: N_BINS // SHOWN_BINS].tolist()
"""Upper edges of these bins."""


def encode_row(row: Row, unit: str = CRAWLS, unit_since: datetime | None = None) -> HistoryRow:
    """Return a row of an answer; `unit` is that of the budget, since its last change."""
    values: dict[str, Any] = {**row.counts, **dict.fromkeys(GAUGES)}
    del values["n_late"]
    values["spent"] = None if is_before(row.at, unit_since) else spent_in(unit, row.counts)
    if row.gauges is not None:
        own = asdict(row.gauges)
        values |= {name: own[name] for name in GAUGES}
    return HistoryRow(
        at=row.at,
        complete=row.complete,
        epoch=row.epoch,
        n_asked=row.n_asked,
        calibration=encode_calibrations(row.calibrations),
        **values,
    )


def is_before(at: datetime, unit_since: datetime | None) -> bool:
    """Return whether amounts from an instant on are, in part, in another unit than the budget."""
    return unit_since is not None and at <= unit_since


def spent_in(unit: str, counts: Mapping[str, int]) -> float | None:
    """Return what crawls have spent, in the unit of the budget; None under one of crawls.

    >>> spent_in("USD", {"spent": 12_500}), spent_in("crawls", {"spent": 0})
    (0.0125, None)
    """
    return None if unit == CRAWLS else counts["spent"] / fine_units(unit)


def encode_calibrations(calibrations: Mapping[str, CalibrationSums]) -> list[Calibration]:
    """Return predictions against crawls, by the name of the estimator."""
    return [_calibration(name, sums) for name, sums in sorted(calibrations.items()) if sums.n.any()]


def _calibration(estimator: str, sums: CalibrationSums) -> Calibration:
    scores = calibration(sums)
    assert scores is not None  # noqa: S101 - there are predictions
    columns = (sums.n, sums.sum_predicted, sums.n_changed)
    merged = (column.reshape(SHOWN_BINS, -1).sum(axis=1).tolist() for column in columns)
    bins = zip(SHOWN_EDGES, *merged, strict=True)
    return Calibration(
        estimator=estimator,
        n=int(sums.n.sum()),
        n_changed=int(sums.n_changed.sum()),
        sum_predicted=float(sums.sum_predicted.sum()),
        calibration_error=scores.expected_error,
        log_loss=scores.log_loss,
        log_loss_constant=scores.log_loss_constant,
        bins=[CalibrationBin(*values) for values in bins if values[1]],
    )
