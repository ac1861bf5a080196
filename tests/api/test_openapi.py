"""openapi/openapi.json: what the application says of itself, with examples that are true."""

import json
from pathlib import Path

import msgspec
import pytest
from support.live_server import START, Live, running

from recrawl_client.wire.evidence import Observation
from recrawl_client.wire.hosts import HostAnswer
from recrawl_client.wire.leases import Crawl
from recrawl_client.wire.listing import ListedPage
from recrawl_client.wire.pages import PageAnswer
from service.api import openapi
from service.api.app import create_app
from service.api.examples import EXAMPLES
from service.api.requests.bodies import JSON

PATH = Path(__file__).parents[2] / "openapi" / "openapi.json"
DOCUMENT = json.loads(PATH.read_text())
STRUCTS = {kind.__name__: kind for kind in openapi.STRUCTS}
OPERATIONS = {
    operation["operationId"]: (method.upper(), path, operation)
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
}
JSON_ANSWERS = [
    pytest.param(content, id=f"{name} {status}")
    for name, (_, _, operation) in OPERATIONS.items()
    for status, response in operation["responses"].items()
    if (content := response.get("content", {}).get("application/json"))
]
BODIES = [
    pytest.param(name, media_type, content["example"], id=f"{name} {media_type}")
    for name, (_, _, operation) in OPERATIONS.items()
    for media_type, content in operation.get("requestBody", {}).get("content", {}).items()
    if "example" in content
]


@pytest.fixture
def api(sqlite_url) -> Live:
    """A new service that knows the page of the examples."""
    with running(sqlite_url, api_keys=("k" * 20,)) as live:
        live.register("https://example.com/news")
        live.clock.now = START.replace(hour=13)
        yield live


def test_the_document_is_what_the_application_says():
    assert create_app().openapi() == DOCUMENT, "run `recrawl openapi --output openapi/openapi.json`"


def test_every_operation_has_a_name_of_its_own_and_a_summary():
    n_operations = sum(len(methods) for methods in DOCUMENT["paths"].values())
    assert len(OPERATIONS) == n_operations
    for _, _, operation in OPERATIONS.values():
        assert 3 < len(operation["summary"]) <= 70
        assert operation["description"].startswith(operation["summary"])
        assert {*operation["tags"]} <= {tag["name"] for tag in DOCUMENT["tags"]}
        for parameter in operation.get("parameters", ()):
            assert parameter["description"]
            assert "anyOf" not in parameter["schema"]


def test_the_document_says_who_where_and_by_which_key():
    assert DOCUMENT["info"]["license"]["identifier"] == "Apache-2.0"
    assert DOCUMENT["info"]["contact"]["url"]
    assert DOCUMENT["servers"][0]["url"] == "/"
    assert all(tag["description"] for tag in DOCUMENT["tags"])
    assert DOCUMENT["components"]["securitySchemes"]["key"]["description"]
    keyless = {name for name, (_, _, each) in OPERATIONS.items() if each.get("security") == []}
    assert keyless == {"healthz", "readyz", "verify_subscription", "post_content"}


@pytest.mark.parametrize("name", DOCUMENT["components"]["schemas"])
def test_every_field_is_described_and_has_no_default(name):
    schema = DOCUMENT["components"]["schemas"][name]
    assert schema["description"].endswith((".", "?"))
    for field, described in schema["properties"].items():
        assert described["description"].endswith("."), field
        assert "default" not in described, field
        for branch in (described, *described.get("anyOf", ())):
            if field.endswith(("_at", "_until", "lastmod", "last_modified")) and "type" in branch:
                assert branch["type"] in ("string", ["string", "null"]), field
                assert branch["format"] == "date-time", field


def test_answers_state_every_field_that_is_always_there():
    required = {name: {*s["required"]} for name, s in DOCUMENT["components"]["schemas"].items()}
    assert "group" in required["HostAnswer"]
    assert "removed" not in required["ScheduleAnswer"]
    assert required["LeaseBody"] == set()
    assert required["Problem"] == {"type", "title", "status", "detail"}


