"""WebSub over HTTP: what hubs ask and send, and what becomes of it."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from support.hubs import CHALLENGE, signature
from support.live_server import START, Live, running

pytestmark = pytest.mark.dear

TOPIC = "https://example.com/feed"
HUB = "https://hub.example/"
SECRET = "a-secret"
NEWS = "https://example.com/news"
ATOM = f"""<feed xmlns="http://www.w3.org/2005/Atom">
<link rel="self" href="{TOPIC}"/>
<entry><link rel="edit" href="/edit"/><link href="{NEWS}"/>
<updated>2026-05-01T10:30:00+02:00</updated></entry>
<entry><link rel="alternate" href="/about"/></entry>
<entry><link href="https://other.example/"/></entry>
</feed>""".encode()


def subscribe(api: Live, **given: Any) -> str:
    """Register a subscription and give its callback."""
    response = api.post("/websub", {"topic": TOPIC, "hub": HUB, **given})
    assert response.status_code == 200, response.text
    assert response.json()["callback"] == f"/websub/{response.json()['id']}"
    return response.json()["callback"]


def verify(api: Live, callback: str, **changed: str | None) -> httpx.Response:
    """Verify as a hub does, that shows no key."""
    query = {
        "mode": "subscribe",
        "topic": TOPIC,
        "challenge": CHALLENGE,
        "lease_seconds": "864000",
        **changed,
    }
    told = {f"hub.{name}": value for name, value in query.items() if value is not None}
    return httpx.get(api.url + callback, params=told)


def send(api: Live, callback: str, content: bytes = ATOM, **headers: str) -> httpx.Response:
    """Distribute content as a hub does, that shows no key."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.post(api.url + callback, content=content, headers=named)


def only(api: Live) -> dict:
    (listed,) = api.get("/websub").json()["items"]
    return listed


def pinged(api: Live, url: str) -> str | None:
    """Tell the last ping of a page; None where it is not known."""
    response = api.get("/pages", url=url)
    return response.json()["estimate"]["last_ping_at"] if response.status_code == 200 else None


def count(api: Live, outcome: str) -> float:
    labels = {"kind": "websub", "outcome": outcome}
    return api.service.telemetry.registry.get_sample_value("recrawl_items_total", labels) or 0


def test_a_subscription_is_listed_without_its_secret(api: Live, capfd):
    callback = subscribe(api, secret=SECRET)
    assert only(api) == {
        "id": callback.rpartition("/")[2],
        "callback": callback,
        "topic": TOPIC,
        "hub": HUB,
        "signed": True,
        "requested_at": "2026-05-01T12:00:00Z",
        "verified_at": None,
        "expires_at": None,
        "state": "pending",
        "host_policy": "same",
        "listed_hosts": [],
        "public_url": None,
        "ask_at": None,
        "n_asked": 0,
        "reason": None,
        "last_content_at": None,
        "n_contents": 0,
        "n_unsigned": 0,
        "n_taken": 0,
        "n_rejected": 0,
        "last_taken": [],
        "last_rejected": [],
    }
    assert api.get(f"{callback}/state").json() == only(api)
    send(api, callback)
    assert SECRET not in "".join(capfd.readouterr())


def test_a_list_is_read_part_by_part(api: Live):
    callbacks = {subscribe(api) for _ in range(3)}
    first = api.get("/websub", limit=2).json()
    rest = api.get("/websub", limit=2, cursor=first["next_cursor"]).json()
    assert {item["callback"] for item in first["items"] + rest["items"]} == callbacks
    assert rest["next_cursor"] is None


def test_the_hub_is_told_its_challenge_and_its_lease_is_kept(api: Live):
    callback = subscribe(api)
    response = verify(api, callback)
    assert (response.status_code, response.text) == (200, CHALLENGE)
    assert response.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert only(api)["verified_at"] == "2026-05-01T12:00:00Z"
    assert only(api)["expires_at"] == "2026-05-11T12:00:00Z"


