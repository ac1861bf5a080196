"""Webhooks end to end: from a report over the feed to a receiver that verifies each request."""

import base64
import gzip
import re
import resource
from datetime import UTC, datetime, timedelta

import pytest
from support.live_server import Clock, Live, running
from support.receiver import SECRET, receiving

from service.api.cursors import FeedCursor, encode_cursor
from service.events import courier, reading
from service.events.delivery import RetryRules
from service.events.posting import keys

URLS = [f"https://a.example/{i}" for i in range(8)]


@pytest.fixture
def live(database_url):
    """A service with the present time, because signatures are valid for minutes."""
    clock = Clock()
    clock.now = datetime.now(UTC)
    with running(database_url, clock=clock, webhooks_private=True) as live:
        for url in URLS:  # one by one, so that their ids ascend
            live.register(url)
        yield live


@pytest.fixture
def receiver():
    with receiving() as receiver:
        yield receiver
        assert receiver.faults == []


def hook(live: Live, receiver, **fields) -> str:
    body = {"url": receiver.url, "secret": SECRET, **fields}
    response = live.client.post("/webhooks", json=body)
    assert response.status_code == 200, response.text
    return response.json()["id"]


def report(live: Live, *urls, hours=0, **fields) -> None:
    at = (live.clock.now - timedelta(hours=20 - hours)).isoformat()
    items = [{"url": url, "observed_at": at, **fields} for url in urls]
    if "digest" in fields:  # each page has content of its own
        items = [{**item, "digest": f"{fields['digest']} of {item['url']}"} for item in items]
    response = live.post("/observations", items)
    assert response.json()["accepted"] == len(urls), response.text


def deliver(live: Live, rounds: int = 1) -> None:
    """Deliver, as long after the last delivery as a batch that was not full makes others wait."""
    for _ in range(rounds):
        live.clock.advance(seconds=RetryRules().gather_s)
        live.service.courier.run_once()


def state(live: Live, webhook_id: str) -> dict:
    return live.get(f"/webhooks/{webhook_id}").json()


def pages(events) -> list[str]:
    return [event["subject"] for event in events]


def test_each_change_arrives_as_a_signed_cloud_event(live, receiver):
    hook(live, receiver)
    report(live, *URLS[:3], digest="one")
    deliver(live)
    assert pages(receiver.accepted) == URLS[:3]
    event = receiver.accepted[0]
    (change, *_) = live.get("/changes").json()["items"]
    assert event["data"] == change
    assert (event["id"], event["time"]) == (change["id"], change["observed_at"])
    assert event["type"] == "io.github.recrawl.page.new"
    assert event["partitionkey"] == str(change["page_id"])
    assert len({request.delivery for request in receiver.requests}) == 3


def test_batches_are_arrays_of_events(live, receiver):
    hook(live, receiver, max_items=5)
    report(live, *URLS, digest="one")
    deliver(live)
    assert [len(request.events) for request in receiver.requests] == [5, 3]
    assert pages(receiver.accepted) == URLS


def test_a_backlog_is_delivered_at_one_go_while_time_passes(database_url, receiver):
    class Ticking(Clock):
        def __call__(self):
            self.advance(seconds=0.001)
            return super().__call__()

    clock = Ticking()
    clock.now = datetime.now(UTC)
    with running(database_url, clock=clock, webhooks_private=True) as live:
        hook(live, receiver, max_items=2)
        report(live, *URLS, digest="one")
        deliver(live)
        assert [len(request.events) for request in receiver.requests] == [2, 2, 2, 2]


def test_delivery_begins_with_the_next_change_or_at_a_cursor(live, receiver):
    report(live, *URLS[:4], digest="one")
    cursor = live.get("/changes", limit=2).json()["next_cursor"]
    hook(live, receiver)
    deliver(live)
    assert receiver.requests == []
    hook(live, receiver, cursor=cursor)
    deliver(live)
    assert pages(receiver.accepted) == URLS[2:4]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"kinds": ["changed"]}, URLS[:2]),
        ({"prefix": "https://a.example/7"}, URLS[7:]),
        ({"host": "b.example"}, []),
        ({"tag": "docs"}, URLS[4:5]),
        ({"tag": "none"}, []),
    ],
)
def test_a_filter_chooses_changes(live, receiver, filters, expected):
    live.post("/pages", [{"url": URLS[4], "tags": ["docs"]}])
    webhook_id = hook(live, receiver, **filters)
    report(live, *URLS, digest="one")
    report(live, *URLS[:2], digest="two", hours=1)
    deliver(live, 3)
    assert pages(receiver.accepted) == expected
    live.service.courier._scans.clear()  # as after five seconds
    assert state(live, webhook_id)["status"] == "active"


