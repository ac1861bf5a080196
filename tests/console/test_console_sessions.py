"""Who enters the console, for how long, and whose forms it accepts."""

import httpx
import pytest
from support.access_cases import ADMIN, new_key
from support.browsing import Browser, Page
from support.live_server import running, until

from service.access.keyring import MAX_AGE_S
from service.access.keys import revoke_key
from service.console.session import COOKIE, LIFETIME_S, Seal, Session, end
from service.model.access import RECRAWL, Role
from service.model.errors import StoreUnavailable


def sign_in(live, key=ADMIN, **headers):
    """Return the answer to a sign-in with the form's own token."""
    with httpx.Client(base_url=live.url, headers=headers) as client:
        page = Page(client.get("/console/sign-in").text)
        form = page.form("/console/sign-in") | {"key": key}
        cookie = client.cookies.get(COOKIE)
        sent = {"Cookie": f"{COOKIE}={cookie}"} if cookie else {}
        return client.post("/console/sign-in", data=form, headers=sent)


def is_refused(live, cookie):
    """Return whether a cookie opens no view, only the sign-in."""
    answer = httpx.get(f"{live.url}/console", cookies={COOKIE: cookie})
    if answer.status_code == 200:
        return False
    assert (answer.status_code, answer.headers["location"]) == (
        303,
        "/console/sign-in?next=/console",
    )
    form = httpx.get(f"{live.url}/console/sign-in", cookies={COOKIE: cookie})
    assert "API key" in form.text
    return True


@pytest.mark.dear
def test_a_visitor_without_a_key_comes_to_the_sign_in_and_then_to_the_page_it_wanted(live):
    browser = Browser(live.url)
    assert browser.client.get("/console/pages?tag=all").headers["location"] == (
        "/console/sign-in?next=/console/pages%3Ftag%3Dall"
    )
    browser.open("/console/pages?tag=all")
    form = browser.open("/console/pages?tag=all").form("/console/sign-in")
    answer = browser.client.post("/console/sign-in", data=form | {"key": ADMIN})
    assert (answer.status_code, answer.headers["location"]) == (303, "/console/pages?tag=all")
    assert "12 selected" in browser.open("/console/pages?tag=all").text


def test_a_wrong_key_and_a_limited_key_are_refused_with_their_reasons(live):
    limited, _ = new_key(live.service.store, Role.read, hosts=("news.example",))
    live.service.gate.ring.refresh()
    assert "not valid" in Browser(live.url).sign_in("rcr_0000000000_wrong", 401).text
    assert "without limits" in Browser(live.url).sign_in(limited, 403).text
    assert "characters" in Browser(live.url).sign_in("x" * 3_000, 403).text


def test_the_cookie_is_out_of_reach_of_scripts_and_other_sites_and_does_not_show_the_key(live):
    key, _ = new_key(live.service.store, Role.read)
    live.service.gate.ring.refresh()
    local, remote = sign_in(live, key), sign_in(live, key, **{"X-Forwarded-For": "203.0.113.7"})
    for answer in (local, remote):
        (cookie,) = answer.headers.get_list("set-cookie")
        assert {"HttpOnly", "SameSite=strict", "Path=/console", f"Max-Age={LIFETIME_S}"} <= set(
            cookie.split("; ")
        )
        assert key.rpartition("_")[2] not in cookie
    assert "Secure" not in local.headers["set-cookie"]
    assert "Secure" in remote.headers["set-cookie"]


def test_a_session_ends_with_its_key_with_its_time_and_with_the_sign_out(live):
    key, key_id = new_key(live.service.store, Role.read)
    live.service.gate.ring.refresh()
    browser = Browser(live.url)
    browser.sign_in(key)
    assert "Overview" in browser.open().text
    stolen = browser.client.cookies.get(COOKIE)
    browser.send("/console", "/console/sign-out")
    assert "API key" in browser.open().text
    assert is_refused(live, stolen)
    again = Browser(live.url)
    again.sign_in(key)
    stolen = again.client.cookies.get(COOKIE)
    assert not is_refused(live, stolen)
    with live.service.store.begin() as tx:
        revoke_key(tx, RECRAWL, key_id)
    live.service.gate.ring.refresh()  # the thread of the keys does so within five seconds
    assert is_refused(live, stolen)
    old = Browser(live.url)
    old.sign_in()
    live.clock.advance(seconds=LIFETIME_S + 61)
    assert "API key" in old.open().text


def test_nobody_can_make_or_change_a_cookie(live):
    browser = Browser(live.url)
    browser.sign_in()
    sealed = browser.client.cookies.get(COOKIE)
    flipped = sealed[:40] + ("A" if sealed[40] != "A" else "B") + sealed[41:]
    for cookie in (flipped, sealed[:-8], "", "{}", "gAAAAA==", "ü"):
        header = {"Cookie": f"{COOKIE}={cookie}".encode()}
        answer = httpx.get(f"{live.url}/console", headers=header)
        assert answer.status_code == 303, cookie
        assert answer.headers["location"].startswith("/console/sign-in")


@pytest.mark.dear
def test_all_servers_of_a_database_accept_the_cookie_of_one(postgres_url):
    with running(postgres_url, api_keys=[ADMIN]) as one:
        browser = Browser(one.url)
        browser.sign_in()
        cookie = browser.client.cookies.get(COOKIE)
        with running(postgres_url, api_keys=[ADMIN]) as other:
            answer = httpx.get(f"{other.url}/console", cookies={COOKIE: cookie})
            assert answer.status_code == 200
    with running(postgres_url, api_keys=["another key"]) as rotated:
        answer = httpx.get(f"{rotated.url}/console", cookies={COOKIE: cookie})
        assert answer.status_code == 303


