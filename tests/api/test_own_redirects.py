"""A page that redirects to itself: it is seen as what it is, and links no page."""

import numpy as np
import pytest
from support.live_server import Live

from service.model.outcomes import is_redirect

URL, TARGET = "https://a.example/loop", "https://a.example/target"


def report(api: Live, url, n=1, **fields):
    for _ in range(n):
        at = api.clock.advance(hours=2).isoformat()
        item = {"url": url, "observed_at": at, **fields}
        assert api.post("/observations", [item]).json()["accepted"] == 1
    return api.get("/pages", url=url).json()


@pytest.mark.parametrize("status", [301, 302])
def test_a_page_that_redirects_to_itself_is_named_as_its_own_target(api: Live, status):
    page = report(api, URL, 3, status=status, redirect_url=URL)
    assert page["redirects_to"] == {"page_id": page["page_id"], "url": URL}
    sentence = page["why"]["sentence"]
    assert "its last 3 crawls got no content, because it redirects to itself" in sentence
    assert sentence.startswith("Have your crawler keep the cookies of the site")
    assert "register the page behind" not in sentence
    assert (page["gone"], page["retired"]) == (False, False)
    later = report(api, URL, status=200, digest="a")
    assert (later["redirects_to"], later["gone"]) == (None, False)


@pytest.mark.parametrize("status", [200, None])
def test_content_at_the_own_address_is_no_redirect(sqlite_api: Live, status):
    page = report(sqlite_api, URL, status=status, redirect_url=URL, digest="a")
    assert (page["redirects_to"], page["why"]["hold"]) == (None, "unscheduled")
    assert "redirects" not in page["why"]["sentence"]


def test_a_target_that_redirects_to_itself_stays_linked(sqlite_api: Live):
    report(sqlite_api, URL, status=302, redirect_url=TARGET)
    target = report(sqlite_api, TARGET, status=302, redirect_url=TARGET)
    assert target["redirects_to"]["url"] == TARGET
    again = report(sqlite_api, URL, status=302, redirect_url=TARGET)
    assert again["redirects_to"]["url"] == TARGET


def test_statuses_without_an_own_meaning_are_no_redirects():
    assert not is_redirect(np.array([0, 999, -1], np.int16)).any()