def test_an_address_that_fails_gets_the_same_batch_again_after_a_wait(live, receiver):
    answers = iter([503, 204, 204])
    receiver.answer = lambda _: next(answers)
    webhook_id = hook(live, receiver, max_items=10)
    report(live, *URLS[:3], digest="one")
    deliver(live, 3)
    assert len(receiver.requests) == 1
    failing = state(live, webhook_id)
    assert (failing["n_attempts"], failing["lag_s"] >= 0) == (1, True)
    live.clock.advance(seconds=7)
    deliver(live, 2)
    report(live, URLS[5], digest="one")
    deliver(live, 2)
    names = [request.delivery for request in receiver.requests]
    assert names[0] == names[1] != names[2]
    assert [len(request.events) for request in receiver.requests] == [3, 3, 1]
    fine = state(live, webhook_id)
    assert (fine["n_attempts"], fine["failing_since"]) == (0, None)


@pytest.mark.dear
def test_a_repeated_batch_with_a_parked_page_leaves_none_out(live, receiver):
    """The page in the middle is parked, then the first try of a batch around it fails."""
    poison = {URLS[0]}
    receiver.answer = lambda events: 422 if poison & set(pages(events)) else 204
    webhook_id = hook(live, receiver, max_items=8)
    report(live, URLS[0], digest="one")
    for _ in range(4):
        deliver(live)
        live.clock.advance(seconds=6)
    assert [one["page_id"] for one in state(live, webhook_id)["parked"]] == [1]
    answers = iter([503, 204, 204])
    receiver.answer = lambda _: next(answers)
    n_before = len(receiver.requests)
    report(live, *URLS[:5], digest="two", hours=1)
    deliver(live)
    live.clock.advance(seconds=7)
    deliver(live, 2)
    first, again = receiver.requests[n_before:]
    assert (first.delivery, first.events) == (again.delivery, again.events)
    assert pages(again.events) == URLS[1:5]


def test_pages_that_get_the_tag_between_two_tries_push_no_change_out(live, receiver):
    live.post("/pages", [{"url": url, "tags": ["docs"]} for url in URLS[4:6]])
    answers = iter([503, 204, 204])
    receiver.answer = lambda _: next(answers)
    hook(live, receiver, max_items=2, tag="docs")
    report(live, *URLS, digest="one")
    deliver(live)
    live.post("/pages", [{"url": url, "tags": ["docs"]} for url in URLS[:1]])
    live.clock.advance(seconds=7)
    deliver(live, 2)
    assert [event["data"]["tags"] for event in receiver.accepted] == [["docs"]] * 3
    assert pages(receiver.accepted) == [URLS[0], *URLS[4:6]]


def test_a_failing_address_is_disabled_after_three_days_and_keeps_its_place(live, receiver):
    receiver.answer = lambda _: 503
    webhook_id = hook(live, receiver)
    place = state(live, webhook_id)["cursor"]
    report(live, URLS[0], digest="one")
    secret_valid_for_days = receiver.take
    receiver.take = lambda *_: 503  # its clock, unlike that of the test, stands still
    for _ in range(30):
        deliver(live)
        live.clock.advance(hours=13)
    disabled = state(live, webhook_id)
    assert disabled["status"] == "disabled"
    assert "no success since" in disabled["reason"]
    assert "503" in disabled["reason"]
    assert disabled["cursor"] == place
    assert acts(live, webhook_id)[-1]["key"] == "recrawl"
    receiver.take = secret_valid_for_days
    receiver.answer = lambda _: 204
    live.clock.now = datetime.now(UTC)
    patched = live.client.patch(f"/webhooks/{webhook_id}", json={"paused": False})
    assert (patched.json()["status"], patched.json()["reason"]) == ("active", None)
    deliver(live)
    assert pages(receiver.accepted) == [URLS[0]]