def test_a_hub_that_ends_a_subscription_is_told_its_challenge(api: Live):
    callback = subscribe(api)
    verify(api, callback)
    assert verify(api, callback, mode="unsubscribe", lease_seconds=None).text == CHALLENGE
    assert only(api)["verified_at"] is only(api)["expires_at"] is None


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "changed",
    [
        {"topic": "https://example.com/other"},
        {"topic": "https://example.com/FEED"},
        {"topic": "https://["},
        {"topic": None},
        {"mode": "denied", "topic": "https://example.com/other"},
        {"mode": "DENIED"},
        {"mode": None},
        {"challenge": None},
        {"lease_seconds": "-1"},
        {"lease_seconds": "-0.5"},
        {"lease_seconds": "soon"},
        {"lease_seconds": "1" * 5_000},
    ],
)
def test_what_nobody_asked_for_is_not_confirmed(sqlite_api: Live, changed):
    response = verify(sqlite_api, subscribe(sqlite_api), **changed)
    assert response.status_code == 404
    assert only(sqlite_api)["verified_at"] is None
    assert only(sqlite_api)["reason"].startswith("not confirmed: ")


@pytest.mark.parametrize(
    ("lease_seconds", "expires_at"),
    [
        (None, None),
        ("", None),
        ("0", None),
        ("60", "2026-05-01T12:01:00Z"),
        (" 60.0 ", "2026-05-01T12:01:00Z"),
        ("9" * 40, "2056-04-23T12:00:00Z"),
    ],
)
def test_odd_leases_are_taken_as_they_are_meant(sqlite_api: Live, lease_seconds, expires_at):
    callback = subscribe(sqlite_api, public_url="https://recrawl.example")
    assert verify(sqlite_api, callback, lease_seconds=lease_seconds).text == CHALLENGE
    one = only(sqlite_api)
    assert (one["state"], one["expires_at"]) == ("active", expires_at)
    asked = {"2026-05-01T12:01:00Z": "2026-05-01T12:01:00Z", None: "2026-05-08T04:00:00Z"}
    assert one["ask_at"] == asked.get(expires_at, "2026-05-11T12:00:00Z")


@pytest.mark.parametrize(
    "topic", ["https://EXAMPLE.com/feed", "https://example.com:443/feed", TOPIC + "#", TOPIC]
)
def test_a_topic_may_be_spelt_in_another_way(sqlite_api: Live, topic):
    assert verify(sqlite_api, subscribe(sqlite_api), topic=topic).text == CHALLENGE
    assert only(sqlite_api)["topic"] == TOPIC


def test_a_verification_that_comes_twice_is_answered_twice(api: Live):
    callback = subscribe(api)
    verify(api, callback)
    api.clock.advance(hours=1)
    assert verify(api, callback, challenge="another").text == "another"
    assert only(api)["expires_at"] == "2026-05-11T13:00:00Z"


def test_a_denial_without_a_reason_is_shown_as_such(sqlite_api: Live):
    callback = subscribe(sqlite_api)
    denied = verify(sqlite_api, callback, mode="denied", challenge=None, lease_seconds=None)
    assert (denied.status_code, denied.content) == (200, b"")
    assert (only(sqlite_api)["state"], only(sqlite_api)["reason"]) == (
        "denied",
        "the hub gave no reason",
    )


