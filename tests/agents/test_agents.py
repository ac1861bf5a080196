"""Tools for agents: their definitions, answers and errors, by the SDK's client and a service."""

import json
from contextlib import contextmanager
from datetime import timedelta

import jsonschema
import pytest
from support.access_cases import new_key
from support.agents import answer, ask, refusal, talk
from support.live_server import START, running

from service.agents.questions import MOST_ITEMS, MOST_URLS
from service.agents.server import Agents
from service.agents.tools import MOST_ANSWER, TOOLS
from service.model.access import Role

NEWS, ABOUT, OTHER = "https://a.example/news", "https://a.example/about", "https://b.example/"
MOST_DEFINED = 15_000
"""Maximum size of all definitions, characters."""


@pytest.fixture
def live(sqlite_url):
    with with_changes(sqlite_url) as live:
        yield live


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory):
    """A service that no test changes."""
    url = f"sqlite:///{tmp_path_factory.mktemp('agents') / 'recrawl.db'}"
    with with_changes(url) as live:
        yield live


@contextmanager
def with_changes(database_url):
    """Run a service with three pages, whose changes two crawls have shown."""
    with running(database_url) as live:
        live.clock.advance(days=-2)
        live.register(NEWS, ABOUT, OTHER)
        live.clock.advance(days=2)
        for days, digest in ((2, "1"), (0, "2")):
            at = START - timedelta(days=days)
            crawl = {"observed_at": at.isoformat(), "status": 200}
            crawls = [{"url": NEWS, "digest": digest}, {"url": ABOUT, "digest": "same"}]
            response = live.post("/observations", [crawl | each for each in crawls])
            assert response.json()["accepted"] == 2
        live.epoch()
        yield live


def agents(live, role=None):
    """Return the server of agents with a new key of a role, or without one."""
    key = None
    if role is not None:
        key, _ = new_key(live.service.store, role)
        live.service.gate.ring.refresh()
    return Agents(live.url, key, now=live.clock).server


# -- definitions


async def definitions(client):
    return (await client.list_tools()).tools


def test_six_tools_are_defined_within_15000_characters():
    tools = talk(Agents("http://127.0.0.1:1", None).server, definitions)
    assert [tool.name for tool in tools] == [
        *("freshness", "page", "changes", "plan", "recrawl", "hosts")
    ]
    written = [tool.model_dump_json(by_alias=True, exclude_none=True) for tool in tools]
    assert sum(map(len, written)) <= MOST_DEFINED
    for tool in tools:
        jsonschema.Draft202012Validator.check_schema(tool.input_schema)
        assert tool.input_schema["type"] == "object"
        assert tool.input_schema["additionalProperties"] is False
        assert tool.annotations.read_only_hint is (tool.name != "recrawl")
        assert "$ref" not in json.dumps(tool.input_schema)


# -- answers


def test_freshness_judges_the_copy_of_each_url(live):
    unknown, odd = "https://c.example/", "ftp://a.example/"
    questions = {"urls": [NEWS, unknown, odd], "fetched_at": "3h", "max_stale": 0.4}
    live.clock.advance(hours=1)
    (result,) = ask(agents(live), ("freshness", questions))
    news, other, wrong = answer(result)["copies"]
    assert (news["url"], news["registered"], news["state"]) == (NEWS, True, "active")
    assert news["fetched_at"] == "2026-05-01T10:00:00Z"
    assert 0 < news["stale"] < 1
    assert (other["url"], other["registered"], other["fetch"]) == (unknown, False, False)
    assert wrong["url"] == odd
    assert "http" in wrong["error"]


def test_a_page_comes_with_the_reason_and_what_its_crawls_have_shown(unchanged):
    (result,) = ask(agents(unchanged), ("page", {"url": NEWS}))
    page = answer(result)
    assert page["why"] == unchanged.get("/pages", url=NEWS).json()["why"]["sentence"]
    assert (page["url"], page["n_changes"], page["n_intervals"]) == (NEWS, 1, 1)
    assert [crawl["status"] for crawl in page["last_crawls"]] == [200, 200]
    assert page["schedule"]["crawl_rate"] > 0