def test_an_address_that_is_gone_is_disabled_at_once(live, receiver):
    receiver.answer = lambda _: 410
    webhook_id = hook(live, receiver)
    report(live, *URLS[:2], digest="one")
    deliver(live, 3)
    assert len(receiver.requests) == 1
    assert state(live, webhook_id)["status"] == "disabled"


def test_a_poisonous_change_is_parked_with_its_page_and_the_others_arrive(live, receiver):
    receiver.answer = lambda events: 422 if URLS[3] in pages(events) else 204
    webhook_id = hook(live, receiver, max_items=8)
    report(live, *URLS, digest="one")
    report(live, *URLS, digest="two", hours=1)
    for _ in range(8):
        deliver(live)
        live.clock.advance(seconds=6)
    others = [url for url in URLS if url != URLS[3]]
    assert pages(receiver.accepted) == others + others
    (parked,) = state(live, webhook_id)["parked"]
    assert parked["reason"] == "the address answered 422"
    receiver.answer = lambda _: 204
    cursor = live.get("/changes", limit=3).json()["next_cursor"]
    report(live, URLS[3], digest="three", hours=2)
    deliver(live)
    assert len(receiver.accepted) == 14
    response = live.client.post(f"/webhooks/{webhook_id}/redeliver", json={"cursor": cursor})
    assert (response.status_code, response.json()["parked"]) == (200, [])
    deliver(live, 2)
    again = receiver.accepted[14:]
    assert [e["data"]["id"] for e in again if e["subject"] == URLS[3]] == [
        item["id"] for item in live.get("/changes").json()["items"] if item["url"] == URLS[3]
    ]


def test_a_rotated_secret_and_the_old_one_sign_for_a_day(live, receiver):
    new = "whsec_" + base64.b64encode(b"a" * 32).decode()
    webhook_id = hook(live, receiver)
    live.client.patch(f"/webhooks/{webhook_id}", json={"secret": new})
    for secret, url in ((SECRET, URLS[0]), (new, URLS[1])):
        receiver.secret = secret
        report(live, url, digest="one")
        deliver(live)
    assert pages(receiver.accepted) == URLS[:2]
    assert receiver.faults == []


def secret_of(letter: bytes) -> str:
    return "whsec_" + base64.b64encode(letter * 32).decode()


def signing(live, receiver, webhook_id, *secrets) -> list[bool]:
    """Return which secrets sign a test."""
    signs = []
    for secret in secrets:
        receiver.secret = secret
        receiver.faults.clear()
        assert live.client.post(f"/webhooks/{webhook_id}/test").status_code == 200
        signs.append(receiver.faults == [])
    receiver.faults.clear()
    return signs


def test_each_secret_signs_for_a_day_after_its_own_rotation(live, receiver):
    webhook_id = hook(live, receiver)
    secrets = [SECRET, *map(secret_of, [b"a", b"b", b"c"])]
    start = live.clock.now
    for n, secret in enumerate(secrets[1:]):
        live.clock.now = start + timedelta(hours=8 * n)
        assert live.client.patch(f"/webhooks/{webhook_id}", json={"secret": secret}).is_success
    for hours, signs in ((16, 4), (23.9, 4), (24, 3), (32, 2), (40, 1)):
        with live.service.store.begin(write=False) as tx:
            webhook = tx.webhook(webhook_id)
        assert keys(webhook, start + timedelta(hours=hours)) == secrets[::-1][:signs]
    live.clock.now = start
    assert signing(live, receiver, webhook_id, *secrets, secret_of(b"x")) == [True] * 4 + [False]
    shown = live.get("/audit", object=webhook_id).text
    assert not any(secret[6:] in shown for secret in secrets)


def test_a_secret_that_returns_signs_once_and_the_one_between_keeps_its_day(live, receiver):
    webhook_id, other = hook(live, receiver), secret_of(b"a")
    for secret in (other, SECRET, SECRET):
        assert live.client.patch(f"/webhooks/{webhook_id}", json={"secret": secret}).is_success
    with live.service.store.begin(write=False) as tx:
        assert keys(tx.webhook(webhook_id), live.clock.now) == [SECRET, other]
    assert signing(live, receiver, webhook_id, SECRET, other) == [True, True]


