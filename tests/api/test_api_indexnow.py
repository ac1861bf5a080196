"""IndexNow over HTTP: the statuses of the protocol, and pings of this moment."""

import threading
from dataclasses import replace

import httpx
import pytest
from support.live_server import Live, running, until

from service.connectors import indexnow_keys
from service.connectors.guarded import AddressNotPublic
from service.connectors.indexnow import KeyFileAway

pytestmark = pytest.mark.dear

KEY = "0123abcd-4567-ef89"
URLS = [f"https://a.example/{i}" for i in range(3)]
BODY = {"host": "a.example", "key": KEY, "urlList": URLS}


def stranger(api: Live, **query) -> httpx.Response:
    """Submit one URL without an API key."""
    return httpx.get(f"{api.url}/indexnow", params={"url": URLS[0], "key": KEY, **query})


def n_pings(api: Live, url: str = URLS[0]) -> int | None:
    """Count a page's pings; None where it is not known."""
    response = api.get("/pages", url=url)
    return response.json()["estimate"]["n_pings"] if response.status_code == 200 else None


@pytest.mark.dear
def test_a_url_is_a_ping_of_this_moment(api: Live):
    response = api.get("/indexnow", url=URLS[0], key=KEY)
    assert response.status_code == 200, response.text
    assert response.json() == {"status": "taken", "n_urls": 1, "n_taken": 1}
    estimate = api.get("/pages", url=URLS[0]).json()["estimate"]
    assert estimate["last_ping_at"] == api.clock().isoformat().replace("+00:00", "Z")


def test_many_urls_are_posted_at_once_and_each_counts_once(api: Live):
    response = api.post("/indexnow", {**BODY, "urlList": [*URLS, URLS[0] + "#top"]})
    assert response.status_code == 200, response.text
    assert response.json() == {"status": "taken", "n_urls": 3, "n_taken": 3}
    assert [n_pings(api, url) for url in URLS] == [1, 1, 1]


@pytest.mark.dear
def test_ten_thousand_urls_are_taken_and_one_more_is_too_many(sqlite_api: Live):
    many = [f"https://a.example/{i}" for i in range(10_001)]
    assert sqlite_api.post("/indexnow", {**BODY, "urlList": many}).status_code == 400
    response = sqlite_api.post("/indexnow", {**BODY, "urlList": many[1:]})
    assert response.json()["n_taken"] == 10_000


@pytest.mark.parametrize(
    ("body", "status", "field", "says"),
    [
        (b"", 400, None, "send url and key"),
        (b"[]", 400, None, "not IndexNow"),
        (b'{"host": "a.example", "key": "0123abcd"}', 400, None, "urlList"),
        (b'{"host": "a.example", "key": "0123abcd", "urlList": [1]}', 400, None, "urlList"),
        (b'{"host": "a.example", "key": "0123abcd", "urlList": []}', 400, None, "send 1 to"),
        (b'{"host": "a.example", "key": "0", "urlList": ["https://a.example/"]}', 422, "key", ""),
        (
            b'{"host": "a.example", "key": "0123abcd", "urlList": ["https://b.example/"]}',
            422,
            "urlList[0]",
            "not of the host a.example",
        ),
        (
            b'{"host": "a.example", "key": "0123abcd", "urlList": ["http://a.example", "no"]}',
            422,
            "urlList[1]",
            "cannot be parsed",
        ),
        (
            b'{"host": "https://a.example", "key": "0123abcd", "urlList": ["https://a.example/"]}',
            422,
            "host",
            "send one like example.com",
        ),
    ],
)
def test_bodies_that_cannot_be_taken_are_refused_whole(sqlite_api, body, status, field, says):
    response = sqlite_api.client.post("/indexnow", content=body)
    assert response.status_code == status, response.text
    assert response.headers["Content-Type"] == "application/problem+json"
    assert response.json().get("field") == field
    assert says in response.json()["detail"]


@pytest.mark.parametrize("query", [{"url": URLS[0]}, {"key": KEY}, {}])
def test_a_call_without_url_or_key_is_no_indexnow(sqlite_api: Live, query):
    response = sqlite_api.get("/indexnow", **query)
    assert response.status_code == 400
    assert "is missing" in response.json()["detail"]


def test_too_much_at_once_is_told_by_429(sqlite_url, monkeypatch):
    with running(sqlite_url) as api:
        line = api.service.ping_reports
        line.limits = replace(line.limits, max_waiting=0)
        going, writing = threading.Event(), threading.Event()
        flush = line.flush

        def held(jobs):
            writing.set()
            going.wait(180)
            return flush(jobs)

        monkeypatch.setattr(line, "flush", held)
        threads = [threading.Thread(target=stranger, args=(api,)) for _ in range(2)]
        threads[0].start()
        assert writing.wait(180)
        threads[1].start()
        until(lambda: line.n_waiting == 1, "a second one waits")
        response = api.get("/indexnow", url=URLS[2], key=KEY)
        going.set()
        for thread in threads:
            thread.join()
        assert response.status_code == 429
        assert response.headers["Retry-After"] == "1"


# -- keys of sites


@pytest.fixture
def checked(sqlite_url):
    """A service with an API key that checks keys; what is found is set by the test."""
    with running(sqlite_url, api_keys=("secret",), indexnow_check=True) as api:
        api.service.key_checks.look = lambda _: True
        yield api


