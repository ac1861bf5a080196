"""Items that cannot be taken: each is named with its field and remedy, the others are kept."""

import json
import uuid
from dataclasses import dataclass

import pytest
from support.live_server import Live

from service.api.responses.problems import TYPES

AT = "2026-05-01T12:00:00Z"
DEEP = "[" * 900 + "]" * 900


@dataclass(frozen=True)
class Bad:
    """One item as it stands in the body, and what must be said of it."""

    path: str
    item: str
    field: str | None
    says: str
    code: str = "invalid"


def page(fields: str, field: str | None, says: str, code: str = "invalid") -> Bad:
    return Bad("/pages", f'{{"url": "https://bad.example/", {fields}}}', field, says, code)


def url(text: str, says: str, code: str = "invalid_url") -> Bad:
    return Bad("/pages", f'{{"url": {text}}}', "url", says, code)


def seen(fields: str, field: str | None, says: str, code: str = "invalid") -> Bad:
    item = f'{{"url": "https://bad.example/", "observed_at": "{AT}", {fields}}}'
    return Bad("/observations", item, field, says, code)


def when(value: str, says: str, code: str = "invalid") -> Bad:
    item = f'{{"url": "https://bad.example/", "observed_at": {value}, "changed": true}}'
    return Bad("/observations", item, "observed_at", says, code)