def test_an_eleventh_rotation_of_a_day_is_refused_and_changes_nothing(live, receiver):
    webhook_id = hook(live, receiver)
    path = f"/webhooks/{webhook_id}"
    for n in range(10):
        assert live.client.patch(path, json={"secret": secret_of(bytes([n]))}).is_success
    refused = live.client.patch(path, json={"secret": secret_of(b"x"), "max_items": 7})
    assert (refused.status_code, refused.json()["field"]) == (422, "secret")
    assert "after 2" in refused.json()["detail"]
    assert state(live, webhook_id)["max_items"] == 1
    assert signing(live, receiver, webhook_id, SECRET, secret_of(b"x")) == [True, False]
    again = live.client.patch(path, json={"secret": secret_of(bytes([9])), "max_items": 7})
    assert (again.status_code, again.json()["max_items"]) == (200, 7)  # the present one
    live.clock.advance(hours=24)
    assert live.client.patch(path, json={"secret": secret_of(b"x")}).is_success


def test_each_test_event_has_an_id_of_its_own(live, receiver):
    webhook_id = hook(live, receiver)
    for _ in range(3):
        assert live.client.post(f"/webhooks/{webhook_id}/test").json()["first_id"] is None
    events = [event for request in receiver.requests for event in request.events]
    assert all(re.fullmatch("test-[0-9a-f]{24}", event["id"]) for event in events)
    assert [event["data"]["id"] for event in events] == [event["id"] for event in events]
    assert len({event["id"] for event in events}) == 3
    assert len({request.delivery for request in receiver.requests}) == 3


def test_a_test_shows_the_answer_and_moves_no_place(live, receiver):
    webhook_id = hook(live, receiver)
    before = state(live, webhook_id)["cursor"]
    tested = live.client.post(f"/webhooks/{webhook_id}/test").json()
    assert (tested["status"], tested["error"], tested["n_items"]) == (204, None, 0)
    assert tested["latency_s"] > 0
    assert receiver.requests[0].events[0]["type"] == "io.github.recrawl.test"
    assert state(live, webhook_id)["cursor"] == before
    deaf = live.client.patch(f"/webhooks/{webhook_id}", json={"url": "http://127.0.0.1:1/"})
    assert deaf.status_code == 200
    tested = live.client.post(f"/webhooks/{webhook_id}/test").json()
    assert (tested["status"], bool(tested["error"])) == (None, True)
    acts = [item["act"] for item in live.get("/audit", object=webhook_id).json()["items"]]
    assert acts == ["webhook.test", "webhook.change", "webhook.test", "webhook.create"]


def test_deliveries_are_listed_newest_first_with_status_and_latency(live, receiver):
    answers = iter([500] + [204] * 5)
    receiver.answer = lambda _: next(answers)
    webhook_id = hook(live, receiver)
    report(live, *URLS[:3], digest="one")
    deliver(live)
    live.clock.advance(seconds=7)
    deliver(live)
    path = f"/webhooks/{webhook_id}/deliveries"
    items = live.get(path).json()["items"]
    assert [item["status"] for item in items] == [204, 204, 204, 500]
    assert [item["error"] for item in items] == [None, None, None, "answered 500"]
    assert items[2]["delivery"] == items[3]["delivery"]
    first = live.get(path, limit=3).json()
    rest = live.get(path, limit=3, cursor=first["next_cursor"]).json()
    assert [*first["items"], *rest["items"]] == items


def test_a_paused_webhook_goes_on_where_it_stopped(live, receiver):
    webhook_id = hook(live, receiver)
    live.client.patch(f"/webhooks/{webhook_id}", json={"paused": True})
    report(live, *URLS[:2], digest="one")
    deliver(live)
    assert receiver.requests == []
    live.client.patch(f"/webhooks/{webhook_id}", json={"paused": False})
    deliver(live)
    assert pages(receiver.accepted) == URLS[:2]


