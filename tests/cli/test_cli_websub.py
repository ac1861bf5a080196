"""`recrawl websub`: a hub is found, asked, and tells the service what is new."""

import gzip
import json
from functools import partial

import httpx
import pytest
from support.hubs import open_hub, signature
from support.live_server import running
from support.loopback import Loopback, Names

from service.connectors import websub
from service.connectors.websub import MAX_BYTES, HubTopic, discover, patient_client
from service.connectors.websub import subscribe as ask
from service.model.errors import HubRefused

HTML = '<html><head><link rel="hub" href="/hub"><link rel=self href="/topic"></head><body>'
ATOM = '<feed xmlns="http://www.w3.org/2005/Atom"><link rel="hub" href="/hub"/>{}</feed>'
RSS = """<?xml version="1.0"?><rss xmlns:atom="http://www.w3.org/2005/Atom"><channel><title/>
<atom:link rel="self" href="/topic"/><atom:link rel="hub" href="/hub"/><item/></channel></rss>"""


@pytest.fixture
def hub():
    with open_hub() as hub:
        yield hub


@pytest.fixture
def api(database_url):
    with running(database_url) as live:
        yield live


@pytest.fixture
def subscribe(recrawl, api, hub):
    """Subscribe to a path of the publisher."""

    def run(path="/feed", **settings):
        return recrawl(
            "websub",
            "subscribe",
            hub.url + path,
            "--callback",
            f"{api.url}/",
            "--private",
            **{"url": api.url, **settings},
        )

    return run


def pinged(api, url):
    response = api.get("/pages", url=url)
    return response.json()["estimate"]["last_ping_at"] if response.status_code == 200 else None


def listed(recrawl, api):
    ended = recrawl("websub", "list", url=api.url)
    assert ended.status == 0, ended.err
    return [json.loads(line) for line in ended.out.splitlines()]


@pytest.mark.dear
def test_a_feed_is_subscribed_to_and_its_news_arrive(subscribe, recrawl, hub, api):
    feed = ATOM.format("<entry><link href='/{}'/><updated>2026-05-01T{}Z</updated></entry>")
    hub.documents["/feed"] = ({}, feed.format("old", "08:00:00").encode())
    ended = subscribe()
    assert (ended.status, ended.err) == (0, "")
    assert ended.out.startswith(f"{hub.url}/feed: asked {hub.url}/hub")
    (subscription,) = listed(recrawl, api)
    assert subscription["verified_at"] == "2026-05-01T12:00:00Z"
    assert subscription["expires_at"] == "2026-05-11T12:00:00Z"
    assert subscription["signed"] is True
    assert hub.subscribers[0]["hub.secret"] not in json.dumps(subscription)

    right = feed.format("a", "09:00:00").encode()
    assert [r.status_code for r in hub.distribute(right, method="sha512")] == [202]
    assert pinged(api, f"{hub.url}/a") == "2026-05-01T09:00:00Z"

    hub.subscribers[0]["hub.secret"] = "a guess"
    wrong = feed.format("b", "09:00:00").encode()
    assert [r.status_code for r in hub.distribute(wrong)] == [202]
    missing = api.client.post(subscription["callback"], content=wrong)
    assert missing.status_code == 202
    assert pinged(api, f"{hub.url}/b") is None


@pytest.mark.dear
def test_subscribing_again_renews_without_a_gap(subscribe, recrawl, hub, api):
    hub.documents["/feed"] = ({}, ATOM.encode())
    subscribe()
    api.clock.advance(days=9)
    subscribe()
    (renewed,) = listed(recrawl, api)
    assert renewed["expires_at"] == "2026-05-20T12:00:00Z"
    content = ATOM.format("<entry><link href='/a'/></entry>").encode()
    assert [response.status_code for response in hub.distribute(content)] == [410, 202]


def test_pages_of_other_hosts_are_taken_where_the_command_lists_them(recrawl, hub, api):
    hub.documents["/feed"] = ({}, ATOM.encode())
    options = ("--callback", api.url, "--private", "--listed-host", "b.example")
    ended = recrawl("websub", "subscribe", f"{hub.url}/feed", *options, url=api.url)
    assert (ended.status, ended.err) == (0, "")
    (one,) = listed(recrawl, api)
    assert (one["host_policy"], one["listed_hosts"]) == ("listed", ["b.example"])
    assert (one["state"], one["public_url"]) == ("active", api.url)
    entries = "".join(f"<entry><link href='https://{h}.example/'/></entry>" for h in "bc")
    assert [sent.status_code for sent in hub.distribute(ATOM.format(entries).encode())] == [202]
    shown = json.loads(recrawl("websub", "show", one["id"], url=api.url).out)
    assert [entry["url"] for entry in shown["last_taken"]] == ["https://b.example/"]
    assert [entry["url"] for entry in shown["last_rejected"]] == ["https://c.example/"]