@pytest.mark.dear
@pytest.mark.parametrize("store", ["sqlite_url", "postgres_url"])
def test_a_sign_out_ends_the_cookie_on_every_server_within_five_seconds(store, request):
    """The stolen cookie holds a key of the environment, which nobody can revoke while it runs."""
    url = request.getfixturevalue(store)
    with running(url, api_keys=[ADMIN]) as one, running(url, api_keys=[ADMIN]) as other:
        browser, colleague = Browser(one.url), Browser(one.url)
        browser.sign_in()
        colleague.sign_in()
        stolen = browser.client.cookies.get(COOKIE)
        assert not is_refused(other, stolen)
        browser.send("/console", "/console/sign-out")
        assert is_refused(one, stolen)
        until(lambda: is_refused(other, stolen), "the other server refuses the cookie", MAX_AGE_S)
        for live in (one, other):
            assert not is_refused(live, colleague.client.cookies.get(COOKIE))


def test_a_server_that_cannot_read_who_signed_out_refuses_and_leaves_the_cookie(live, monkeypatch):
    browser = Browser(live.url)
    browser.sign_in()
    ring = live.service.gate.ring

    def refresh():
        raise StoreUnavailable

    with monkeypatch.context() as outage:
        outage.setattr(ring, "refresh", refresh)
        with ring.reading:  # a reading that has begun ends before
            ring.read_at -= MAX_AGE_S
        answer = browser.client.get("/console")
        assert (answer.status_code, answer.headers.get("set-cookie")) == (503, None)
    ring.refresh()
    assert "Overview" in browser.open().text


def test_ends_of_sessions_are_kept_while_their_cookies_would_work(live):
    first, second = Session(ADMIN), Session(ADMIN)
    end(live.service.store, first)
    live.clock.advance(seconds=LIFETIME_S)
    end(live.service.store, second)
    assert {first.digest, second.digest} <= ended(live)
    live.clock.advance(seconds=1)
    end(live.service.store, second)
    assert first.digest not in ended(live)
    assert second.digest in ended(live)


def ended(live):
    with live.service.store.begin(write=False) as tx:
        return tx.ended_sessions()


def test_the_database_alone_makes_no_session(live):
    """The kept secret opens cookies, but there is no key in the database to put into one."""
    forged = live.service
    seal = Seal(forged.store, forged.now)
    with forged.store.begin(write=False) as tx:
        rows = tx.usable_keys(tx.now())
    for key in ["", *(row.digest.hex() for row in rows), *(row.key_id for row in rows)]:
        cookie = seal.close(Session(key))
        assert httpx.get(f"{live.url}/console", cookies={COOKIE: cookie}).status_code == 303


ACTS = (
    "/console/pages/1/recrawl",
    "/console/pages/1/delete",
    "/console/pages/recrawl",
    "/console/hosts/news.example/pause",
    "/console/epochs",
    "/console/access/keys",
    "/console/sign-out",
    "/console/theme",
    "/console/sign-in",
)


@pytest.mark.parametrize("token", [None, "", "x.y", "of another session"])
def test_a_form_without_the_token_of_its_session_does_nothing(live, admin, token):
    if token == "of another session":
        token = Browser(live.url).open("/console/sign-in").form("/console/sign-in")["token"]
    before = live.client.get("/audit").json()["items"][0]["entry"]
    for act in ACTS:
        fields = {} if token is None else {"token": token}
        answer = admin.client.post(act, data=fields | {"key": ADMIN, "all_pages": "true"})
        assert answer.status_code == 403, act
        assert "does not belong to your session" in answer.text
    assert live.client.get("/audit").json()["items"][0]["entry"] == before


def test_forms_are_bounded(admin):
    big = admin.client.post("/console/epochs", data={"token": "x" * 70_000})
    many = admin.client.post("/console/epochs", data={f"f{i}": "1" for i in range(80)})
    assert (big.status_code, many.status_code) == (413, 400)


def test_a_service_without_keys_needs_no_sign_in_on_this_machine_but_tokens(sqlite_url):
    with running(sqlite_url) as live:
        live.register("https://a.example/")
        browser = Browser(live.url)
        page = browser.open("/console/pages/1")
        assert page.acts == ["/console/pages/1/delete", "/console/pages/1/recrawl"]
        for act in page.acts:
            assert browser.client.post(act).status_code == 403
        assert "requested" in browser.send("/console/pages/1", "/console/pages/1/recrawl").text
        assert browser.client.get("/console/sign-in").headers["location"] == "/console"


def test_a_choice_of_colours_stays_and_leads_back(live, admin):
    back = "/console/hosts"
    page = admin.send(back, "/console/theme", theme="dark")
    assert 'data-theme="dark"' in page.raw
    assert "Hosts" in page.text
    for trick in (
        "https://evil.example/",
        "//evil.example",
        "/console\\evil",
        "/docs",
        "/console\n",
    ):
        form = admin.open(back).form("/console/theme") | {"next": trick, "theme": "light"}
        assert admin.client.post("/console/theme", data=form).headers["location"] == "/console"