@pytest.mark.parametrize(
    ("policy", "taken"),
    [
        ({}, [NEWS, "https://example.com/about"]),
        ({"host_policy": "same"}, [NEWS, "https://example.com/about"]),
        (
            {"host_policy": "listed", "listed_hosts": ["b.example", "OTHER.example"]},
            [NEWS, "https://example.com/about", "https://other.example/"],
        ),
        (
            {"host_policy": "listed", "listed_hosts": ["b.example"]},
            [NEWS, "https://example.com/about"],
        ),
        (
            {"host_policy": "any"},
            [NEWS, "https://example.com/about", "https://other.example/"],
        ),
    ],
)
def test_pages_of_other_hosts_are_taken_by_the_policy_and_none_in_silence(api: Live, policy, taken):
    callback = subscribe(api, **policy)
    assert send(api, callback).status_code == 202
    one = api.get(f"{callback}/state").json()
    assert [entry["url"] for entry in one["last_taken"]] == taken[::-1]
    assert (one["n_contents"], one["n_taken"], one["n_rejected"]) == (1, len(taken), 3 - len(taken))
    assert one["last_content_at"] == "2026-05-01T12:00:00Z"
    assert [pinged(api, url) is not None for url in taken] == [True] * len(taken)
    if len(taken) < 3:
        (rejected,) = one["last_rejected"]
        assert (rejected["url"], rejected["code"]) == ("https://other.example/", "cross_host")
        assert "subscribe again with host_policy any, or list the host" in rejected["detail"]


def test_the_last_ten_entries_are_kept_and_odd_ones_fit_the_database(api: Live):
    callback = subscribe(api)
    entries = [
        f"<entry><link href='https://b{i}.example/&#xd800;\x01é'/></entry>" for i in range(25)
    ]
    send(api, callback, f"<feed>{''.join(entries)}</feed>".encode())
    send(api, callback, b"<feed><entry><link href='https://last.example/'/></entry></feed>")
    one = only(api)
    assert (one["n_contents"], one["n_rejected"], len(one["last_rejected"])) == (2, 26, 10)
    assert one["last_rejected"][0]["url"] == "https://last.example/"
    assert one["last_rejected"][1]["url"].startswith("https://b24.example/")


def test_contents_of_one_moment_are_all_counted(api: Live):
    callback = subscribe(api)
    feeds = [ATOM.replace(b"other.example", f"b{i}.example".encode()) for i in range(8)]
    with ThreadPoolExecutor(8) as pool:
        assert {r.status_code for r in pool.map(lambda feed: send(api, callback, feed), feeds)} == {
            202
        }
    one = only(api)
    assert (one["n_contents"], one["n_taken"], one["n_rejected"]) == (8, 16, 8)
    assert {entry["url"] for entry in one["last_rejected"]} == {
        f"https://b{i}.example/" for i in range(8)
    }


@pytest.mark.parametrize(
    ("signed", "words"),
    [
        ("", "has no X-Hub-Signature"),
        (signature(ATOM, SECRET, "md5"), "the method md5 is none of sha1, sha256"),
        (signature(ATOM, "the secret of before"), "the hub may hold an earlier one"),
    ],
)
def test_what_is_wrong_with_a_signature_is_shown(api: Live, signed, words):
    callback = subscribe(api, secret=SECRET)
    send(api, callback, X_Hub_Signature=signed)
    one = only(api)
    assert (one["n_contents"], one["n_unsigned"], one["n_taken"]) == (1, 1, 0)
    (rejected,) = one["last_rejected"]
    assert (rejected["url"], rejected["code"]) == (TOPIC, "unsigned")
    assert words in rejected["detail"]


def test_the_states_are_counted_in_the_metrics(api: Live):
    subscribe(api, topic="https://example.com/a")
    verify(api, subscribe(api))
    states = {
        line.split('"')[1]: float(line.rpartition(" ")[2])
        for line in api.get("/metrics").text.splitlines()
        if line.startswith("recrawl_websub_subscriptions{")
    }
    expected = dict.fromkeys(("ended", "denied", "ending"), 0.0)
    assert states == {**expected, "pending": 1.0, "active": 1.0}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["x", "A" * 22, "%00", "A" * 4_000, "%ff"])
def test_who_does_not_know_the_address_gets_nowhere(api: Live, name):
    subscribe(api)
    assert verify(api, f"/websub/{name}").status_code == 404
    assert send(api, f"/websub/{name}").status_code == 410
    assert api.client.delete(f"/websub/{name}").status_code == 404


