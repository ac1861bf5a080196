"""IndexNow from callers without an API key: what they may cost, and whom they may hold up."""

import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from types import SimpleNamespace

import httpx
import msgspec
import pytest
from support.live_server import Live, running, until

from service.api.routes.indexnow import many_urls, peer
from service.connectors import indexnow_keys
from service.connectors.indexnow_keys import Room
from service.model.errors import InvalidSettings, TooManyRequests
from service.runtime.settings import read_settings

KEY = "0123abcd-4567-ef89"
HEAD = b'{"host": "a.example", "key": "0123abcd-4567", "urlList": '
URLS = [f"https://a.example/{i}" for i in range(3)]


def body(host: str = "a.example", key: str = KEY, urls: list[str] | None = None) -> bytes:
    urls = [f"https://{host}/"] if urls is None else urls
    return json.dumps({"host": host, "key": key, "urlList": urls}).encode()


def stranger(api: Live, source: str = "127.0.0.1") -> httpx.Client:
    """A client without an API key, from an address of its own."""
    return httpx.Client(
        base_url=api.url, transport=httpx.HTTPTransport(local_address=source), timeout=180
    )


def refused(client: httpx.Client, content: bytes) -> bool:
    return client.post("/indexnow", content=content).status_code == 403


def n_items(api: Live, outcome: str) -> float:
    value = api.service.telemetry.registry.get_sample_value(
        "recrawl_items_total", {"kind": "indexnow", "outcome": outcome}
    )
    return value or 0.0


@pytest.fixture
def checked(sqlite_url) -> Iterator[Live]:
    with running(sqlite_url, api_keys=("secret",), indexnow_check=True) as api:
        api.service.key_checks.look = lambda _: True
        yield api


@pytest.fixture
def going() -> Iterator[threading.Event]:
    """What the key files of hostile sites wait for."""
    event = threading.Event()
    yield event
    event.set()


@pytest.mark.dear
def test_a_body_of_a_stranger_ends_at_a_megabyte_however_small_it_is_sent(checked: Live):
    large = body(urls=[f"https://a.example/{'x' * 1_000}{i}" for i in range(1_500)])
    bomb = gzip.compress(b"[" + b"0," * 12_000_000)
    assert len(bomb) < 31_000
    with stranger(checked) as client:
        response = client.post("/indexnow", content=large)
        assert response.status_code == 413
        assert "over 1000000 bytes" in response.json()["detail"]
        response = client.post("/indexnow", content=bomb, headers={"Content-Encoding": "gzip"})
        assert response.status_code == 413
    assert checked.client.post("/indexnow", content=large).status_code == 200


def test_more_urls_than_allowed_are_refused_before_they_are_decoded(checked: Live, monkeypatch):
    kinds = []
    decode = msgspec.json.decode

    def watched(content, *, type):  # noqa: A002
        kinds.append(type.__name__)
        return decode(content, type=type)

    monkeypatch.setattr(msgspec.json, "decode", watched)
    many = body(urls=["https://a.example/"] * 10_001)
    with stranger(checked) as client:
        assert client.post("/indexnow", content=many).status_code == 400
    response = checked.client.post("/indexnow", content=many)
    assert (response.status_code, "has 10,001 URLs" in response.text) == (400, True)
    assert kinds == ["Head", "Head"]


def test_urls_are_decoded_only_once_the_key_is_believed(checked: Live, going, monkeypatch):
    checked.register(*URLS)
    checked.service.key_checks.look = lambda _: going.wait(180)
    broken = body(urls=[URLS[0], "https://b.example/"])
    with stranger(checked) as client:
        for content in (body(urls=URLS), broken):
            response = client.post("/indexnow", content=content)
            assert response.status_code == 202, response.text
        assert response.json() == {"status": "pending", "n_urls": 2, "n_taken": 0}
        going.set()
        until(lambda: n_items(checked, "accepted") == 3, "the URLs are taken")
        until(lambda: n_items(checked, "rejected") == 2, "the others are counted")
        response = client.post("/indexnow", content=broken)
        assert (response.status_code, response.json()["field"]) == (422, "urlList[1]")


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("content", "status", "field"),
    [
        (body(key="short"), 422, "key"),
        (body(urls=["https://b.example/"]), 422, "urlList[0]"),
        (body(urls=[]), 400, None),
        (HEAD + b"[1]}", 400, None),
        (HEAD + b'"https://a.example/"}', 400, None),
        (HEAD + b'["https://a.example/"', 400, None),
        (HEAD + b'["\xff"]}', 400, None),
        (body().replace(b'"a.example"', b"1"), 400, None),
        (b"[" * 100_000, 400, None),
    ],
)
def test_what_can_be_seen_in_the_claim_is_refused_at_once(checked, content, status, field):
    checked.service.key_checks.look = lambda claim: pytest.fail(f"{claim} was looked at")
    with stranger(checked) as client:
        response = client.post("/indexnow", content=content)
    assert (response.status_code, response.json().get("field")) == (status, field)