def test_changes_come_in_parts_that_miss_nothing(unchanged):
    server, listed, cursor = agents(unchanged), [], None
    while True:
        question = {"since": "7d", "limit": 1, "cursor": cursor}
        (result,) = ask(agents(unchanged), ("changes", question))
        part = answer(result)
        listed += [(item["kind"], item["url"]) for item in part["items"]]
        cursor = part["next_cursor"]
        if not part["more"]:
            break
    assert sorted(listed) == [("changed", NEWS), ("new", ABOUT), ("new", NEWS)]
    filters = {"since": "2026-04-01", "kinds": ["changed"], "host": "a.example"}
    (result,) = ask(server, ("changes", filters))
    assert [item["url"] for item in answer(result)["items"]] == [NEWS]


def test_a_plan_compares_budgets(unchanged):
    results = ask(agents(unchanged), ("plan", {}), ("plan", {"budgets": [1, 100]}))
    usual, chosen = map(answer, results)
    assert [plan["bandwidth"] for plan in chosen["items"]] == [1, 100]
    assert len(usual["items"]) == 3
    assert chosen["items"][0]["fresh_share"] < chosen["items"][1]["fresh_share"]
    assert chosen["budgets_are_in"] == "crawls a day"


def hold_of(live, url):
    return live.get("/pages", url=url).json()["why"]["hold"]


def test_recrawl_requests_crawls_and_names_what_it_cannot(live):
    unknown = "https://c.example/"
    live.clock.advance(hours=1)
    assert hold_of(live, NEWS) == "not_due"
    dry, real = ask(
        agents(live),
        ("recrawl", {"urls": [NEWS], "dry_run": True}),
        ("recrawl", {"urls": [NEWS, unknown]}),
    )
    assert answer(dry)["result"].startswith("1 of 1 page would be crawled as soon as")
    done = answer(real)
    assert done["result"].startswith("1 of 2 pages are crawled as soon as politeness")
    assert [each["url"] for each in done["not_requested"]] == [unknown]
    assert hold_of(live, NEWS) != "not_due"


def test_hosts_are_listed_in_parts_or_shown_alone(live):
    first, one = ask(
        agents(live),
        ("hosts", {"limit": 1, "sort": "host"}),
        ("hosts", {"host": "b.example"}),
    )
    part = answer(first)
    assert [item["host"] for item in part["items"]] == ["a.example"]
    following = {"limit": 1, "sort": "host", "cursor": part["next_cursor"]}
    (second,) = ask(agents(live), ("hosts", following))
    assert [item["host"] for item in answer(second)["items"]] == ["b.example"]
    following["cursor"] = answer(second)["next_cursor"]
    (last,) = ask(agents(live), ("hosts", following))
    assert answer(last) == {"items": []}
    assert answer(one)["n_pages"] == 1
    live.client.post("/hosts/b.example/pause", json={"for_s": 600})
    (paused,) = ask(agents(live), ("hosts", {"blocked": True}))
    assert [item["host"] for item in answer(paused)["items"]] == ["b.example"]


# -- bounds


@pytest.mark.dear
def test_answers_are_bounded_and_no_change_is_lost(live):
    urls = [f"https://long.example/{i:03}/{'x' * 1_900}" for i in range(60)]
    crawl = {"observed_at": START.isoformat(), "status": 200, "digest": "1"}
    live.post("/observations", [{"url": url, **crawl} for url in urls])
    seen, cursor = [], None
    while True:
        question = {"host": "long.example", "limit": MOST_ITEMS, "cursor": cursor}
        (result,) = ask(agents(live), ("changes", question))
        assert len(result.content[0].text) <= MOST_ANSWER
        part = answer(result)
        seen += [item["url"] for item in part["items"]]
        cursor = part["next_cursor"]
        if not part["more"]:
            break
    assert sorted(seen) == urls
    (result,) = ask(agents(live), ("freshness", {"urls": urls[:MOST_URLS]}))
    assert "characters, more than 20000; ask for fewer" in refusal(result)