def test_a_new_subscription_takes_the_place_of_the_old_once_it_is_verified(api: Live):
    old, elsewhere = subscribe(api), subscribe(api, hub="https://another.example/")
    verify(api, old)
    api.clock.advance(days=9)
    new = subscribe(api)
    assert send(api, old).status_code == 202
    verify(api, new)
    assert send(api, old).status_code == 410
    assert {i["callback"] for i in api.get("/websub").json()["items"]} == {elsewhere, new}


@pytest.mark.dear
def test_what_is_deleted_is_gone_for_its_hub(api: Live):
    callback = subscribe(api)
    assert api.client.delete(callback).status_code == 204
    assert api.client.delete(callback).status_code == 404
    assert send(api, callback).status_code == 410
    assert api.get("/websub").json()["items"] == []


def test_only_hubs_call_without_a_key(sqlite_url):
    with running(sqlite_url, api_keys=("key",)) as api:
        callback = subscribe(api)
        assert verify(api, callback).status_code == 200
        assert send(api, callback).status_code == 202
        stranger = [
            httpx.get(f"{api.url}/websub"),
            httpx.get(f"{api.url}{callback}/state"),
            httpx.delete(api.url + callback),
            httpx.post(f"{api.url}/websub", json={"topic": TOPIC, "hub": HUB}),
        ]
        assert [response.status_code for response in stranger] == [401] * 4


def test_entries_are_pings_at_their_times_and_new_pages_are_registered(api: Live):
    api.register(NEWS)
    response = send(api, subscribe(api))
    assert (response.status_code, response.content) == (202, b"")
    assert pinged(api, NEWS) == "2026-05-01T08:30:00Z"
    assert pinged(api, "https://example.com/about") == "2026-05-01T12:00:00Z"
    assert pinged(api, "https://other.example/") is None
    assert pinged(api, "https://example.com/edit") is None
    assert (count(api, "accepted"), count(api, "rejected")) == (2, 1)


def test_content_that_is_sent_again_changes_nothing(api: Live):
    callback = subscribe(api)
    send(api, callback)
    send(api, callback)
    assert api.get("/pages", url=NEWS).json()["estimate"]["n_pings"] <= 1
    assert (count(api, "accepted"), count(api, "duplicate")) == (2, 2)


@pytest.mark.parametrize("content", [b"", b"<html><p>Hello", b"\xff\x00", b"{}", b"<feed/>"])
def test_content_that_is_no_feed_means_that_the_topic_has_changed(sqlite_api: Live, content):
    sqlite_api.register(TOPIC)
    assert send(sqlite_api, subscribe(sqlite_api), content).status_code == 202
    assert pinged(sqlite_api, TOPIC) == "2026-05-01T12:00:00Z"


@pytest.mark.parametrize("content", [b"", b"<rss><item/>", b"<feed><entry><title>&", ATOM])
def test_a_topic_that_is_no_page_becomes_none(sqlite_api: Live, content):
    assert send(sqlite_api, subscribe(sqlite_api), content).status_code == 202
    assert sqlite_api.get("/pages", url=TOPIC).status_code == 404


def test_a_fault_in_a_feed_costs_no_other_entry(sqlite_api: Live):
    broken = ATOM.replace(b"<entry>", b"<entry><title>Q & A &nbsp;</title>")
    assert send(sqlite_api, subscribe(sqlite_api), broken).status_code == 202
    assert count(sqlite_api, "accepted") == 2


@pytest.mark.parametrize("method", ["sha1", "sha256", "sha384", "sha512"])
def test_content_with_the_right_signature_is_taken(sqlite_api: Live, method):
    callback = subscribe(sqlite_api, secret=SECRET)
    signed = signature(ATOM, SECRET, method)
    assert send(sqlite_api, callback, X_Hub_Signature=signed).status_code == 202
    assert pinged(sqlite_api, NEWS) is not None
    assert count(sqlite_api, "unsigned") == 0


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"X_Hub_Signature": ""},
        {"X_Hub_Signature": "sha256"},
        {"X_Hub_Signature": signature(ATOM, "another")},
        {"X_Hub_Signature": signature(ATOM + b" ", SECRET)},
        {"X_Hub_Signature": signature(ATOM, SECRET, "md5")},
        {"X_Hub_Signature": signature(ATOM, SECRET)[:-1]},
        {"X_Hub_Signature": signature(ATOM, SECRET).replace("sha256", "sha1")},
        {"X_Hub_Signature": "sha256=\u00e9".encode("latin-1")},
    ],
)
def test_content_that_is_not_signed_as_agreed_is_ignored_without_a_word(sqlite_api: Live, headers):
    response = send(sqlite_api, subscribe(sqlite_api, secret=SECRET), **headers)
    assert (response.status_code, response.content) == (202, b"")
    assert pinged(sqlite_api, NEWS) is None
    assert count(sqlite_api, "unsigned") == 1


