"""Ids of webhooks and subscriptions, as commands take them."""

from support.live_server import Live


def test_no_id_begins_like_an_option(sqlite_api: Live):
    for n in range(40):
        made = sqlite_api.client.post(
            "/webhooks", json={"url": f"https://hooks.example/{n}"}
        ).json()
        assert int(made["id"], 16) >= 0
