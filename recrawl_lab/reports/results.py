"""Files of a comparison for other programs: JSON and CSV with every number."""

import csv
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from recrawl_lab.policies.lineup import UNIFORM
from recrawl_lab.replay.calibration import PredictionGroups
from recrawl_lab.replay.comparison import CURVE_BINS, Comparison, PolicyMeasures
from recrawl_lab.replay.measures import ConfidenceInterval, Measures
from recrawl_lab.reports.findings import findings


@dataclass(frozen=True, slots=True)
class Circumstances:
    """Facts that a reader needs to reproduce the results."""

    command: str
    notices: str
    """Description of the change notices."""


def document(comparison: Comparison, circumstances: Circumstances) -> dict[str, Any]:
    """Return the whole comparison as one JSON value."""
    game, world = comparison.game, comparison.game.world
    return {
        "command": circumstances.command,
        "world": {
            "name": world.name.encode("utf-8", "backslashreplace").decode(),
            "days": world.days,
            "pages": len(world),
            "mean_pages": world.mean_pages,
            "changes": len(world.changed_at),
            "notes": list(world.notes),
        },
        "notices": circumstances.notices,
        "bandwidth": game.bandwidth,
        "bandwidth_per_page": game.bandwidth / world.mean_pages,
        "step": game.step,
        "seed": game.seed,
        "findings": findings(comparison),
        "curve_edges": curve_edges(comparison).tolist(),
        "policies": [_policy(comparison, outcome) for outcome in comparison.outcomes],
    }


def curve_edges(comparison: Comparison) -> Any:
    """Return the (B + 1,) bounds of the bins of time, days."""
    return np.linspace(0.0, comparison.game.world.days, CURVE_BINS + 1)


def _policy(comparison: Comparison, outcome: PolicyMeasures) -> dict[str, Any]:
    name, verdict = outcome.name, comparison.allows_verdict
    saving = comparison.saving(name, UNIFORM) if verdict and UNIFORM in comparison else None
    gap = comparison.gap_closed(name) if verdict else None
    return {
        "policy": name,
        "kind": outcome.entrant.kind.value,
        "description": outcome.entrant.description,
        "n_crawls": outcome.n_crawls,
        "bandwidth_used": outcome.bandwidth_used,
        **{
            measure: _bounded(value, comparison.interval(name, measure))
            for measure, value in zip(Measures._fields, comparison.measures[name], strict=True)
        },
        "saving_over_uniform": _bounded(*saving) if saving else None,
        "gap_closed": _bounded(*gap) if gap else None,
        "calibration": _calibration(outcome.calibration),
        "calibration_learnt": _calibration(outcome.calibration_learnt),
        "curve": outcome.curve.tolist(),
    }


def _bounded(value: float, bounds: ConfidenceInterval) -> dict[str, float]:
    return {"value": value, **bounds._asdict()}


def _calibration(calibration: PredictionGroups | None) -> dict[str, Any] | None:
    if calibration is None:
        return None
    return {
        "expected": calibration.expected.tolist(),
        "observed": calibration.observed.tolist(),
        "n_predictions": calibration.n_predictions.tolist(),
        "expected_error": calibration.expected_error,
        "log_loss": calibration.log_loss,
        "log_loss_constant": calibration.log_loss_constant,
    }


# -- files


def write(made: dict[str, Any], folder: Path) -> list[Path]:
    """Write results.json, policies.csv, curves.csv and reliability.csv; return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "results.json"
    text = json.dumps(_without_nan(made), indent=1, ensure_ascii=False, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")
    policies = made["policies"]
    return [
        path,
        _csv(folder / "policies.csv", map(_flat, policies)),
        _csv(folder / "curves.csv", _curves(made["curve_edges"], policies)),
        _csv(folder / "reliability.csv", _reliability(policies)),
    ]


def _without_nan(made: Any) -> Any:
    """Return a value with null in place of NaN, which JSON cannot express."""
    if isinstance(made, dict):
        return {name: _without_nan(value) for name, value in made.items()}
    if isinstance(made, list | tuple):
        return [_without_nan(value) for value in made]
    return None if isinstance(made, float) and not math.isfinite(made) else made


def _flat(policy: dict[str, Any]) -> dict[str, Any]:
    """Return one row: value, low and high in columns of their own; of curves only the scores."""
    row: dict[str, Any] = {}
    for key, value in policy.items():
        if key.startswith("calibration"):
            for score in ("expected_error", "log_loss", "log_loss_constant"):
                row[f"{key}_{score}"] = value and value[score]
        elif key in ("saving_over_uniform", "gap_closed") or isinstance(value, dict):
            for part in ("value", "low", "high"):
                row[key if part == "value" else f"{key}_{part}"] = value and value[part]
        elif key != "curve":
            row[key] = value
    return row


def _curves(edges: list[float], policies: list[dict[str, Any]]) -> Iterable[dict[str, Any]]:
    for i, (start, end) in enumerate(pairwise(edges)):
        yield {"from_day": start, "to_day": end, **{p["policy"]: p["curve"][i] for p in policies}}


def _reliability(policies: list[dict[str, Any]]) -> Iterable[dict[str, Any]]:
    for policy in policies:
        for window in ("calibration", "calibration_learnt"):
            bins = policy[window] or {"expected": (), "observed": (), "n_predictions": ()}
            rows = zip(bins["expected"], bins["observed"], bins["n_predictions"], strict=True)
            for expected, observed, n_predictions in rows:
                yield {
                    "policy": policy["policy"],
                    "window": "all" if window == "calibration" else "after the first quarter",
                    "expected": expected,
                    "observed": observed,
                    "n_predictions": n_predictions,
                }


def _csv(path: Path, rows: Iterable[dict[str, Any]]) -> Path:
    filled = list(rows)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(filled[0]) if filled else [])
        writer.writeheader()
        writer.writerows(filled)
    return path
