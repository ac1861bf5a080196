"""Words of the console: what may be leased now, and pings of a host."""

import re

from support.live_server import running


def text_of(live, path):
    return re.sub("<[^>]+>", "", live.client.get(path).text)


def test_a_lease_that_may_be_given_now_is_not_an_hour_ago(sqlite_url):
    with running(sqlite_url) as live:
        live.register("https://a.example/1")
        live.clock.advance(hours=1)
        host = text_of(live, "/console/hosts/a.example")
        assert "The next page can be leased now." in host
        assert "1 h ago" not in text_of(live, "/console/hosts")


def test_a_host_without_pings_of_its_own_names_the_pages_that_it_means(sqlite_url):
    with running(sqlite_url) as live:
        live.register("https://a.example/1", observability="incomplete")
        live.post("/pings", [{"page_id": 1, "changed_at": live.clock().isoformat()}])
        assert "none of its pages with the source “auto”" in text_of(
            live, "/console/hosts/a.example"
        )