# -- errors


@pytest.mark.parametrize(
    ("name", "arguments", "sentence"),
    [
        ("page", {}, "page: Object missing required field `url`. Correct the arguments and call"),
        ("page", {"url": NEWS, "cursor": "x"}, "contains unknown field `cursor`"),
        ("page", {"url": 7}, "Expected `str`, got `int`"),
        (
            "page",
            {"url": "https://c.example/"},
            "it with POST /pages. Check the name for",
        ),
        ("page", {"url": "nonsense"}, "422"),
        ("freshness", {"urls": []}, "Expected `array` of length >= 1"),
        ("freshness", {"urls": [NEWS] * (MOST_URLS + 1)}, "Expected `array` of length <= 50"),
        ("freshness", {"urls": [NEWS], "fetched_at": "noon"}, "'noon' is no time; write how long"),
        ("freshness", {"urls": [NEWS], "max_stale": 2}, "Expected `float` <= 1"),
        ("changes", {"since": "2026-05-01T00:00:00"}, "has no zone"),
        ("changes", {"limit": 51}, "Expected `int` <= 50"),
        ("changes", {"kinds": ["moved", "lost"]}, "Invalid enum value 'lost'"),
        ("changes", {"cursor": "nonsense"}, "422"),
        ("plan", {"budgets": [0]}, "Expected `float` > 0"),
        ("plan", {"budgets": [1] * 6}, "Expected `array` of length <= 5"),
        (
            "recrawl",
            {"urls": [NEWS], "all_pages": True},
            "field `all_pages`; its arguments are urls, dry_run.",
        ),
        ("hosts", {"host": "absent.example"}, "no page has the host absent.example"),
        ("hosts", {"sort": "size"}, "Invalid enum value 'size'"),
        ("crawl", {}, "there is no tool 'crawl'; there are freshness, page, changes, plan"),
    ],
    ids=str,
)
def test_an_error_is_a_sentence_with_a_remedy(unchanged, name, arguments, sentence):
    (result,) = ask(agents(unchanged), (name, arguments))
    assert sentence in refusal(result)


def test_a_key_that_reads_cannot_recrawl(live):
    server = agents(live, Role.read)
    questions = [("recrawl", {"urls": [NEWS]}), ("page", {"url": NEWS})]
    refused, page = ask(server, *questions)
    assert "needs a key of role admin; this key has the role read" in refusal(refused)
    assert "ask the operator of Recrawl for a key of that role" in refusal(refused)
    assert answer(page)["url"] == NEWS
    (done,) = ask(agents(live, Role.admin), questions[0])
    assert answer(done)["changed"] == 1
    (none,) = ask(agents(live), questions[1])
    assert "Send a valid API key" in refusal(none)
    assert "RECRAWL_API_KEY for `recrawl mcp`" in refusal(none)


def test_a_service_that_is_away_is_an_error_with_a_remedy(monkeypatch):
    monkeypatch.setattr("service.agents.server.PATIENCE_S", 0.01)
    (result,) = ask(Agents("http://127.0.0.1:1", None).server, ("plan", {}))
    assert "is it running? Call again" in refusal(result)
    assert "Call again in a minute" in refusal(result)


def test_a_list_may_be_written_as_text(unchanged):
    questions = [("freshness", {"urls": f'["{NEWS}"]'}), ("freshness", {"urls": NEWS})]
    assert [len(answer(result)["copies"]) for result in ask(agents(unchanged), *questions)] == [
        1,
        1,
    ]


def test_every_tool_has_a_row_on_the_page_for_agents():
    from support.pages import DOCS

    page = (DOCS / "how-to" / "agents.md").read_text()
    assert all(f"| `{tool.name}` |" in page for tool in TOOLS)
