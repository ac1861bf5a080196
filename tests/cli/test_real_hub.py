"""Subscriptions at a hub that others wrote."""

import json

import pytest
from support.live_server import running
from support.real_hub import real_hub

from service.connectors.guarded import Outgoing
from service.connectors.renewals import Renewer
from service.connectors.websub import hub_client

NEWS = (
    b"<feed><entry><link href='/%s'/></entry>"
    b"<entry><link href='https://b.example/'/></entry></feed>"
)


@pytest.mark.dear
def test_the_hub_of_flask_websub_subscribes_sends_renews_denies_and_ends(
    sqlite_url, recrawl, tmp_path
):
    with running(sqlite_url, websub_private=True) as api, real_hub(str(tmp_path / "hub")) as hub:
        api.service.renewer.stop()  # the test renews
        store, rng = api.service.store, api.service.rng
        renewer = Renewer(store, lambda: hub_client(private=True, outgoing=Outgoing()), rng)

        def shown() -> dict:
            hub.tasks.finish()
            ended = recrawl("websub", "list", url=api.url)
            (one,) = [json.loads(line) for line in ended.out.splitlines()]
            return one

        options = ("--callback", api.url, "--private")
        ended = recrawl("websub", "subscribe", f"{hub.url}/feed", *options, url=api.url)
        assert (ended.status, ended.err) == (0, "")
        one = shown()
        assert (one["state"], one["expires_at"]) == ("active", "2026-05-11T12:00:00Z")
        hub.publish(NEWS % b"a")
        one = shown()
        assert (one["n_taken"], one["n_rejected"], one["n_unsigned"]) == (1, 1, 0)
        assert one["last_rejected"][0]["url"] == "https://b.example/"

        api.clock.advance(days=7)
        assert renewer.run_once() == 1
        assert shown()["expires_at"] == "2026-05-18T12:00:00Z"
        assert hub.callbacks() == [f"{api.url}/websub/{one['id']}"]

        api.clock.advance(days=7)
        hub.refusal = "the feed is closed"
        assert renewer.run_once() == 1
        assert (shown()["state"], shown()["reason"]) == ("denied", "the feed is closed")

        hub.refusal = None
        assert recrawl("websub", "unsubscribe", one["id"], url=api.url).status == 0
        again = recrawl("websub", "subscribe", f"{hub.url}/feed", *options, url=api.url)
        assert again.status == 0
        new = shown()
        assert recrawl("websub", "unsubscribe", new["id"], url=api.url).status == 0
        assert renewer.run_once() == 1
        hub.tasks.finish()
        assert f"{api.url}/websub/{new['id']}" not in hub.callbacks()
        assert api.get("/websub").json()["items"] == []