BAD = {
    # what is no item
    "a number": Bad("/pages", "1", None, "send an object with url"),
    "null": Bad("/observations", "null", None, "send an object with url"),
    "a string": Bad("/pings", '"x"', None, "send an object with url"),
    "an array": Bad("/pages", DEEP, None, "send an object with url"),
    "nothing said": Bad(
        "/pages", "{}", "url", "url is missing; send an absolute http or https URL"
    ),
    # names
    "unknown field": page('"weight": 1', "weight", "remove it, known fields are", "unknown_field"),
    "deep unknown field": page(f'"x": {DEEP}', "x", "remove it", "unknown_field"),
    "empty name": page('"": 1', "", "remove it", "unknown_field"),
    "surrogate name": page('"\\ud800": 1', None, "lone surrogate"),
    "NUL name": page('"\\u0000": 1', "\0", "remove it", "unknown_field"),
    # weights
    "NaN": page('"importance": NaN', "importance", "positive number"),
    "Infinity": page('"importance": Infinity', "importance", "positive number"),
    "-Infinity": page('"importance": -Infinity', "importance", "positive number"),
    "1e999": page('"importance": 1e999', "importance", "positive number"),
    "negative": page('"importance": -1', "importance", "positive number"),
    "zero": page('"importance": 0', "importance", "positive number"),
    "minus zero": page('"importance": -0.0', "importance", "positive number"),
    "subnormal": page('"importance": 5e-324', "importance", "positive number"),
    "400 digits": page(f'"importance": {"9" * 400}', "importance", "positive number"),
    "5000 digits": page(f'"importance": {"9" * 5000}', "importance", "positive number"),
    "number as string": page(
        '"importance": "1"', "importance", 'importance is "1"; send a positive number'
    ),
    "boolean number": page(
        '"importance": true', "importance", "importance is true; send a positive number"
    ),
    "null number": page(
        '"importance": null', "importance", "importance is null; send a positive number"
    ),
    # the rest of a page
    "bounds crossed": page(
        '"min_crawl_rate": 2, "max_crawl_rate": 1',
        "min_crawl_rate",
        "2 lies above max_crawl_rate 1; lower or drop it",
    ),
    "negative bound": page('"min_crawl_rate": -1', "min_crawl_rate", "crawls a day"),
    "zero maximum": page('"max_crawl_rate": 0', "max_crawl_rate", "positive number of crawls"),
    "huge bound": page('"max_crawl_rate": 1e300', "max_crawl_rate", "positive number of crawls"),
    "no observability": page('"observability": "some"', "observability", "incomplete"),
    "surrogate word": page('"observability": "\\ud800"', None, "lone surrogate"),
    # urls
    "ftp": url('"ftp://example.com/"', "send http or https"),
    "javascript": url('"javascript:alert(1)"', "send http or https"),
    "data": url('"data:text/html,x"', "send http or https"),
    "file": url('"file:///etc/passwd"', "send http or https"),
    "relative": url('"/news"', "send an absolute http or https URL"),
    "no scheme": url('"example.com/news"', "send an absolute http or https URL"),
    "no host": url('"https://"', "send an absolute http or https URL"),
    "bad port": url('"https://example.com:99999/"', "send an absolute http or https URL"),
    "bad address": url('"https://[::1/"', "send an absolute http or https URL"),
    "bad IPv4": url('"https://1.2.3.256/"', "send an absolute http or https URL"),
    "bad host": url('"https://exa<m>ple.com/"', "send an absolute http or https URL"),
    "space in host": url('"https://exa mple.com/"', "send an absolute http or https URL"),
    "escape in host": url('"https://%zz.example/"', "send an absolute http or https URL"),
    "password": url('"https://me:secret@example.com/"', "user information; remove it"),
    "NUL": url('"https://bad.example/\\u0000"', "NUL character"),
    "lone surrogate": url('"https://bad.example/\\ud800"', "lone surrogate"),
    "3000 bytes": url(
        f'"https://bad.example/{"x" * 2980}"', "the url has 3,000 bytes; send at most 2,048"
    ),
    "long once escaped": url(f'"https://bad.example/{"é" * 800}"', "once percent-encoded"),
    "empty url": url('""', "an absolute http or https URL", "invalid"),
    "number url": url("3", "an absolute http or https URL", "invalid"),
    # instants
    "number date": seen('"changed": true, "last_modified": 0', "last_modified", "RFC 3339"),
    "missing": Bad(
        "/observations",
        '{"url": "https://bad.example/", "changed": true}',
        "observed_at",
        "observed_at is missing; send the instant of the crawler's request",
    ),
    "naive": when('"2026-05-01T12:00:00"', "with a zone"),
    "day only": when('"2026-05-01"', "RFC 3339"),
    "no such day": when('"2026-02-30T00:00:00Z"', "RFC 3339"),
    "year 10000": when('"10000-01-01T00:00:00Z"', "RFC 3339"),
    "timestamp": when("1777636800", "RFC 3339"),
    "words": when('"yesterday"', "RFC 3339"),
    "future": when('"2026-05-01T12:05:01Z"', "set yours, or send a past instant", "future"),
    "end of time": when('"9999-12-31T23:59:59-23:59"', "in the future", "future"),
    "start of time": when('"0001-01-01T00:00:00+23:59"', "lies before 1990", "past"),
    # what a crawl says
    "no evidence": seen('"status": 200', "changed", "send `changed`", "no_evidence"),
    "changed 0": seen('"changed": 0', "changed", "true or false"),
    "changed string": seen('"changed": "true"', "changed", "true or false"),
    "status 200.5": seen('"status": 200.5', "status", "the HTTP status"),
    "status as string": seen('"status": "200"', "status", "the HTTP status"),
    "wait as string": seen('"status": 503, "retry_after_s": "7"', "retry_after_s", "seconds"),
    "empty digest": seen('"digest": ""', "changed", "send `changed`", "no_evidence"),
    "long digest": seen(f'"digest": "{"x" * 257}"', "digest", "any string"),
    "number digest": seen('"digest": 5', "digest", "any string"),
    "surrogate digest": seen('"digest": "\\udfff"', "digest", "send valid Unicode"),
    "named twice": seen('"page_id": 1, "changed": true', "url", "either", "page_not_named"),
    "not named": Bad(
        "/pings", f'{{"changed_at": "{AT}"}}', "url", "either `url` or `page_id`", "page_not_named"
    ),
    # numbers of pages
    **{
        f"page_id {number[:25]}": Bad(
            "/pings", f'{{"page_id": {number}, "changed_at": "{AT}"}}', "page_id", says, code
        )
        for number, says, code in (
            ("0", "service's number", "invalid"),
            ("-1", "service's number", "invalid"),
            ("1.0", "service's number", "invalid"),
            ('"1"', "service's number", "invalid"),
            (str(2**63), "service's number", "invalid"),
            (str(2**64), "service's number", "invalid"),
            ("9" * 5000, "service's number", "invalid"),
            (str(2**63 - 1), "no page has this id; GET /pages lists", "page_not_found"),
        )
    },
}


def good(path: str) -> tuple[str, str]:
    """Give a good item of this batch and the url it registers."""
    url = f"https://good.example/{uuid.uuid4()}"
    item = {"url": url}
    if path == "/observations":
        item |= {"observed_at": AT, "changed": True}
    if path == "/pings":
        item |= {"changed_at": AT}
    return json.dumps(item), url