def test_an_api_key_is_asked_for_where_sites_are_not_checked(sqlite_url):
    with running(sqlite_url, api_keys=("secret",)) as api:
        assert stranger(api).status_code == 401
        assert api.get("/indexnow", url=URLS[0], key=KEY).status_code == 200


def test_a_new_key_is_pending_and_its_urls_are_taken_once_it_is_found(checked: Live):
    checked.register(*URLS)
    going = threading.Event()
    checked.service.key_checks.look = lambda _: going.wait(180)
    for _ in range(2):
        response = stranger(checked)
        assert response.status_code == 202, response.text
        assert response.json() == {"status": "pending", "n_urls": 1, "n_taken": 0}
    assert n_pings(checked) == 0
    going.set()
    until(lambda: n_pings(checked) == 1, "the key is found")
    checked.clock.advance(hours=1)
    assert stranger(checked).json() == {"status": "taken", "n_urls": 1, "n_taken": 1}
    assert n_pings(checked) == 2


def test_a_site_that_does_not_show_its_key_is_refused_for_a_while(checked: Live):
    checked.register(*URLS)
    looked = []
    checked.service.key_checks.look = lambda claim: bool(looked.append(claim.location))
    assert stranger(checked).status_code == 202
    until(lambda: stranger(checked).status_code == 403, "the site was looked at")
    assert looked == [f"https://a.example/{KEY}.txt"]
    assert n_pings(checked) == 0
    checked.clock.advance(minutes=6)
    checked.service.key_checks.look = lambda _: True
    assert stranger(checked).status_code == 202
    until(lambda: n_pings(checked) == 1, "the key is found")


def test_a_site_at_a_private_address_is_refused_by_this_reason(checked: Live):
    def look(_):
        raise AddressNotPublic("10.0.0.1")

    checked.service.key_checks.look = look
    assert stranger(checked).status_code == 202
    until(lambda: stranger(checked).status_code == 403, "the site was looked at")
    detail = stranger(checked).json()["detail"]
    assert detail.startswith(f"https://a.example/{KEY}.txt is not fetched: its host has an address")
    checked.clock.advance(minutes=6)
    checked.service.key_checks.look = lambda _: False
    assert stranger(checked).status_code == 202
    until(lambda: stranger(checked).status_code == 403, "the site was looked at again")
    assert "does not show the key" in stranger(checked).json()["detail"]


def test_the_key_of_a_site_registers_no_pages_and_an_api_key_does(checked: Live):
    assert stranger(checked).status_code == 202
    until(lambda: stranger(checked).status_code == 200, "the key is found")
    assert stranger(checked).json()["n_taken"] == 0
    assert n_pings(checked) is None
    assert checked.get("/indexnow", url=URLS[0], key=KEY).json()["n_taken"] == 1


def test_keys_beyond_those_that_may_wait_are_told_by_429(checked: Live, monkeypatch):
    bounds = tuple(
        bound._replace(most=indexnow_keys.LEAST_WEIGHT) for bound in indexnow_keys.BOUNDS
    )
    monkeypatch.setattr(indexnow_keys, "BOUNDS", bounds)
    going = threading.Event()
    checked.service.key_checks.look = lambda _: going.wait(180)
    assert stranger(checked).status_code == 202
    response = stranger(checked, key="another-key")
    assert response.status_code == 429
    assert response.headers["Retry-After"] == "1"
    going.set()


def test_a_look_that_fails_is_no_key_and_can_be_repeated(checked: Live):
    def fail(_):
        raise RuntimeError

    checked.service.key_checks.look = fail
    assert stranger(checked).status_code == 202
    until(lambda: stranger(checked).status_code == 403, "the look has failed")
    assert checked.alive()


def test_a_site_that_is_away_refuses_nothing_and_is_looked_at_again(checked: Live):
    checked.register(*URLS)
    looked = []

    def look(claim):
        looked.append(claim.location)
        if len(looked) < 3:
            raise KeyFileAway(45.0)
        return True

    checked.service.key_checks.look = look
    assert stranger(checked).status_code == 202
    for n, wait_s in enumerate((45, 120), 1):
        until(lambda n=n: len(looked) == n, "the site is looked at")
        assert stranger(checked).status_code == 202, "a submission waits for the same look"
        checked.clock.advance(seconds=wait_s)
    until(lambda: n_pings(checked) >= 1, "the site is back")
    assert stranger(checked).status_code == 200


def test_a_site_that_stays_away_loses_its_submissions_and_may_begin_anew(checked: Live):
    checked.register(*URLS)
    looked = []

    def away(claim):
        looked.append(claim)
        raise KeyFileAway

    checked.service.key_checks.look = away
    assert stranger(checked).status_code == 202
    for n, wait_s in enumerate(indexnow_keys.RETRIES_S, 1):
        until(lambda n=n: len(looked) == n, "a look")
        checked.clock.advance(seconds=wait_s)
    labels = {"kind": "indexnow", "outcome": "unchecked"}
    value = checked.service.telemetry.registry.get_sample_value
    until(lambda: value("recrawl_items_total", labels) == 1, "the submission is counted as lost")
    assert stranger(checked).status_code == 202, "no key was refused"
    assert n_pings(checked) == 0
