"""Walls redirect 5,000 URLs, each to an address of its own: few first crawls, then a sample."""

from urllib.parse import quote

import pytest
from support.budget_cases import JunkFleet, filter_url, service

N, A_DAY = 5_000, 200
MOST = 40
"""Maximum first crawls on the first day, with those of the wall's addresses."""


URLS = {
    "a directory": lambda i: f"https://h0.example/x/{i}",
    "parameters": filter_url,
    "a host with one good page": lambda i: f"https://lonely.example/p{i}",
    "a new host": lambda i: f"https://new.example/x/{i}",
}


def to(target, status=302):
    return {"status": status, "redirect_url": target}


def path(url):
    return url.split("/", 3)[3]


PAGE = {"digest": "wall"}
WALLS = {
    "login with the address": lambda url: (
        PAGE if "/login" in url else to(f"https://h0.example/login?next=/{quote(path(url))}")
    ),
    "login with a session": lambda url: (
        PAGE if "/login" in url else to(f"https://h0.example/login/abc{hash(url) % 10**9}")
    ),
    "a relative target": lambda url: PAGE if "/login" in url else to(f"/login?next=/{path(url)}"),
    "login of another host": lambda url: (
        PAGE if "sso" in url else to(f"https://sso.example/?continue={quote(url)}")
    ),
    "consent": lambda url: (
        PAGE if "consent" in url else to(f"https://h0.example/consent/?return={quote(url)}")
    ),
    "two redirects": lambda url: (
        PAGE
        if "/login" in url
        else to(url.replace("/go", "/login"))
        if "/go" in url
        else to(f"https://h0.example/go?to=/{quote(path(url))}")
    ),
    "a refusal": lambda url: (
        {"status": 401} if "/login" in url else to(f"https://h0.example/login?next=/{path(url)}")
    ),
    "an absence": lambda url: (
        {"status": 404} if "/404" in url else to(f"https://h0.example/404/{path(url)}")
    ),
    "redirects without end": lambda url: to(f"{url}x"),
    "the front page": lambda url: (
        PAGE if url == "https://h0.example/" else to("https://h0.example/")
    ),
}
CASES = [(wall, "a directory") for wall in WALLS] + [
    ("login with the address", kind) for kind in URLS if kind != "a directory"
]


@pytest.mark.slow
@pytest.mark.parametrize(("wall", "kind"), CASES)
def test_a_wall_costs_few_first_crawls(database_url, wall, kind):
    with service(database_url, bandwidth=A_DAY, admission="learned") as live:
        fleet = JunkFleet(live, lambda crawl: WALLS[wall](crawl["url"]))
        fleet.register([URLS[kind](i) for i in range(N)])
        for day in range(3):
            fleet.play(days=1, every_h=1.0 if not day else 6.0)
        days = fleet.first_by_day()
    assert 1 <= days[1] <= MOST
    assert max(days[2], days[3]) <= 0.01 * A_DAY