def test_a_policy_without_its_hosts_is_refused(subscribe, recrawl, hub, api):
    hub.documents["/feed"] = ({}, ATOM.encode())
    for options in (("--host-policy", "listed"), ("--host-policy", "any", "--listed-host", "b")):
        ended = recrawl(
            *("websub", "subscribe", f"{hub.url}/feed", "--callback", api.url, "--private"),
            *options,
            url=api.url,
        )
        assert "listed_hosts needs host_policy listed" in ended.refusal()
    assert listed(recrawl, api) == []


def test_one_that_is_ended_is_ending_until_the_hub_has_confirmed(subscribe, recrawl, hub, api):
    hub.documents["/feed"] = ({}, ATOM.encode())
    subscribe()
    (one,) = listed(recrawl, api)
    assert recrawl("websub", "unsubscribe", one["id"], url=api.url).status == 0
    assert [one["state"] for one in listed(recrawl, api)] in (["ending"], [])
    for name, words in (("A" * 22, "No such subscription"), ("../pages", "404 Not found")):
        assert words in recrawl("websub", "unsubscribe", name, url=api.url).refusal()


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_hub_that_has_moved_gets_the_same_post(subscribe, recrawl, hub, api, status):
    hub.documents["/feed"] = ({}, ATOM.encode())
    hub.redirects = {"/hub": (status, "/next")}
    assert subscribe().status == 0
    assert [path for path, _ in hub.asked] == ["/hub", "/next"]
    assert listed(recrawl, api)[0]["state"] == "active"


def test_a_secret_never_goes_from_https_to_http():
    def moved(request):
        return httpx.Response(307, headers={"Location": "http://hub.example/"})

    with (
        httpx.Client(transport=httpx.MockTransport(moved)) as client,
        pytest.raises(HubRefused, match="which is no HTTPS"),
    ):
        ask(client, HubTopic("https://a.example/", "https://hub.example/"), "https://r/", "s")


def test_a_hub_that_refuses_leaves_no_subscription_behind(subscribe, recrawl, hub, api):
    hub.documents["/feed"] = ({}, ATOM.encode())
    hub.refusal = 403
    assert f"the hub {hub.url}/hub answered 403" in subscribe().refusal()
    assert listed(recrawl, api) == []


def test_a_hub_that_fails_after_it_has_verified_keeps_the_subscription(
    subscribe, recrawl, hub, api
):
    hub.documents["/feed"] = ({}, ATOM.encode())
    subscribe()
    hub.refusal = 502
    assert f"the hub {hub.url}/hub answered 502" in subscribe().refusal()
    content = ATOM.format("<entry><link href='/a'/></entry>").encode()
    assert [response.status_code for response in hub.distribute(content)] == [410, 202]
    assert len(listed(recrawl, api)) == 1


def test_a_page_without_a_hub_is_told_so(subscribe, hub):
    hub.documents["/feed"] = ({}, b"<feed/>")
    assert "names no hub" in subscribe().refusal()
    assert "/missing answered 404" in subscribe("/missing").refusal()


# -- discovery


def found(hub, path="/feed"):
    """Tell the topic and the hub as paths."""
    with patient_client(private=True) as client:
        topic = discover(client, hub.url + path)
    return topic.url.removeprefix(hub.url), topic.hub.removeprefix(hub.url)


@pytest.mark.parametrize("content", [HTML, RSS])
def test_the_hub_is_found_in_the_head_of_html_and_rss(hub, content):
    hub.documents["/feed"] = ({}, content.encode())
    assert found(hub) == ("/topic", "/hub")


@pytest.mark.parametrize("rest", ['"items": []}', '"items": [{"id": "1", "url": '])
def test_the_hub_of_a_json_feed_is_found(hub, rest):
    hubs = '"hubs": [{"type": "rssCloud", "url": "/no"}, {"type": "WebSub", "url": "/hub"}]'
    content = f'\ufeff {{"feed_url": "/topic", {hubs}, {rest}'
    hub.documents["/feed"] = ({}, content.encode())
    assert found(hub) == ("/topic", "/hub")


