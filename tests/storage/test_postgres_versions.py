"""The contract of the store, migrations and hot statements on each supported major of Postgres."""

import os
import re
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from support.postgres_versions import installed, serving
from support.processes import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.external]

VERSIONS = (15, 16, 17, 18)
TESTS = ("test_contract_*.py", "test_migrations.py", "test_plans.py", "test_binary.py")
"""Tests of the storage that ask every statement, and those of what a major may change."""
STORAGE = Path(__file__).parent
MARKS = "not slow and not external"


@pytest.fixture(scope="module")
def servers(tmp_path_factory) -> Path:
    return installed(tmp_path_factory.mktemp("versions") / "servers")


@pytest.mark.parametrize("major", VERSIONS)
def test_the_store_keeps_its_contract(servers, major):
    files = [str(path) for pattern in TESTS for path in sorted(STORAGE.glob(pattern))]
    with serving(servers / f"postgres-{major}" / "native") as url:
        with psycopg.connect(url) as session:
            assert session.info.server_version // 10_000 == major
        command = [sys.executable, "-m", "pytest", "-q", "-m", MARKS, "-k", "postgres", *files]
        ended = subprocess.run(
            [*command, "-p", "no:cacheprovider", "-n", "2"],
            cwd=ROOT,
            env={**os.environ, "RECRAWL_TEST_POSTGRES_URL": url},
            capture_output=True,
            text=True,
            check=False,
        )
    assert ended.returncode == 0, ended.stdout[-5_000:]
    passed = re.search(r"(\d+) passed", ended.stdout)
    assert passed is not None
    assert int(passed[1]) > 200
