"""The site of the documentation: built strictly, it loads nothing from third parties."""

import functools
import re
import subprocess
import sys
import threading
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
import yaml
from support.chromium import Watched, chromium
from support.live_server import PATIENCE_S
from support.pages import DOCS, ROOT, variables

sys.path.insert(0, str(ROOT / "tools"))

import diagrams

LOADS = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
    "embed": "src",
    "object": "data",
    "use": "href",
}
"""Attributes by whose address a browser loads something at once."""
RELS = {"stylesheet", "icon", "preload", "prefetch", "preconnect", "dns-prefetch", "modulepreload"}
"""Kinds of links that a browser follows at once."""
ELSEWHERE = re.compile(r"(?:\w+:)?//")


class Loaded(HTMLParser):
    """The addresses that a page loads from, and its components of the theme."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.components: set[str] = set()

    def handle_starttag(self, tag, attrs) -> None:
        values = {name: value or "" for name, value in attrs}
        self.components.add(values.get("data-md-component", ""))
        if tag in LOADS:
            self.addresses.append(values.get(LOADS[tag], ""))
        if tag == "link" and RELS & set(values.get("rel", "").split()):
            self.addresses.append(values.get("href", ""))
        self.addresses += re.findall(r"url\(['\"]?([^'\")]+)", values.get("style", ""))


def loaded(text: str) -> Loaded:
    parser = Loaded()
    parser.feed(text)
    return parser


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env=variables() | {"NO_MKDOCS_2_WARNING": "1"},
        text=True,
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_no_page_and_no_style_loads_from_elsewhere(site):
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 100
    for page in pages:
        found = loaded(page.read_text())
        assert not [one for one in found.addresses if ELSEWHERE.match(one)], page
        assert "source" not in found.components, "the theme would ask the forge for stars"
        assert 'class="mermaid"' not in page.read_text(), "the theme would load Mermaid"
    styles = sorted(site.rglob("*.css"))
    assert styles
    for style in styles:
        addresses = re.findall(r"(?:url\(|@import )['\"]?([^'\")]+)", style.read_text())
        assert not [one for one in addresses if ELSEWHERE.match(one)], style


@pytest.mark.slow
def test_a_browser_asks_nobody_else(site):
    handler = functools.partial(Quiet, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, chromium() as browser:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            window = Watched(browser, f"http://127.0.0.1:{server.server_port}")
            for path in ("/", "/architecture/", "/reference/http/pages/", "/evidence/"):
                window.open(path)
                assert window.page.locator("h1").count() == 1
            window.open("/architecture/")
            assert window.page.locator("figure svg").count() == n_diagrams("architecture.md")
            assert window.faults == []
        finally:
            server.shutdown()
            thread.join()


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


def n_diagrams(name: str) -> int:
    return (DOCS / name).read_text().count("```mermaid")


def test_what_a_page_would_load_is_found():
    found = loaded(
        '<script src="//cdn.example/x.js"></script><link rel="stylesheet" href="a.css">'
        '<a href="https://example.com/">a link</a><img src="https://example.org/x.png">'
    )
    assert found.addresses == ["//cdn.example/x.js", "a.css", "https://example.org/x.png"]
    assert [bool(ELSEWHERE.match(one)) for one in found.addresses] == [True, False, True]


def test_every_page_stands_in_the_navigation():
    class Lenient(yaml.SafeLoader):
        """Reads the names of Python objects as nothing."""

    Lenient.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)
    config = yaml.load((ROOT / "mkdocs.yml").read_text(), Lenient)
    named = re.findall(r"'([\w/-]+\.md)'", str(config["nav"]))
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    assert sorted(named) == sorted(pages)
    (how_to,) = (part["How to"] for part in config["nav"] if "How to" in part)
    groups = [name for group in how_to for name in group]
    assert groups == ["Start", "Crawl", "Feed", "Read", "Operate", "Scale", "Protect"]


# -- diagrams


def test_a_sequence_has_its_texts_and_arrows():
    drawn = diagrams.figure(
        "sequenceDiagram\n    participant C as crawler\n    participant A\n"
        "    C->>A: POST <pages>\n    A->>A: decode\n    A-->>C: counts\n"
    )
    for text in ("crawler", "A", "POST &lt;pages&gt;", "decode", "counts"):
        assert f">{text}</text>" in drawn
    assert drawn.count("<polygon") == 3
    assert drawn.count("stroke-dasharray") == 2 + 1, "two lifelines and an answer"


def test_a_flowchart_has_each_box_once_below_what_leads_to_it():
    drawn = diagrams.figure(
        'flowchart TD\n    a["top"] --> b["left"]\n    a --> c["right"]\n'
        '    b --> d["end"]\n    c --> d\n'
    )
    height = {
        text: float(y) for y, text in re.findall(r'<text x="[\d.]+" y="([\d.]+)">(\w+)<', drawn)
    }
    assert height["top"] < height["left"] == height["right"] < height["end"]
    assert drawn.count("<rect") == 4
    assert drawn.count("<polygon") == 4


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("pie\n", "no diagram of the kind 'pie'"),
        ("sequenceDiagram\n    C->>A: unknown participants\n", "cannot draw the line"),
        ("flowchart TD\n    a -- text --> b\n", "cannot draw the line"),
        ("flowchart TD\n    a --> b\n    b --> a\n", "in a circle"),
    ],
)
def test_what_cannot_be_drawn_ends_the_build(source, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        diagrams.drawn(f"```mermaid\n{source}```\n")


def test_every_diagram_of_the_documentation_is_drawn():
    for path in DOCS.rglob("*.md"):
        text = path.read_text()
        assert diagrams.drawn(text).count("<svg") == text.count("```mermaid")