def test_a_webhook_whose_changes_were_deleted_is_disabled_instead_of_leaving_them_out(
    live, receiver
):
    webhook_id = hook(live, receiver)
    live.client.patch(f"/webhooks/{webhook_id}", json={"paused": True})
    for n in range(3):
        report(live, URLS[n], digest="one", hours=n)
    with live.service.store.begin() as tx:
        assert tx.cut_feed(tx.newest_change(), 100)
    live.client.patch(f"/webhooks/{webhook_id}", json={"paused": False})
    deliver(live, 2)
    disabled = state(live, webhook_id)
    assert (receiver.requests, disabled["status"]) == ([], "disabled")
    assert "changes after its place were deleted" in disabled["reason"]
    assert acts(live, webhook_id)[-1]["key"] == "recrawl"
    assert live.get("/changes", cursor=disabled["cursor"]).status_code == 410
    left = live.get("/changes").json()
    cursor = live.get("/changes", limit=1).json()["next_cursor"]
    live.client.post(f"/webhooks/{webhook_id}/redeliver", json={"cursor": cursor})
    report(live, URLS[0], digest="two", hours=5)
    deliver(live)
    assert pages(receiver.accepted) == [*(item["url"] for item in left["items"][1:]), URLS[0]]


def test_a_filter_that_matches_little_reads_no_more_than_a_part_at_a_time(
    live, receiver, monkeypatch
):
    cursor = live.get("/changes", limit=1).json()["next_cursor"]
    report(live, *URLS, digest="one")
    webhook_id = hook(live, receiver, prefix=URLS[7], cursor=cursor)
    monkeypatch.setattr(reading, "MOST_SCANNED", 2)
    scanned = []
    choose = courier.choose

    def watched(tx, webhook):
        chosen = choose(tx, webhook)
        scanned.append(None if chosen[1] is None else len(chosen[1]))
        return chosen

    monkeypatch.setattr(courier, "choose", watched)
    deliver(live)
    assert pages(receiver.accepted) == [URLS[7]]
    assert scanned[:4] == [0, 0, 0, 1]
    assert state(live, webhook_id)["lag_s"] == 0


@pytest.mark.dear
@pytest.mark.parametrize(
    ("headers", "content"),
    [
        (
            {"Content-Encoding": "gzip, gzip"},
            lambda: gzip.compress(gzip.compress(bytes(200 << 20))),
        ),
        ({"Content-Encoding": "gzip"}, lambda: b"no gzip"),
    ],
)
def test_the_body_of_an_answer_is_not_decoded(live, receiver, headers, content):
    receiver.headers, receiver.content = headers, content()
    webhook_id = hook(live, receiver)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert live.client.post(f"/webhooks/{webhook_id}/test").json()["status"] == 204
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KiB


def test_an_address_that_cannot_be_sent_to_fails_like_one_without_an_answer(live, receiver):
    webhook_id = hook(live, receiver, url=" https://xn--i-7iq.ws/hook ")
    tested = live.client.post(f"/webhooks/{webhook_id}/test")
    assert (tested.status_code, tested.json()["status"]) == (200, None)
    report(live, URLS[0], digest="one")
    deliver(live)
    failing = state(live, webhook_id)
    assert (failing["url"], failing["n_attempts"]) == ("https://xn--i-7iq.ws/hook", 1)


@pytest.mark.dear
def test_one_slow_or_broken_address_does_not_delay_another(live, receiver):
    with receiving(lambda _: 503) as broken:
        hook(live, broken)
        hook(live, receiver)
        report(live, *URLS, digest="one")
        deliver(live)
    assert pages(receiver.accepted) == URLS
    assert len(broken.requests) == 1


def test_changes_of_pages_deleted_meanwhile_do_not_stop_a_webhook(live, receiver):
    receiver.answer = lambda _: 503
    hook(live, receiver, max_items=4)
    report(live, *URLS[:2], digest="one")
    deliver(live)
    for item in live.get("/changes").json()["items"]:
        assert live.client.delete(f"/pages/{item['page_id']}").status_code == 204
    receiver.answer = lambda _: 204
    report(live, URLS[4], digest="one")
    live.clock.advance(seconds=7)
    deliver(live)
    deletions = zip(["deleted", "deleted", "new"], [*URLS[:2], URLS[4]], strict=True)
    accepted = [event["data"] for event in receiver.accepted]
    assert [(change["kind"], change["url"]) for change in accepted] == [*deletions]