def test_content_over_the_limit_is_refused(sqlite_url):
    with running(sqlite_url, max_body_bytes=1_000) as api:
        assert send(api, subscribe(api), bytes(1_001)).status_code == 413


def test_a_hub_is_asked_to_try_again_when_too_much_is_waiting(sqlite_api: Live, monkeypatch):
    callback = subscribe(sqlite_api)
    sqlite_api.service.ping_reports.stop()  # as when the service is about to end
    response = send(sqlite_api, callback)
    assert response.status_code == 503
    assert "Retry-After" in response.headers


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"hub": HUB}, "topic"),
        ({"topic": TOPIC}, "hub"),
        ({"topic": "ftp://example.com/", "hub": HUB}, "topic"),
        ({"topic": TOPIC, "hub": "hub"}, "hub"),
        ({"topic": TOPIC + "\x00", "hub": HUB}, "topic"),
        ({"topic": TOPIC, "hub": HUB, "secret": ""}, "secret"),
        ({"topic": TOPIC, "hub": HUB, "secret": "x" * 200}, "secret"),
        ({"topic": TOPIC, "hub": HUB, "secret": "a\x00b"}, "secret"),
        ({"topic": TOPIC, "hub": HUB, "lease": 1}, "lease"),
        ({"topic": TOPIC, "hub": HUB, "host_policy": "all"}, "host_policy"),
        ({"topic": TOPIC, "hub": HUB, "host_policy": "listed"}, "listed_hosts"),
        ({"topic": TOPIC, "hub": HUB, "listed_hosts": ["a.example"]}, "listed_hosts"),
        (
            {"topic": TOPIC, "hub": HUB, "host_policy": "listed", "listed_hosts": ["a b"]},
            "listed_hosts[0]",
        ),
        (
            {"topic": TOPIC, "hub": HUB, "host_policy": "listed", "listed_hosts": ["a.example/x"]},
            "listed_hosts[0]",
        ),
        (
            {"topic": TOPIC, "hub": HUB, "host_policy": "listed", "listed_hosts": ["b", "u@b"]},
            "listed_hosts[1]",
        ),
        ({"topic": TOPIC, "hub": HUB, "public_url": "recrawl.example"}, "public_url"),
        ({"topic": TOPIC, "hub": HUB, "public_url": "https://a.example/?a"}, "public_url"),
    ],
)
def test_a_subscription_that_cannot_be_is_refused_by_its_field(sqlite_api: Live, body, field):
    response = sqlite_api.client.post("/websub", json=body)
    assert response.status_code == 422
    assert response.json()["field"] == field
    assert sqlite_api.get("/websub").json()["items"] == []


def test_content_is_on_disk_when_it_is_answered(sqlite_url):
    with running(sqlite_url) as api:
        send(api, subscribe(api))
    with running(sqlite_url) as again:
        assert pinged(again, NEWS) == "2026-05-01T08:30:00Z"
        assert only(again)["requested_at"] == START.isoformat().replace("+00:00", "Z")


def test_a_subscription_that_never_ends_is_confirmed(sqlite_api: Live):
    callback = subscribe(sqlite_api)
    assert verify(sqlite_api, callback, lease_seconds="3153600000").text == CHALLENGE
    assert only(sqlite_api)["expires_at"] == "2056-04-23T12:00:00Z"