def assert_told(rejection: dict, bad: Bad, index: int) -> None:
    assert rejection["index"] == index
    assert rejection["code"] == bad.code
    assert rejection["field"] == bad.field
    assert bad.says in rejection["detail"]


@pytest.mark.sampled(20)
@pytest.mark.parametrize("media_type", ["application/json", "application/x-ndjson"])
@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
def test_a_bad_item_is_told_and_the_good_ones_beside_it_are_kept(
    shared: Live, bad: Bad, media_type: str
):
    (first, first_url), (last, last_url) = good(bad.path), good(bad.path)
    items = [first, bad.item, last]
    content = f"[{','.join(items)}]" if media_type == "application/json" else "\n".join(items)
    headers = {"Content-Type": media_type}
    response = shared.client.post(bad.path, content=content, headers=headers)
    assert response.status_code == 200, response.text
    answer = response.json()
    assert answer["accepted"] == 2
    (rejection,) = answer["rejected"]
    assert_told(rejection, bad, 1)
    for url in (first_url, last_url):
        assert shared.get("/pages", url=url).status_code == 200


@pytest.mark.sampled(10)
@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
def test_a_bad_item_alone_is_a_problem(shared: Live, bad: Bad):
    headers = {"Content-Type": "application/json"}
    response = shared.client.post(bad.path, content=f"[{bad.item}]", headers=headers)
    assert response.status_code == 422
    assert response.headers["Content-Type"] == "application/problem+json"
    problem = response.json()
    assert problem["title"]
    assert problem["type"] == f"{TYPES}batch-rejected"
    (rejection,) = problem["rejected"]
    assert_told(rejection, bad, 0)
    assert rejection["detail"] in problem["detail"]
    assert shared.alive()


@pytest.mark.parametrize("path", ["/pages", "/observations"])
def test_of_one_name_twice_in_an_item_none_counts(shared: Live, path):
    """RFC 8259 leaves it open; both decoders must agree, and so must both media types."""
    _, one = good(path)
    _, two = good(path)
    said = f', "observed_at": "{AT}", "changed": true' if path == "/observations" else ""
    item = f'{{"url": "{one}", "url": "{two}"{said}}}'
    for content, media_type in (
        (f"[{item}]", "application/json"),
        (f"[{item}, 1]", "application/json"),
        (item, "application/x-ndjson"),
        (f"{item}\n1", "application/x-ndjson"),
    ):
        headers = {"Content-Type": media_type}
        response = shared.client.post(path, content=content, headers=headers)
        rejection = response.json()["rejected"][0]
        assert response.status_code == 422
        assert (rejection["code"], rejection["field"]) == ("contradiction", "url")
        assert all(shared.get("/pages", url=url).status_code == 404 for url in (one, two))


def test_a_line_of_two_items_is_refused_whatever_the_others_are(shared: Live):
    (one, _), (two, _), (three, _) = good("/pages"), good("/pages"), good("/pages")
    for last in (three, "{}"):
        content = f"{one}{two}\n\n{last}\r\n"
        headers = {"Content-Type": "application/x-ndjson"}
        response = shared.client.post("/pages", content=content, headers=headers)
        rejected = response.json()["rejected"]
        assert rejected[0]["index"] == 0
        assert "more follows after the first value" in rejected[0]["detail"]
        assert len(rejected) == (1 if last == three else 2)


@pytest.mark.parametrize("item", ['{"":0}', "{}", "[]", '{"url":[[[]]]}'])
@pytest.mark.parametrize("media_type", ["application/json", "application/x-ndjson"])
def test_many_values_are_refused_before_they_take_memory(shared: Live, item, media_type):
    content = f'[{{"a":[{",".join([item] * 800_000)}]}}]'
    content = content[1:-1] if media_type == "application/x-ndjson" else content
    response = shared.client.post(
        "/observations", content=content, headers={"Content-Type": media_type}
    )
    assert response.status_code == 413
    assert "over 400,000 values; send fewer items" in response.json()["detail"]


def test_a_mark_before_the_items_is_left_out(shared: Live):
    one, url = good("/pages")
    headers = {"Content-Type": "application/json"}
    content = f"\ufeff[{one}]".encode()
    assert shared.client.post("/pages", content=content, headers=headers).status_code == 200
    assert shared.get("/pages", url=url).status_code == 200