def test_a_deleted_webhook_is_sent_nothing_more(live, receiver):
    webhook_id = hook(live, receiver)
    report(live, URLS[0], digest="one")
    assert live.client.delete(f"/webhooks/{webhook_id}").status_code == 204
    deliver(live)
    assert receiver.requests == []
    for path in ("", "/deliveries"):
        assert live.get(f"/webhooks/{webhook_id}{path}").status_code == 404
    assert live.client.delete(f"/webhooks/{webhook_id}").status_code == 404


def test_secrets_are_drawn_shown_once_and_never_again(live, receiver):
    created = live.client.post("/webhooks", json={"url": receiver.url}).json()
    assert created["secret"].startswith("whsec_")
    assert len(base64.b64decode(created["secret"][6:])) == 32
    for path in ("/webhooks", f"/webhooks/{created['id']}"):
        assert created["secret"] not in live.get(path).text
    receiver.secret = created["secret"]
    report(live, URLS[0], digest="one")
    deliver(live)
    assert pages(receiver.accepted) == [URLS[0]]


def acts(live: Live, webhook_id: str) -> list[dict]:
    """Return the acts on a webhook, oldest first."""
    return live.get("/audit", object=webhook_id).json()["items"][::-1]


@pytest.mark.dear
def test_the_audit_names_every_act_and_its_author_and_no_secret(live, receiver):
    new = "whsec_" + base64.b64encode(b"a" * 32).decode()
    webhook_id = hook(live, receiver)
    path = f"/webhooks/{webhook_id}"
    assert live.client.patch(path, json={"secret": new, "max_items": 5}).status_code == 200
    assert live.client.post(f"{path}/redeliver", json={"release": True}).status_code == 200
    assert live.client.delete(path).status_code == 204
    created, changed, redelivered, deleted = acts(live, webhook_id)
    assert created["after"]["url"] == deleted["before"]["url"] == receiver.url
    assert changed["before"] == {"max_items": 1, "old_secret_until": None}
    assert changed["after"].keys() == changed["before"].keys()
    assert redelivered["after"]["release"] is True
    assert {act["key"] for act in acts(live, webhook_id)} == {"anyone"}
    assert [act["act"] for act in (created, changed, redelivered, deleted)] == [
        f"webhook.{verb}" for verb in ("create", "change", "redeliver", "delete")
    ]
    shown = live.get("/audit").text
    assert [secret for secret in (SECRET, new) if secret in shown or secret[6:] in shown] == []


def test_an_act_that_is_refused_leaves_no_entry(live, receiver):
    webhook_id = hook(live, receiver)
    ahead = encode_cursor(FeedCursor(live.service.feed.feed_id, 2**60, 0))
    response = live.client.post(f"/webhooks/{webhook_id}/redeliver", json={"cursor": ahead})
    assert response.status_code == 410
    assert len(acts(live, webhook_id)) == 1


def test_the_disabling_of_a_webhook_is_an_act_of_the_service(live, receiver):
    receiver.answer = lambda _: 410
    webhook_id = hook(live, receiver)
    report(live, URLS[0], digest="one")
    deliver(live)
    _, disabled = acts(live, webhook_id)
    assert (disabled["act"], disabled["key"]) == ("webhook.disable", "recrawl")
    assert disabled["before"] == {"status": "active", "reason": None}
    assert disabled["after"] == {
        "status": "disabled",
        "reason": "the address answered 410: it wants no more changes",
    }


def metric(live: Live, name: str, *labels: str) -> float:
    """Return the value of a time series."""
    lines = live.get("/metrics").text.splitlines()
    shown = [line for line in lines if line.startswith(name)]
    (line,) = [line for line in shown if all(label in line for label in labels)]
    return float(line.rpartition(" ")[2])


