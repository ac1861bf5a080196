"""The workflows run commands that exist; the hooks are the checks of `make lint`."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
FORGE = ROOT / ".github"
WORKFLOWS = {path.stem: path for path in sorted(FORGE.glob("workflows/*.yml"))}
MAKEFILE = (ROOT / "Makefile").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
HOOKS = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
PROGRAMS = Path(sys.executable).parent
SCHEMAS = {
    "github-workflows": WORKFLOWS.values(),
    "github-issue-forms": [FORGE / "ISSUE_TEMPLATE" / name for name in ("bug.yml", "idea.yml")],
    "github-issue-config": [FORGE / "ISSUE_TEMPLATE" / "config.yml"],
    "dependabot": [FORGE / "dependabot.yml"],
}
"""Published schemas, which the checker brings along, and the files that follow each."""


def jobs(name: str) -> dict[str, Any]:
    parsed: dict[str, Any] = yaml.safe_load(WORKFLOWS[name].read_text())["jobs"]
    return parsed


def targets(text: str) -> set[str]:
    """Return the targets that commands make."""
    return set(re.findall(r"\bmake ([a-z][a-z-]*)", text))


def commands(name: str) -> str:
    """Return all that the jobs of a workflow run."""
    steps = [step for job in jobs(name).values() for step in job["steps"]]
    return "\n".join(step["run"] for step in steps if "run" in step)


def code_of(page: Path) -> str:
    """Return the blocks and the words of a page that are set as code."""
    pairs = re.findall(r"```\w*\n(.*?)```|`([^`]+)`", page.read_text(), re.DOTALL)
    return "\n".join(block + word for block, word in pairs)


def test_there_is_a_workflow_for_tests_image_and_distributions() -> None:
    assert {"tests", "image", "publish"} <= WORKFLOWS.keys()
    assert {"test", "test-all", "test-external", "lint", "coverage"} == targets(commands("tests"))
    assert "image-test" in targets(commands("image"))
    assert "dist" in targets(commands("publish"))


@pytest.mark.dear
@pytest.mark.sampled(1)
@pytest.mark.parametrize("schema", SCHEMAS)
def test_files_of_the_forge_follow_their_schema(schema: str) -> None:
    checker = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}"]
    done = subprocess.run(
        [*checker, *SCHEMAS[schema]], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", *WORKFLOWS])
def test_every_target_made_exists(page: str) -> None:
    text = commands(page) if page in WORKFLOWS else code_of(ROOT / page)
    defined = set(re.findall(r"^([a-z][a-z-]*):", MAKEFILE, re.MULTILINE))
    assert targets(text)
    assert targets(text) <= defined


def test_every_target_without_a_file_is_phony() -> None:
    phony = " ".join(re.findall(r"^\.PHONY: (.*)", MAKEFILE, re.MULTILINE)).split()
    assert set(re.findall(r"^([a-z][a-z-]*):", MAKEFILE, re.MULTILINE)) == set(phony)


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_job_ends_and_writes_only_where_it_must(name: str) -> None:
    assert yaml.safe_load(WORKFLOWS[name].read_text())["permissions"] == {"contents": "read"}
    for job in jobs(name).values():
        assert job["timeout-minutes"] <= 60
        if "write" in job.get("permissions", {}).values():
            assert "needs" in job, "what publishes runs after what checks"


def test_the_matrix_has_every_python_and_postgres_we_name() -> None:
    matrix = jobs("tests")["quick"]["strategy"]["matrix"]
    assert matrix == {
        "python": ["3.11", "3.12", "3.13", "3.14"],
        "postgres": ["15", "16", "17", "18"],
    }
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert set(named) <= set(matrix["python"])
    assert PROJECT["requires-python"] == f">={matrix['python'][0]}"


@pytest.mark.parametrize("name", WORKFLOWS)
def test_every_action_has_a_version_and_no_secret_is_stored(name: str) -> None:
    text = WORKFLOWS[name].read_text()
    uses = re.findall(r"uses: (\S+)", text)
    assert uses
    assert all(re.fullmatch(r"[\w-]+/[\w-]+@(v\d+|release/v\d+)", action) for action in uses)
    assert set(re.findall(r"secrets\.(\w+)", text)) <= {"GITHUB_TOKEN"}


def test_the_hooks_run_what_lint_runs_and_their_programs_are_installed() -> None:
    lint = re.findall(r"^lint:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)[0]
    run = {hook["entry"].split()[0].removeprefix(".venv/bin/") for hook in HOOKS}
    assert {"ruff", "mypy", "lint-imports", "recrawl"} <= run
    assert run - {"check-jsonschema"} <= set(re.findall(r"\$\(BIN\)/([\w-]+)", lint))
    assert [name for name in run if not (PROGRAMS / name).is_file()] == []


def test_pre_commit_accepts_its_configuration() -> None:
    check = [sys.executable, "-m", "pre_commit", "validate-config", ".pre-commit-config.yaml"]
    done = subprocess.run(check, cwd=ROOT, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "SECURITY.md"])
def test_every_file_linked_exists(page: str) -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", (ROOT / page).read_text())
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_no_code_is_kept_from_the_formatter() -> None:
    marks = ("fmt: " + "skip", "fmt: " + "off")
    folders = (
        "service",
        "recrawl_client",
        "recrawl_cluster",
        "recrawl_lab",
        "tests",
        "migrations",
        "benchmarks",
    )
    sources = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    assert len(sources) > 300
    assert [path for path in sources if any(mark in path.read_text() for mark in marks)] == []
