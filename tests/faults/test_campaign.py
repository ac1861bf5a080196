"""Nemeses harm the service while clients work; afterwards nothing that was promised is broken."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("store", ["postgres", "sqlite"])
def test_a_campaign_of_faults_breaks_no_promise(store, tmp_path):
    written = tmp_path / "faults.json"
    command = [sys.executable, "-m", "benchmarks.faults", "--minutes", "0.25", "--store", store]
    command += ["--folder", tmp_path / "history", "--json", written]
    run = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=400
    )
    assert written.exists(), run.stdout + run.stderr
    outcome = json.loads(written.read_text())
    violations = {v["check"]: v["examples"] for v in outcome["verdicts"] if v["violations"]}
    assert violations == {}
    assert outcome["failures"] == []
    assert sum(outcome["harms"].values()) > 3
    assert all(v["checked"] for v in outcome["verdicts"])
    assert run.returncode == 0