def test_every_schema_that_is_named_is_there_and_no_other():
    text = json.dumps(DOCUMENT)
    for name in DOCUMENT["components"]["schemas"]:
        assert f'"#/components/schemas/{name}"' in text
    named = text.split('"#/components/schemas/')[1:]
    assert {part.partition('"')[0] for part in named} == DOCUMENT["components"]["schemas"].keys()


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_documents_its_errors_as_problems(name):
    _, path, operation = OPERATIONS[name]
    refused = {s: r for s, r in operation["responses"].items() if s.startswith(("4", "5"))}
    for response in refused.values():
        schema = response["content"]["application/problem+json"]["schema"]
        assert schema == {"$ref": "#/components/schemas/Problem"}
    if "page_id" in path:
        assert {"404", "422"} <= refused.keys()
    if "requestBody" in operation:
        assert {"400", "413", "415", "422", "507"} <= refused.keys()


def part_of(example, encoded) -> bool:
    """Tell whether all of the example is there; nulls with a default need not be shown."""
    if isinstance(example, dict):
        return all(part_of(value, encoded[name]) for name, value in example.items())
    if isinstance(example, list):
        return all(part_of(*pair) for pair in zip(example, encoded, strict=True))
    return example == encoded


@pytest.mark.parametrize("content", JSON_ANSWERS)
def test_every_answer_has_an_example_of_its_own_type(content):
    schema = content["schema"].get("oneOf", [content["schema"]])[0]
    kind = STRUCTS[schema["$ref"].rpartition("/")[2]]
    example = content["example"]
    decoded = msgspec.convert(example, kind)
    encoded = msgspec.json.decode(msgspec.json.encode(decoded))
    assert part_of(example, encoded)


WHOLE = {
    "observations": Observation,
    "leases_answer": Crawl,
    "page_answer": PageAnswer,
    "listed_pages_answer": ListedPage,
    "host_answer": HostAnswer,
}
"""Examples that show each field, with the struct of their items."""


@pytest.mark.parametrize("name", WHOLE)
def test_an_example_of_reports_and_of_their_answers_shows_every_field(name):
    example = EXAMPLES[name]
    rows = example.get("items", [example]) if isinstance(example, dict) else example
    assert {field for row in rows for field in row} == {*WHOLE[name].__struct_fields__}


def leased(api: Live) -> str:
    """A lease that runs."""
    api.register("https://leased.example/")
    return api.client.post("/leases", json={}).json()["items"][0]["lease"]


def subscribed(api: Live) -> str:
    """A subscription without a secret."""
    asked = {**EXAMPLES["subscription"]}
    del asked["secret"]
    return api.client.post("/websub", json=asked).json()["id"]


def hooked(api: Live) -> str:
    """A webhook."""
    return api.client.post("/webhooks", json=EXAMPLES["webhook"]).json()["id"]


def created_key(api: Live) -> str:
    """A key like the example's."""
    return api.client.post("/keys", json=EXAMPLES["key"]).json()["key_id"]


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("name", "media_type", "example"), BODIES)
def test_every_example_of_a_body_is_accepted(api: Live, name, media_type, example):
    method, path, operation = OPERATIONS[name]
    content = json.dumps(example) if media_type == JSON else example
    needed = {
        parameter["name"]: parameter["schema"]["examples"][0]
        for parameter in operation.get("parameters", ())
        if parameter["in"] == "query" and parameter["required"]
    }
    if name == "patch_pages":
        needed["host"] = "example.com"
    named = path.format(
        page_id=1,
        lease=leased(api),
        host="example.com",
        group=EXAMPLES["host"]["group"],
        subscription_id=subscribed(api),
        webhook_id=hooked(api),
        key_id=created_key(api),
    )
    if name == "accept_need":  # of a need that holds: due pages, and no crawler after the lease
        api.register("https://due.example/")
        api.epoch()
        api.clock.advance(minutes=30)
        api.service.runner.run_once()
        content = json.dumps(example | {"kind": "no_crawler", "subject": "crawlers"})
    if name == "post_leases":  # otherwise it waits
        api.register("https://due.example/")
    response = api.client.request(
        method, named, content=content, params=needed, headers={"Content-Type": media_type}
    )
    assert response.status_code in (200, 201, 202), response.text
    assert not (response.content and response.json().get("rejected"))
