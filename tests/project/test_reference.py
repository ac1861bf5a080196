"""The reference pages are those of the code, and every word of JSON has a meaning."""

import json
import re
import subprocess
import sys

import pytest
from support.live_server import PATIENCE_S
from support.pages import DOCS, ROOT, variables

from service.api.responses.problems import TYPES
from service.model.domain import PingReason
from service.runtime.cluster_settings import ClusterSettings
from service.runtime.settings import Settings

REFERENCE = DOCS / "reference"
OPENAPI = json.loads((ROOT / "openapi" / "openapi.json").read_text())


def words_of(page: str) -> set[str]:
    """Return the words in code in the first column of a page's tables."""
    cells = re.findall(r"^\| (.+?) \|", page, re.MULTILINE)
    return {word for cell in cells for word in re.findall(r"`([^`]+)`", cell)}


@pytest.mark.dear
def test_the_pages_are_those_that_the_code_writes():
    done = subprocess.run(
        [sys.executable, "tools/reference.py", "--check"],
        cwd=ROOT,
        env=variables(),
        text=True,
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_the_glossary_has_every_property_of_the_openapi_document():
    schemas = OPENAPI["components"]["schemas"].values()
    properties = {name for schema in schemas for name in schema.get("properties", ())}
    words = words_of((DOCS / "glossary.md").read_text())
    assert properties - words == set()
    assert words - properties == set(), "words that stand in no JSON"


def test_every_setting_has_a_row_with_a_meaning():
    rows = re.findall(
        r"`RECRAWL_(\w+)` \| .*? \| ([^|]+) \|$",
        (REFERENCE / "settings.md").read_text(),
        re.MULTILINE,
    )
    of_cluster = list(ClusterSettings.model_fields)
    own = [name for name in Settings.model_fields if name not in of_cluster]
    assert [name.lower() for name, _ in rows] == [*own, *of_cluster], "those of the cluster last"
    assert all(meaning.endswith(".") for _, meaning in rows)


def test_the_type_of_each_problem_points_to_its_heading():
    path = TYPES.partition("/blob/main/")[2].removesuffix("#")
    headings = re.findall(r"^## (\S+)$", (ROOT / path).read_text(), re.MULTILINE)
    names = set()
    for module in (ROOT / "service" / "api").rglob("*.py"):
        call = r'(?:problem|refusal|refuse)\(\s*\d+,\s*"(\w+)"'
        names |= set(re.findall(call, module.read_text()))
    slugs = {re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower() for name in names}
    assert len(slugs) > 5
    assert slugs | {"lease-not-held", "schema-ahead", "batch-rejected"} <= set(headings)
    assert len(headings) == len(set(headings))


def test_the_page_of_pings_names_every_reason():
    table = (DOCS / "concepts" / "pings.md").read_text().partition("## What a ping does")[2]
    table = table.partition("\n## ")[0]
    assert words_of(table) - {"reason"} == {reason.value for reason in PingReason}


def test_every_problem_of_the_page_of_troubles_exists():
    text = (DOCS / "how-to" / "troubleshooting.md").read_text()
    named = set(re.findall(r"\b\d{3} ((?:`[\w-]+`(?:, )?)+)", text))
    slugs = {slug for names in named for slug in re.findall(r"`([\w-]+)`", names)}
    headings = re.findall(r"^## (\S+)$", (REFERENCE / "problems.md").read_text(), re.MULTILINE)
    assert len(slugs) > 4
    assert slugs <= set(headings)


def test_the_pages_of_the_calls_are_those_of_the_document():
    pages = {path.stem: path.read_text() for path in (REFERENCE / "http").glob("*.md")}
    calls = {
        f"{method.upper()} {path}": described["tags"][0]
        for path, operations in OPENAPI["paths"].items()
        for method, described in operations.items()
    }
    assert pages.keys() == {*calls.values(), "objects"}
    for call, tag in calls.items():
        assert f"\n## {call}\n" in pages[tag]
    headings = [
        name for text in pages.values() for name in re.findall(r"^##+ (\w+)$", text, re.MULTILINE)
    ]
    objects = [name for name in headings if name != "Objects"]
    assert sorted(objects) == sorted(OPENAPI["components"]["schemas"]), "each object once"


def test_links_to_calls_and_objects_lead_to_their_headings_older_ones_too():
    pages = {path: path.read_text() for path in (REFERENCE / "http").glob("*.md")}
    pages[REFERENCE / "http.md"] = (REFERENCE / "http.md").read_text()
    anchors = {
        path: {
            *(slug(title) for title in re.findall(r"^##+ (.+)$", text, re.MULTILINE)),
            *re.findall(r'<a id="([^"]+)">', text),
        }
        for path, text in pages.items()
    }
    n_links = 0
    for path, text in pages.items():
        for target, anchor in re.findall(r"\]\(([\w/]*(?:\.md)?)#([^)]+)\)", text):
            n_links += 1
            assert anchor in anchors[(path.parent / target) if target else path], (path, anchor)
    assert n_links > 400
    older = {slug(name) for name in OPENAPI["components"]["schemas"]}
    older |= {
        slug(f"{method} {path}") for path, each in OPENAPI["paths"].items() for method in each
    }
    assert older <= anchors[REFERENCE / "http.md"]


def slug(title: str) -> str:
    """Return the anchor of a heading, as Markdown makes it."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower())


@pytest.mark.dear
def test_anchors_that_the_code_names_are_headings():
    code = [
        path.read_text()
        for top in (
            "service",
            "recrawl_client",
            "recrawl_cluster",
            "recrawl_lab",
            "benchmarks",
            "tests",
        )
        for path in (ROOT / top).rglob("*.py")
    ]
    anchors = {pair for text in code for pair in re.findall(r"\b(docs/[\w/-]+\.md)#([\w-]+)", text)}
    assert anchors
    for path, anchor in anchors:
        titles = re.findall(r"^#+ (.+)$", (ROOT / path).read_text(), re.MULTILINE)
        assert anchor in {re.sub(r"[^\w-]+", "-", title.lower()).strip("-") for title in titles}