def test_the_topic_is_where_the_redirects_led_unless_it_says_otherwise(hub):
    hub.documents["/feed"] = ({"Location": "/moved"}, b"")
    hub.documents["/moved"] = ({}, ATOM.encode())
    assert found(hub) == ("/moved", "/hub")


def test_link_headers_count_before_the_document(hub):
    links = '<https://hub.example/>; rel="hub", </topic>; rel="self"'
    hub.documents["/feed"] = ({"Link": links}, HTML.replace("/topic", "/other").encode())
    assert found(hub) == ("/topic", "https://hub.example/")


def test_links_inside_of_the_content_count_for_nothing(subscribe, hub):
    entry = '<entry><link rel="hub" href="/evil"/></entry>'
    hub.documents["/feed"] = ({}, ATOM.replace('<link rel="hub" href="/hub"/>{}', entry).encode())
    assert "names no hub" in subscribe().refusal()


@pytest.mark.dear
def test_a_document_is_not_read_without_end(subscribe, hub):
    hub.documents["/feed"] = ({}, b" " * (2 * MAX_BYTES) + HTML.encode())
    assert "names no hub" in subscribe().refusal()


def test_a_hub_whose_name_is_no_url_is_told_so(subscribe, hub):
    hub.documents["/feed"] = ({"Link": '<https://[>; rel="hub"'}, b"")
    assert "cannot be fetched or read" in subscribe().refusal()


def test_redirects_come_to_an_end(subscribe, hub):
    hub.documents["/feed"] = ({"Location": "/feed"}, b"")
    assert "cannot be fetched" in subscribe().refusal()


def test_a_feed_in_the_operators_network_is_asked_for_only_with_private(recrawl, hub, api):
    hub.documents["/feed"] = ({}, ATOM.encode())
    callback = ("--callback", f"{api.url}/")
    ended = recrawl("websub", "subscribe", f"{hub.url}/feed", *callback, url=api.url)
    assert "127.0.0.1 is not public; --private allows addresses" in ended.refusal()
    assert listed(recrawl, api) == []


def test_no_feed_leads_its_secret_to_a_hub_in_the_operators_network(recrawl, hub, api, monkeypatch):
    links = f'<{hub.url}/hub>; rel="hub"'
    hub.documents["/feed"] = ({"Link": links}, b"")
    names = Names(**{"news.example": "8.8.8.8", "127.0.0.1": "127.0.0.1"})
    network = Loopback(hub.server.server_port)
    guarded = partial(websub.guarded_client, look_up=names, network=network)
    monkeypatch.setattr(websub, "guarded_client", guarded)
    ended = recrawl(
        "websub", "subscribe", "http://news.example/feed", "--callback", api.url, url=api.url
    )
    assert "the hub" in ended.refusal()
    assert "127.0.0.1 is not public" in ended.err
    assert network.reached == [("8.8.8.8", 80)]
    assert hub.subscribers == listed(recrawl, api) == []


@pytest.mark.dear
def test_a_compressed_feed_is_read_within_bounds_and_other_codings_are_not(hub, subscribe):
    bomb = gzip.compress(bytes(20_000_000))
    hub.documents["/bomb"] = ({"Content-Encoding": "gzip"}, bomb + HTML.encode())
    assert "names no hub" in subscribe("/bomb").refusal()
    hub.documents["/feed"] = ({"Content-Encoding": "gzip"}, gzip.compress(HTML.encode()))
    assert found(hub) == ("/topic", "/hub")
    hub.documents["/feed"] = ({"Content-Encoding": "zstd"}, b"")
    assert "zstd was not requested" in subscribe().refusal()


@pytest.mark.parametrize("charset", ["latin-1", "zlib", "undefined", "none such"])
def test_a_charset_that_is_none_is_read_as_utf_8(hub, charset):
    hub.documents["/feed"] = ({"Content-Type": f"text/html; charset={charset}"}, HTML.encode())
    assert found(hub) == ("/topic", "/hub")


def test_the_signature_of_the_test_hub_is_that_of_the_specification():
    assert signature(b"", "key", "sha1") == "sha1=f42bb0eeb018ebbd4597ae7213711ec60760843f"
