"""The benchmarks over HTTP run: their rows, floors and clients fit the service as it is."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
ROWS = {
    "epoch": 2,
    "disk": 1,
    "schedule": 2,
    "export": 2,
    "observations": 1,
    "by_url": 1,
    "single": 2,
    "pages": 1,
}
"""With the lines that each gives."""


@pytest.mark.parametrize("store", ["postgres", "sqlite"])
def test_every_row_is_measured_beside_its_floor(store, postgres_server, tmp_path) -> None:
    written = tmp_path / "bench.json"
    server = postgres_server.render_as_string(hide_password=False)
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "benchmarks.http",
            "--quick",
            "--stores",
            store,
            "--rows",
            *ROWS,
            "--postgres",
            server,
            "--folder",
            tmp_path,
            "--json",
            written,
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    rows = json.loads(written.read_text())["rows"]
    assert [r["row"] for r in rows] == [name for name, lines in ROWS.items() for _ in range(lines)]
    assert all(r["value"] > 0 for r in rows if r["row"] != "export")
    assert {r["row"] for r in rows if r["ratio"]} == ROWS.keys() - {"disk"}
    assert [path.name for path in tmp_path.iterdir()] == ["bench.json"]


@pytest.mark.parametrize("store", ["postgres", "sqlite"])
def test_every_row_of_the_leases_is_measured(store, postgres_server, tmp_path) -> None:
    written = tmp_path / "bench.json"
    server = postgres_server.render_as_string(hide_password=False)
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "benchmarks.leases",
            "--quick",
            "--stores",
            store,
            "--postgres",
            server,
            "--folder",
            tmp_path,
            "--json",
            written,
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    rows = json.loads(written.read_text())["rows"]
    assert [r["row"] for r in rows] == [
        "batches",
        "single",
        "single",
        *["together"] * 4,
        "polite",
        "empty",
    ]
    assert all(r["value"] > 0 for r in rows)


def test_the_grid_goes_on_where_it_was_interrupted(tmp_path) -> None:
    folder = tmp_path / "traces"
    (folder / "pages").mkdir(parents=True)
    pages = [f"/{n},0,{40 * 86_400},{n}" for n in range(1, 7)]
    (folder / "pages" / "tiny.pages.csv").write_text(
        "\n".join(["page,obs_start,obs_end,n_changes", *pages]) + "\n"
    )
    changes = [f"/{n},{86_400 * 40 * (k + 1) / (n + 1)},0" for n in range(1, 7) for k in range(n)]
    (folder / "tiny.csv").write_text("\n".join(["page,t,bulk", *changes]) + "\n")

    def run(*arguments: str) -> str:
        return subprocess.run(
            [
                sys.executable,
                "-m",
                "benchmarks.evidence",
                "--traces",
                folder,
                "--sites",
                "tiny",
                "--bandwidths",
                "0.1",
                "--importance",
                "equal",
                "--processes",
                "1",
                "--out",
                tmp_path / "games",
                *arguments,
            ],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
            timeout=300,
        ).stdout

    first = run("--policies", "uniform,recrawl", "--seeds", "1")
    assert "6/6 tiny, outages, equal, R = 0.1: recrawl, seed 1: " in first
    second = run("--policies", "uniform,recrawl,hindsight", "--seeds", "1")
    assert "3 of 9 games are left" in second
    assert "3/3 tiny, outages, equal, R = 0.1: hindsight" in second
    assert "Recrawl over" in second
    lines = [
        json.loads(line)
        for path in (tmp_path / "games").iterdir()
        for line in path.read_text().splitlines()
    ]
    assert len(lines) == 9
    assert all(line["harmonic"] > 0 for line in lines)
    assert all(line["n_live"] == 3 for line in lines)  # of 4, 5 and 6 changes in 40 days
    assert all(line["harmonic_live"] > line["harmonic"] for line in lines)
    assert second.endswith(run("--table"))
    third = run("--policies", "uniform,recrawl", "--seeds", "1", "2")
    assert "3/3 tiny, outages, equal, R = 0.1: recrawl, seed 2: " in third
