"""Running services: one for each test, or one for all bad requests of a module."""

import shutil
from collections.abc import Iterator

import pytest
from support.live_server import Live, cloned, running
from support.npm import Tool, install

GOOD_URL = "https://good.example/"


@pytest.fixture(scope="session")
def tool(tmp_path_factory) -> Tool:
    """Return a function that runs one of the tools of tools/openapi."""
    return install(tmp_path_factory.mktemp("tools") / "openapi")


@pytest.fixture
def api(database_url) -> Iterator[Live]:
    """A new service on each database, without epochs of its own accord."""
    with running(database_url) as live:
        yield live


@pytest.fixture
def sqlite_api(sqlite_url) -> Iterator[Live]:
    """A new service on SQLite, for what does not depend on the store."""
    with running(sqlite_url) as live:
        yield live


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def shared(request, tmp_path_factory) -> Iterator[Live]:
    """One service on each database for all tests of a module; its pages are theirs in common."""
    if request.param == "sqlite":
        template = request.getfixturevalue("sqlite_template")
        path = shutil.copy(template, tmp_path_factory.mktemp("shared") / "recrawl.db")
        with running(f"sqlite:///{path}") as live:
            yield live
        return
    server = request.getfixturevalue("postgres_server")
    template = request.getfixturevalue("postgres_template")
    with cloned(server, template) as url, running(url) as live:
        yield live
