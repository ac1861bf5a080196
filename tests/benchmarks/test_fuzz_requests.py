"""The fuzz campaign sends what it should, and complains of what nobody should be answered."""

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pytest
from support.live_server import running

from benchmarks.fuzz.judge import Judge
from benchmarks.fuzz.mutations import mutated
from benchmarks.fuzz.requests import valid_requests
from benchmarks.fuzz.wire import Wire

ROOT = Path(__file__).parents[2]
DOCUMENT = json.loads((ROOT / "openapi" / "openapi.json").read_text())
PROBLEM = {"content-type": "application/problem+json"}


def complaints(status: int, content: bytes = b"{}", **headers: str) -> list[str]:
    judge = Judge()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    judge.answer("mutated", "GET /", lambda: "request", status, named, content)
    assert judge.n_requests == 1
    return [*judge.complaints]


def test_answers_as_promised_are_no_cause_for_complaint():
    assert complaints(200) == complaints(304) == complaints(422, **PROBLEM) == []
    assert complaints(503, retry_after="5", **PROBLEM) == []


@pytest.mark.parametrize("status", [500, 501, 502, 504])
def test_a_5xx_that_is_not_announced_is_complained_of(status):
    assert complaints(status, retry_after="5", **PROBLEM)


def test_an_outage_without_retry_after_is_complained_of():
    assert complaints(503, **PROBLEM)
    assert complaints(507, retry_after="soon", **PROBLEM)


def test_a_refusal_that_is_no_problem_or_shows_a_traceback_is_complained_of():
    assert complaints(404, content_type="text/plain")
    assert complaints(422, b'{"detail": "Traceback (most recent call last)"}', **PROBLEM)


def test_a_connection_closed_without_an_answer_is_complained_of():
    judge = Judge()
    judge.hang_up("mutated", "GET /", "request")
    assert judge.complaints.total() == 1


def test_every_operation_has_a_valid_request():
    named = {request.operation for request in valid_requests(DOCUMENT)}
    assert named == {
        f"{method.upper()} {path}"
        for path, methods in DOCUMENT["paths"].items()
        for method in methods
    }


def test_the_same_dice_draw_the_same_requests_and_all_can_be_written():
    valid, first, second = valid_requests(DOCUMENT), Random(1), Random(1)
    drawn = [mutated(first.choice(valid), first).written() for _ in range(2_000)]
    assert drawn == [mutated(second.choice(valid), second).written() for _ in range(2_000)]
    assert len({*drawn}) > 1_500


@pytest.mark.dear
def test_valid_requests_are_taken(sqlite_url):
    statuses: dict[str, set[int]] = {}
    with running(sqlite_url, clock=lambda: datetime.now(UTC)) as live, Wire(live.port) as wire:
        for request in valid_requests(DOCUMENT):
            answer = wire.send(request.written(), head=False)
            statuses.setdefault(request.operation, set()).add(answer.status)
    for operation in ("POST /pages", "POST /observations", "POST /pings", "POST /leases"):
        assert 200 in statuses[operation], statuses


@pytest.mark.slow
@pytest.mark.parametrize("store", ["postgres", "sqlite"])
def test_a_short_campaign_meets_no_fault_of_the_service(store, tmp_path):
    written = tmp_path / "fuzz.json"
    command = [sys.executable, "-m", "benchmarks.fuzz", "--requests", "600", "--store", store]
    run = subprocess.run(
        [*command, "--json", written],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert written.exists(), run.stdout + run.stderr
    outcome = json.loads(written.read_text())
    assert sum(outcome["shares"].values()) >= 600
    assert outcome["complaints"] == {}
