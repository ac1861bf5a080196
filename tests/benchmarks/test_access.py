"""The campaigns on access run, and find nothing; their judge finds what is made up."""

import subprocess
import sys

import pytest
from support.processes import ROOT

from benchmarks.access.roles import RoleJudge
from service.model.access import Role

NEEDED = {"DELETE /pages/{page_id}": Role.admin, "GET /epochs": Role.read, "POST /keys": Role.admin}


def judged(operation, status, content=b'{"type": "about:blank"}', role=Role.report):
    """Return the complaints about one answer."""
    judge = RoleJudge(role, NEEDED, ["a secret of forty characters or so"])
    headers = {"content-type": "application/problem+json"}
    judge.answer("described", operation, lambda: "curl", status, headers, content)
    return " ".join(judge.complaints)


def test_the_judge_complains_about_rights_above_the_role():
    assert "above the role, 204" in judged("DELETE /pages/{page_id}", 204)
    assert "above the role, 404" in judged("DELETE /pages/{page_id}", 404)
    assert "above the role" not in judged("DELETE /pages/{page_id}", 403)
    assert "above the role" not in judged("DELETE /pages/{page_id}", 204, role=Role.admin)


def test_the_judge_complains_about_refusals_below_the_role_and_about_secrets():
    assert "refused below the role, 403" in judged("GET /epochs", 403)
    assert "a secret in an answer" in judged(
        "GET /epochs", 200, b"a secret of forty characters or so"
    )
    key = b"rcr_0123456789_" + b"a" * 48
    assert "a key in an answer" in judged("GET /epochs", 200, key)
    assert "a key in an answer" not in judged("POST /keys", 201, key, Role.admin)


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ("roles", "--requests", "200"),
        ("timing", "--tries", "2000"),
        ("cost", "--starts", "2", "--rounds", "1", "--seconds", "0.2", "--connections", "2"),
        ("fairness", "--rounds", "1", "--seconds", "1", "--connections", "2"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_the_campaign_runs_to_its_end(arguments):
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks.access", *arguments],
        cwd=ROOT,
        text=True,
        capture_output=True,
        check=False,
        timeout=600,
    )
    assert "Traceback" not in run.stderr, run.stderr
    assert run.returncode in ((0,) if arguments[0] in ("roles", "timing") else (0, 1)), run.stdout
