"""Agents over streamable HTTP and over stdio, and the command without its package."""

import asyncio
import json
import sys

import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from support.access_cases import bearer, new_key
from support.agents import answer, ask, ask_over_http, over_http, refusal
from support.live_server import PATIENCE_S, running, until
from support.pages import DOCS, block, terminal
from support.processes import ROOT

from service.agents.server import Agents
from service.model.access import Role

NEWS = "https://a.example/news"


@pytest.fixture
def live(sqlite_url):
    with running(sqlite_url) as live:
        live.register(NEWS)
        yield live


def key_of(live, role):
    text, _ = new_key(live.service.store, role)
    live.service.gate.ring.refresh()
    return text


def test_over_http_the_role_of_each_caller_decides(live):
    reader, admin = key_of(live, Role.read), key_of(live, Role.admin)
    question = ("recrawl", {"urls": [NEWS]})
    with over_http(Agents(live.url, reader)) as url:
        (own,) = ask_over_http(url, {}, question)
        (other,) = ask_over_http(url, bearer(admin), question)
        (wrong, page) = ask_over_http(url, bearer("wrong"), question, ("page", {"url": NEWS}))
    assert "this key has the role read" in refusal(own)
    assert answer(other)["changed"] == 1
    assert "401 Unauthorized" in refusal(wrong)
    assert "401 Unauthorized" in refusal(page)


@pytest.mark.dear
def test_callers_at_the_same_time_keep_their_own_keys(live):
    keys = {role: key_of(live, role) for role in (Role.read, Role.admin)}

    async def caller(url, role):
        async with (
            httpx2.AsyncClient(headers=bearer(keys[role]), timeout=PATIENCE_S) as http,
            Client(streamable_http_client(url, http_client=http)) as client,
        ):
            question = {"urls": [NEWS], "dry_run": True}
            results = [await client.call_tool("recrawl", question) for _ in range(5)]
            return {result.is_error for result in results}

    async def all_of(url):
        return await asyncio.gather(*(caller(url, role) for role in [*keys] * 4))

    with over_http(Agents(live.url, None)) as url:
        assert asyncio.run(all_of(url)) == [{True}, {False}] * 4


def test_on_other_addresses_a_caller_shows_a_key_even_to_a_service_without_any(live):
    with over_http(Agents(live.url, None, shared=True), "0.0.0.0") as url:
        (none,) = ask_over_http(url, {}, ("page", {"url": NEWS}))
        (made_up,) = ask_over_http(url, bearer("made up"), ("page", {"url": NEWS}))
        assert "show a key of Recrawl" in refusal(none)
        assert "a service without keys serves its own machine only" in refusal(made_up)
        text = key_of(live, Role.read)
        (shown,) = ask_over_http(url, bearer(text), ("page", {"url": NEWS}))
        assert answer(shown)["url"] == NEWS


@pytest.mark.parametrize(
    "headers", [{"Host": "evil.example"}, {"Origin": "https://evil.example"}], ids=str
)
def test_a_web_page_that_points_its_name_here_is_refused(live, headers):
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    with over_http(Agents(live.url, None)) as url:
        accepted = {"Accept": "application/json, text/event-stream", **headers}
        response = httpx2.post(url, json=body, headers=accepted)
    assert response.status_code in (403, 421)


def parameters(*arguments, **variables):
    """Return a server that the SDK starts as an agent does."""
    environment = {f"RECRAWL_{name}".upper(): value for name, value in variables.items()}
    return StdioServerParameters(
        command=sys.executable,
        args=["-m", "service", *arguments],
        env={"PYTHONPATH": str(ROOT), **environment},
    )


@pytest.mark.dear
def test_the_configuration_of_the_page_answers_over_stdio(live, tmp_path):
    page = (DOCS / "how-to" / "agents.md").read_text()
    configured = json.loads(block(page, "mcp.json").text)["mcpServers"]["recrawl"]
    assert configured["command"] == "recrawl"
    key_file = tmp_path / "agents.key"
    key_file.write_text(key_of(live, Role.read) + "\n")
    variables = configured["env"] | {"RECRAWL_URL": live.url, "RECRAWL_API_KEY_FILE": str(key_file)}
    server = parameters(*configured["args"])
    server.env |= variables
    shown, refused = ask(server, ("page", {"url": NEWS}), ("recrawl", {"urls": [NEWS]}))
    assert answer(shown)["url"] == NEWS
    assert "this key has the role read" in refusal(refused)


@pytest.mark.slow
def test_the_command_of_the_page_serves_over_http(live, tmp_path):
    page = (DOCS / "how-to" / "agents.md").read_text()
    command = block(page, "over HTTP").text.replace("8765", "0")
    configured = json.loads(block(page, "mcp-http.json").text)["mcpServers"]["recrawl"]
    assert (configured["type"], configured["url"]) == ("http", "http://127.0.0.1:8765/mcp")
    headers = {"Authorization": f"Bearer {key_of(live, Role.read)}"}
    assert configured["headers"].keys() == headers.keys()
    with terminal(command, tmp_path, url=live.url) as log:
        until(lambda: "/mcp" in log.read_text(), "it listens")
        url = log.read_text().split("are at ")[1].split()[0]
        (shown,) = ask_over_http(url, headers, ("page", {"url": NEWS}))
        assert answer(shown)["url"] == NEWS


def test_on_other_addresses_the_command_refuses_a_key_of_its_own(recrawl):
    sentence = recrawl("mcp", "--host", "0.0.0.0", "--port", 0, api_key="k" * 30).refusal()
    assert "on 0.0.0.0 other machines would act with the key of RECRAWL_API_KEY" in sentence


def test_without_its_package_the_command_names_what_to_install(recrawl, monkeypatch):
    monkeypatch.delitem(sys.modules, "service.agents.server", raising=False)
    for name in [each for each in sys.modules if each.partition(".")[0] in ("mcp", "mcp_types")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mcp", None)
    monkeypatch.setitem(sys.modules, "mcp_types", None)
    sentence = recrawl("mcp").refusal()
    assert "`recrawl mcp` needs the package mcp" in sentence
    assert "pip install 'recrawl[mcp]'" in sentence
