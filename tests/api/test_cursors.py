"""Lists come in parts: one style of cursors and links for all of them."""

import base64
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from support.live_server import Live

from service.api.cursors import (
    EpochsPlace,
    GroupsPlace,
    HostsPlace,
    LeasesPlace,
    PagesPlace,
    SchedulePlace,
    SubscriptionsPlace,
    encode_cursor,
)
from service.api.responses.problems import TYPES

PLACES = {
    "/schedule": SchedulePlace(1, 1),
    "/epochs": EpochsPlace(1),
    "/hosts": HostsPlace("host_id", 1),
    "/groups": GroupsPlace(1),
    "/leases": LeasesPlace(1),
    "/pages": PagesPlace(1),
    "/websub": SubscriptionsPlace("A" * 22),
}


def fill(api: Live) -> None:
    """Add five of everything that is listed."""
    api.register(*[f"https://host{i}.example/" for i in range(5)])
    for i in range(5):
        api.epoch()
        topic = {"topic": f"https://host{i}.example/feed", "hub": "https://hub.example/"}
        assert api.client.post("/websub", json=topic).is_success
        assert api.client.put(f"/groups/g{i}", json={}).is_success
    assert len(api.post("/leases", {"count": 5}).json()["items"]) == 5


def by_cursor(api: Live, path: str, **query: Any) -> list[Any]:
    """Return the items of all parts, by `next_cursor`."""
    items, cursor = [], {}
    while True:
        part = api.get(path, **query, **cursor).json()
        items += part["items"]
        if part["next_cursor"] is None:
            return items
        cursor = {"cursor": part["next_cursor"]}


def by_link(api: Live, path: str, **query: Any) -> list[Any]:
    """Return the items of all parts, by the header Link."""
    response = api.get(path, **query)
    items = response.json()["items"]
    while following := response.links.get("next"):
        assert response.json()["next_cursor"] in following["url"]
        response = api.client.get(response.url.join(following["url"]))
        items += response.json()["items"]
    assert response.json()["next_cursor"] is None
    return items


@pytest.mark.dear
@pytest.mark.sampled(1)
@pytest.mark.parametrize("follow", [by_cursor, by_link])
def test_the_parts_of_every_list_make_the_whole(api: Live, follow: Callable[..., list[Any]]):
    fill(api)
    for path in PLACES:
        whole = api.get(path, limit=1_000).json()["items"]
        assert len(whole) == 5
        assert follow(api, path, limit=2) == whole
        assert follow(api, path, limit=1) == whole
    assert len(by_link(api, "/schedule", limit=1, observability="auto")) == 5


def test_the_last_part_has_no_link(sqlite_api: Live):
    for path in PLACES:
        response = sqlite_api.get(path)
        assert response.json()["next_cursor"] is None
        assert "Link" not in response.headers


def test_a_link_keeps_the_other_parameters(sqlite_api: Live):
    sqlite_api.register("https://a.example/1", "https://a.example/2", "https://b.example/")
    sqlite_api.epoch()
    response = sqlite_api.get("/schedule", host="a.example", limit=1, wait_s=0)
    link = response.url.join(response.links["next"]["url"])
    assert dict(link.params) == {
        "host": "a.example",
        "limit": "1",
        "wait_s": "0",
        "cursor": response.json()["next_cursor"],
    }


def packed(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


ODD = (
    "",
    "17",
    "x",
    "é",
    "A" * 5_000,
    "%00",
    packed(b"\xff\xff"),
    packed(msgspec.msgpack.encode(["hosts2", 1])),
    packed(msgspec.msgpack.encode(["hosts1", -1])),
    packed(msgspec.msgpack.encode(["hosts1", 2**64 - 1])),
    packed(msgspec.msgpack.encode(["epochs1", "1"])),
    packed(msgspec.msgpack.encode(["schedule1", 1])),
    packed(msgspec.msgpack.encode(["schedule1", 99, 1])),
    packed(msgspec.msgpack.encode(["websub1", "'; DROP"])),
    packed(msgspec.msgpack.encode(["hosts1", "host", "\x00"])),
    packed(msgspec.msgpack.encode(["changes1", "feed", 1, 2**15])),
    packed(b"\xdd\xff\xff\xff\xff"),
)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("path", PLACES)
def test_a_cursor_that_a_list_never_returned_is_refused_with_the_remedy(sqlite_api: Live, path):
    sqlite_api.epoch()
    others = [encode_cursor(place) for other, place in PLACES.items() if other != path]
    for cursor in (*ODD, *others):
        response = sqlite_api.get(path, cursor=cursor)
        problem = response.json()
        assert (response.status_code, problem["field"]) == (422, "cursor"), cursor
        assert problem["type"] == f"{TYPES}bad-cursor"
        assert problem["detail"].endswith(f"is no cursor of GET {path}; start again without cursor")
        assert len(problem["detail"]) < 300


@pytest.mark.parametrize("at", [2**62, -(2**62)])
def test_a_place_in_a_log_beyond_all_instants_is_refused(sqlite_api: Live, at):
    (page_id,) = sqlite_api.register("https://a.example/")
    cursor = packed(msgspec.msgpack.encode(["log1", at, 0]))
    response = sqlite_api.get(f"/pages/{page_id}/observations", cursor=cursor)
    assert (response.status_code, response.json()["field"]) == (422, "cursor")