@pytest.mark.parametrize(
    ("array", "n_urls"),
    [(b'["a"]', 1), (b'[ "a", "b\\"c" ]', 2), (b'["a", "a\\\\/", "\\u0022"]', 3), (b"[1]", 1)],
)
def test_urls_are_counted_as_sent(array, n_urls):
    assert many_urls(HEAD + array + b"}").n_urls == n_urls


# -- who waits for whom


@pytest.mark.dear
def test_hostile_submissions_do_not_hold_up_an_honest_site(checked: Live, going):
    """Key files of hostile hosts hang, for twice as many turns as there are fetchers."""
    checked.register("https://honest.example/")

    def look(claim):
        return claim.host == "honest.example" or going.wait(180)

    checked.service.key_checks.look = look
    statuses = set()
    with ExitStack() as clients:
        peers = [clients.enter_context(stranger(checked, f"127.0.1.{i}")) for i in range(1, 5)]
        for i in range(100):
            for n, client in enumerate(peers):
                content = body(f"{n}-{i % 3}.hostile.example", f"bogus-key-{i}")
                statuses.add(client.post("/indexnow", content=content).status_code)
        assert statuses == {202, 429}
        honest = clients.enter_context(stranger(checked, "127.0.0.2"))
        response = honest.post("/indexnow", content=body("honest.example"))
        assert response.status_code == 202, response.text
        until(lambda: n_items(checked, "accepted") == 1, "the honest key is believed")
        assert checked.alive()


@pytest.mark.dear
def test_a_refused_and_a_displaced_submission_are_counted(checked: Live, going):
    checked.service.key_checks.look = lambda _: not going.wait(180)
    with stranger(checked) as flood, stranger(checked, "127.0.0.2") as other:
        keys = (f"bogus-key-{i}" for i in count())
        while (response := flood.post("/indexnow", content=body(key=next(keys)))).is_success:
            assert response.status_code == 202
        assert response.status_code == 429
        assert other.post("/indexnow", content=body()).status_code == 202
        until(lambda: n_items(checked, "dropped") == 1, "one of the flood made room")
        going.set()
        until(lambda: n_items(checked, "refused") == 64, "no key is shown")


def test_a_server_ends_though_key_files_hang(sqlite_url, going):
    with running(sqlite_url, indexnow_check=True) as api:
        api.service.key_checks.look = lambda _: going.wait(180)
        with stranger(api) as client:
            assert client.post("/indexnow", content=body()).status_code == 202
    assert not going.is_set()


def test_verdicts_of_strangers_push_out_no_believed_key(checked: Live, monkeypatch):
    monkeypatch.setattr(indexnow_keys, "MAX_REFUSED", 2)
    checked.service.key_checks.look = lambda claim: claim.key == KEY
    with stranger(checked) as client:
        assert client.post("/indexnow", content=body()).status_code == 202
        for i in range(5):
            content = body(key=f"bogus-key-{i}")
            assert client.post("/indexnow", content=content).status_code == 202
            until(
                lambda content=content: (
                    client.post("/indexnow", content=content).status_code == 403
                ),
                "the bogus key is refused",
            )
        assert len(checked.service.key_checks._until[False]) == 2
        assert client.post("/indexnow", content=body()).status_code == 200


# -- peers and their bodies


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("fe80::1%eth0", "fe80::"),
        ("testclient", "testclient"),
        (None, ""),
    ],
)
def test_a_peer_is_an_address_or_the_network_of_one_customer(host, name):
    client = None if host is None else SimpleNamespace(host=host)
    assert peer(SimpleNamespace(client=client)) == name


def test_bytes_of_bodies_are_bounded_for_each_peer_and_for_all_and_end_with_the_body():
    room = Room(most=250, most_of_peer=100)
    with room.held("p") as hold, room.held("q") as other, room.held("p") as again:
        hold(60)
        with pytest.raises(TooManyRequests):
            again(41)
        again(40)
        other(100)
        with room.held("r") as third, pytest.raises(TooManyRequests):
            third(51)
    assert not room._held
    with room.held("p") as hold:
        hold(100)


def test_bodies_of_strangers_beyond_their_room_are_told_by_429(checked: Live):
    room = checked.service.key_checks.bodies
    with room.held("127.0.0.1") as hold, stranger(checked) as client:
        hold(room.most_of_peer)
        response = client.post("/indexnow", content=body())
        assert response.status_code == 429
        assert response.headers["Retry-After"] == "1"
        assert checked.client.post("/indexnow", content=body()).status_code == 200
    with stranger(checked) as client:
        assert client.post("/indexnow", content=body()).status_code == 202


@pytest.mark.parametrize("proxies", ["10.0.0.0/33", "proxy.example", "10.0.0.1/8"])
def test_a_proxy_that_is_no_address_is_refused(proxies):
    with pytest.raises(InvalidSettings, match="name addresses or networks"):
        read_settings(trusted_proxies=proxies)


def test_trusted_proxies_are_separated_by_commas():
    settings = read_settings(trusted_proxies="10.0.0.1, fd00::/8,")
    assert settings.trusted_proxies == ("10.0.0.1", "fd00::/8")
