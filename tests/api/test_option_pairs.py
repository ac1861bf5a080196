"""Every pair of options of every operation goes together, or is refused for a stated reason.

The options are those of the OpenAPI document: a new one fails here until it has values.
"""

from itertools import combinations, product
from typing import Any, NamedTuple

import httpx
import pytest
from support.document import DOCUMENT
from support.live_server import START, Live

HOST, URL, SITE_KEY = "pairs.example", "https://pairs.example/a", "0123abcd-4567"
EARLIER, LATER = "2026-04-30T00:00:00Z", "2026-05-03T00:00:00Z"

VALUES: dict[str, tuple[Any, ...]] = {
    "act": ("host.change",),
    "budget": ("10 crawls",),
    "explain": (True, False),
    "for_s": (60, None),
    "site": (True, False),
    "expires_at": ("2030-01-01T00:00:00Z",),
    "grace_s": (0, 60),
    "items_per_s": (0.5, 100),
    "name": ("pairs",),
    "reason": ("by contract", ""),
    "object": (HOST,),
    "role": ("read", "crawl"),
    "since": (EARLIER, LATER),
    "until": (EARLIER, LATER),
    "url_prefixes": (["https://pairs.example/"],),
    "add_tags": (["news"], []),
    "all_pages": (True, False),
    "before": (5,),
    "bandwidth": ([2.5, 10.0], 7.5),
    "blocked": (True, False),
    "blocked_until": (LATER, None),
    "change_rate_from": (0.0, 0.5),
    "change_rate_to": (1.0, 1e9),
    "bytes": (48_213, None),
    "changed": (True, False),
    "changed_at": (EARLIER,),
    "changed_since": (EARLIER,),
    "count": (1, 50),
    "crawl_rate_from": (0.0, 0.5),
    "crawl_rate_to": (1.0, 1e9),
    "cross_host": (True, False),
    "cursor": (),
    "digest": ("c0ffee", None),
    "dry_run": (True, False),
    "due_before": (EARLIER, LATER),
    "etag": ('"abc"', 'W/"abc"'),
    "false_304_at": (EARLIER, None),
    "fetched_at": (EARLIER,),
    "group": ("shared", None),
    "host": (HOST, "absent.example"),
    "hosts": ([HOST], [HOST, "absent.example"]),
    "hub": ("https://hub.example/",),
    "hub.challenge": ("word",),
    "hub.lease_seconds": ("60",),
    "hub.mode": ("subscribe", "unsubscribe"),
    "hub.topic": (URL,),
    "hub.reason": ("full",),
    "host_policy": ("same", "listed", "any"),
    "listed_hosts": ([HOST],),
    "public_url": (URL,),
    "importance": (1e-9, 2.5),
    "price": ("USD 0.01", 0.01),
    "rule": ("admit", "stop", None),
    "stopped": (True, False),
    "subject": (HOST,),
    "seconds": (0.8, None),
    "key": (SITE_KEY,),
    "kind": ("new", "changed,gone"),
    "kinds": (["new"], None),
    "keyLocation": (f"https://{HOST}/{SITE_KEY}.txt",),
    "last_modified": (EARLIER,),
    "lease": ("1-abc",),
    "limit": (1, 1_000),
    "max_concurrency": (3, None),
    "latency_factor": (5, None),
    "max_delay_s": (30, None),
    "windows": (["Mon-Fri 22:00-06:00 Europe/Berlin"], None),
    "blackouts": (["2026-12-24/2026-12-26 Europe/Berlin"], None),
    "change_weight": (0.25, 1),
    "min_weight": (0.5, 0),
    "first_share": (0.25, None),
    "max_crawl_rate": (24.0, None),
    "max_items": (1, 100),
    "max_stale": (0.0, 1.0),
    "members": ([HOST], []),
    "min_change": (0.0, 0.5),
    "min_crawl_rate": (0.5, None),
    "min_delay_s": (0.5, None),
    "note": ({"parser": 2}, None),
    "note_if_new": (True, False),
    "change_unit": (True, False),
    "observability": ("auto", "incomplete", "complete"),
    "observed_at": (EARLIER,),
    "www": (True, False),
    "page_id": (1,),
    "page_ids": ([1], []),
    "paused": (True, False),
    "prefix": ("https://pairs.example/",),
    "redirect_url": ("https://pairs.example/b",),
    "register": (True, False),
    "release": (True, False),
    "report": ([], [{"url": URL, "observed_at": EARLIER}]),
    "remove_tags": (["news"],),
    "retry_after_s": (30.0,),
    "robots_denied": (True, False),
    "robots_delay_s": (2.0, None),
    "secret": (f"whsec_{'A' * 32}", f"whsec_{'B' * 32}"),
    "slice": (0, 1),
    "slices": (2, 7),
    "since_epoch": (1, 2),
    "sort": ("host_id", "-host", "-n_overdue"),
    "state": ("active", "overdue"),
    "step_s": (600, 86_400),
    "status": (0, 200, 301, 404, 503),
    "tag": ("news",),
    "tags": (["news"], []),
    "topic": (URL,),
    "ttl_s": (1, 3_600),
    "url": (URL,),
    "validators": (True, False),
    "url_prefix": (URL,),
    "urls": ([URL], []),
    "urlList": ([URL, "https://pairs.example/b"],),
    "wait_s": (0,),
    "worker": ("w1",),
}
"""Valid values of each option."""

IN_PATH = {
    "page_id": "1",
    "lease": "1-abc",
    "host": HOST,
    "group": "shared",
    "epoch": "1",
    "subscription_id": "A" * 22,
    "webhook_id": "A" * 22,
    "key_id": "0" * 10,
}