@pytest.mark.dear
def test_metrics_count_the_requests_of_a_webhook_by_outcome_and_show_its_lag(live, receiver):
    answers = iter([503, 422, 204, 204, 204])
    receiver.answer = lambda _: next(answers)
    webhook_id = hook(live, receiver, max_items=2)
    report(live, *URLS[:2], digest="one")
    deliver(live)
    live.clock.advance(seconds=100)
    assert 95 < metric(live, "recrawl_webhook_lag_seconds", webhook_id) < 200
    deliver(live, 2)
    for outcome, n in (("confirmed", 2), ("refused", 1), ("failed", 1)):
        assert metric(live, "recrawl_webhook_deliveries_total", webhook_id, outcome) == n
    assert metric(live, "recrawl_webhook_lag_seconds", webhook_id) == 0
    assert metric(live, "recrawl_webhooks_disabled") == 0
    receiver.answer = lambda _: 410
    report(live, URLS[2], digest="one")
    deliver(live)
    assert metric(live, "recrawl_webhooks_disabled") == 1
    assert "recrawl_webhook_lag_seconds{" not in live.get("/metrics").text


def test_webhooks_are_listed_in_parts(live, receiver):
    ids = sorted(hook(live, receiver) for _ in range(3))
    first = live.get("/webhooks", limit=2).json()
    rest = live.get("/webhooks", limit=2, cursor=first["next_cursor"]).json()
    assert [item["id"] for item in first["items"] + rest["items"]] == ids
    assert rest["next_cursor"] is None


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("body", "field", "word"),
    [
        ({"url": "ftp://a.example/"}, "url", "http"),
        ({"url": "nonsense"}, "url", "http"),
        ({}, "url", "url"),
        ({"secret": "short"}, "secret", "whsec_"),
        ({"secret": "whsec_" + "A" * 33}, "secret", "base64"),
        ({"secret": "whsec_" + "A" * 31 + "="}, "secret", "base64"),
        ({"secret": "whsec_" + "A" * 92}, "secret", "base64"),
        ({"kinds": ["lost"]}, "kinds", "new"),
        ({"kinds": []}, "kinds", "new"),
        ({"max_items": 0}, "max_items", "1"),
        ({"host": "not a host"}, "host", "host"),
        ({"prefix": "https://a.example/\x00"}, "prefix", "start of URLs"),
        ({"tag": "Docs"}, "tag", "lower-case"),
        ({"cursor": "nonsense"}, "cursor", "no cursor"),
        ({"unknown": 1}, "unknown", "unknown"),
    ],
)
def test_a_wrong_field_of_a_webhook_is_named(live, body, field, word):
    valid = {} if not body else {"url": "https://a.example/"}
    response = live.client.post("/webhooks", json={**valid, **body})
    assert response.status_code == 422, response.text
    assert response.json()["field"] == field
    assert word in response.json()["detail"]
    assert live.get("/webhooks").json()["items"] == []


@pytest.mark.parametrize("host", ["127.0.0.1", "10.1.2.3", "[::1]", "localhost", "2130706433"])
def test_an_address_that_is_not_public_is_refused_at_creation_and_at_a_change(sqlite_url, host):
    with running(sqlite_url) as live:
        made = live.client.post("/webhooks", json={"url": "https://93.184.216.34/hook"}).json()
        new = {"url": f"http://{host}:9000/hook"}
        for answer in (
            live.client.post("/webhooks", json=new),
            live.client.patch(f"/webhooks/{made['id']}", json=new),
        ):
            assert (answer.status_code, answer.json()["field"]) == (422, "url"), answer.text
            assert "RECRAWL_WEBHOOKS_PRIVATE=true" in answer.json()["detail"]
        (kept,) = live.get("/webhooks").json()["items"]
        assert kept["url"] == made["url"]
        unknown = {"url": "https://no-such-host.invalid/hook"}
        assert live.client.post("/webhooks", json=unknown).is_success


def test_an_address_that_is_not_public_any_more_gets_nothing(sqlite_url, receiver, monkeypatch):
    monkeypatch.setattr("service.api.routes.webhooks.look_up", lambda *_: ["93.184.216.34"])
    clock = Clock()
    clock.now = datetime.now(UTC)
    with running(sqlite_url, clock=clock) as live:
        webhook_id = hook(live, receiver)
        report(live, URLS[0], digest="one")
        deliver(live)
        assert receiver.requests == []
        (delivery,) = live.get(f"/webhooks/{webhook_id}/deliveries").json()["items"]
        assert "RECRAWL_WEBHOOKS_PRIVATE" in delivery["error"]