OF_SINGLE_PAGE = frozenset({"url", "page_id"})
WITH_SINCE = ("host", "url", "observability", "due_before")
REFUSED = {("GET /schedule", frozenset({"since_epoch", name})) for name in WITH_SINCE}
"""Pairs that never go together."""

RULED = {
    "POST /pause",
    "POST /hosts/{host}/pause",
    "POST /pages",
    "PATCH /pages/{page_id}",
    "POST /observations",
    "POST /pings",
    "POST /indexnow",
    "POST /websub",
    "GET /pages",
    "PATCH /pages",
    "DELETE /pages",
    "POST /pages/recrawl",
    "POST /freshness",
}
"""Operations whose options have rules of their own, which other tests check: 422 is an answer."""

NOT_THERE = {
    "GET /websub/{subscription_id}": 404,
    "GET /websub/{subscription_id}/state": 404,
    "PATCH /webhooks/{webhook_id}": 404,
    "GET /webhooks/{webhook_id}/deliveries": 404,
    "POST /webhooks/{webhook_id}/redeliver": 404,
    "POST /keys": 403,
    "GET /history": 404,
    "PUT /url-groups": 422,
    "PUT /needs/accepted": 422,
    "DELETE /needs/accepted": 404,
}
"""Operations on what does not exist here; a service without keys makes none over HTTP."""


class Operation(NamedTuple):
    """One operation and its options."""

    method: str
    path: str
    query: tuple[str, ...]
    body: tuple[str, ...]
    required: frozenset[str]
    batch: bool

    @property
    def name(self) -> str:
        return f"{self.method} {self.path}"


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    name = schema.get("$ref", "").rpartition("/")[2]
    return DOCUMENT["components"]["schemas"][name] if name else schema


def operation(path: str, method: str, described: dict[str, Any]) -> Operation:
    parameters = [p for p in described.get("parameters", []) if p["in"] == "query"]
    content = described.get("requestBody", {}).get("content", {})
    schema = (
        resolved(content["application/json"]["schema"]) if "application/json" in content else {}
    )
    batch = schema.get("type") == "array"
    item = resolved(schema["items"]) if batch else schema
    required = {p["name"] for p in parameters if p.get("required")} | {*item.get("required", ())}
    return Operation(
        method.upper(),
        path,
        tuple(p["name"] for p in parameters),
        tuple(item.get("properties", ())),
        frozenset(required),
        batch,
    )


OPERATIONS = [
    found
    for path, methods in DOCUMENT["paths"].items()
    for method, described in methods.items()
    if len((found := operation(path, method, described)).query + found.body) > 1
    and found.name != "POST /sitemaps"
]
SITEMAP = b'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"/>'


def values_of(of: Operation, name: str) -> tuple[Any, ...]:
    """Return the values of an option; a `kind` in a body is that of pages."""
    return ("feed", "page") if name == "kind" and name in of.body else VALUES[name]


def send(live: Live, of: Operation, chosen: dict[str, Any]):
    """Send the chosen options, with a first value for each that is required."""
    options = {name: values_of(of, name)[0] for name in of.required} | chosen
    if "url" in of.body and "page_id" in of.body and not OF_SINGLE_PAGE & {*options}:
        options["url"] = URL
    if of.path == "/leases" and "slice" in options:
        options.setdefault("slices", 2)
    if of.path == "/indexnow":
        options = {"key": SITE_KEY, ("url" if of.query else "urlList"): [URL]} | options
    if of.name == "DELETE /pages":  # other operations need the pages
        options["dry_run"] = True
    query = {name: options[name] for name in of.query if name in options}
    item = {name: options[name] for name in of.body if name in options}
    body = ([item] if of.batch else item) if of.body else None
    path = of.path.format(**IN_PATH)
    return live.client.request(of.method, path, params=query, json=body)


@pytest.fixture(scope="module")
def stocked(shared: Live) -> Live:
    """A service with two pages of a host and two epochs."""
    shared.register(URL, "https://pairs.example/b", "https://other.example/")
    for _ in range(2):
        shared.epoch()
        shared.clock.advance(hours=1)
    assert shared.clock.now > START
    return shared


def answered(of: Operation, pair: frozenset[str], response: httpx.Response) -> bool:
    """Whether the answer is one that this pair may have."""
    if response.status_code < 400:
        return (of.name, pair) not in REFUSED
    ruled = (of.name, pair) in REFUSED or of.name in RULED
    expected = 422 if ruled else NOT_THERE.get(of.name)
    return response.status_code == expected and response.json()["detail"] != ""


@pytest.mark.dear
@pytest.mark.sampled(3)
@pytest.mark.parametrize("of", OPERATIONS, ids=lambda of: of.name)
def test_every_pair_of_options_is_answered(stocked: Live, of: Operation):
    wrong = []
    for one, other in combinations(of.query + of.body, 2):
        for values in product(values_of(of, one), values_of(of, other)):
            chosen = dict(zip((one, other), values, strict=True))
            response = send(stocked, of, chosen)
            if not answered(of, frozenset(chosen), response):
                wrong.append((chosen, response.status_code, response.text[:200]))
    assert wrong == []


@pytest.mark.parametrize("cross_host", VALUES["cross_host"])
@pytest.mark.parametrize("register", VALUES["register"])
def test_every_pair_of_options_of_a_sitemap_is_answered(stocked: Live, cross_host, register):
    response = stocked.client.post(
        "/sitemaps",
        content=SITEMAP,
        headers={"Content-Type": "application/xml"},
        params={
            "url": "https://pairs.example/map.xml",
            "cross_host": cross_host,
            "register": register,
        },
    )
    assert response.status_code == 200, response.text
