"""Walls redirect 5,000 URLs, each to an address of its own: few first crawls, then a sample."""

from collections import Counter
from urllib.parse import quote

import pytest
from support.budget_cases import Fleet, service

from benchmarks.budget.trials import sites

N, A_DAY, REAL = 5_000, 200, 100
MOST = 40
"""Maximum first crawls on the first day, with those of the wall's addresses."""
MOST_ENDLESS = 60
"""The same where each redirect leads to another one: ten chains of six pages."""


def parameters(i):
    """Return a URL whose parameters have names of its own: a filter for each property."""
    chosen = [name for bit, name in enumerate("abcdefghijklm") if i >> bit & 1]
    return f"https://h0.example/d0/list?{'&'.join(f'{name}=1' for name in chosen) or 'z=1'}"


URLS = {
    "a directory": lambda i: f"https://h0.example/x/{i}",
    "parameters": parameters,
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


class Walled(Fleet):
    """A fleet on real pages that change each day, beside URLs behind a wall."""

    def __init__(self, live, answer):
        super().__init__(live)
        self.start, self.first_of, self.answer_of = live.clock(), {}, answer
        """Day of the first crawl of each URL."""
        self.real = {*sites(REAL), "https://lonely.example/p-good"}
        live.register(*sorted(self.real))
        self.play(days=1)

    def crawl(self, items):
        day = (self.live.clock() - self.start).days
        for each in items:
            self.first_of.setdefault(each["url"], day)
        reports = super().crawl(items)
        at = self.live.clock()
        return [
            one | {"digest": f"{each['url']} {at.date()}"}
            if each["url"] in self.real
            else {
                "lease": each["lease"],
                "observed_at": at.isoformat(),
                **self.answer_of(each["url"]),
            }
            for each, one in zip(items, reports, strict=True)
        ]


@pytest.mark.slow
@pytest.mark.parametrize(("wall", "kind"), CASES)
def test_a_wall_costs_few_first_crawls(database_url, wall, kind):
    with service(database_url, bandwidth=A_DAY, admission="learned") as live:
        fleet = Walled(live, WALLS[wall])
        for begin in range(0, N, 1_000):
            live.register(*map(URLS[kind], range(begin, begin + 1_000)))
        for day in range(3):
            fleet.play(days=1, every_h=1.0 if not day else 6.0)
        days = Counter(day for url, day in fleet.first_of.items() if url not in fleet.real)
    assert 1 <= days[1] <= (MOST_ENDLESS if "end" in wall else MOST)
    assert max(days[2], days[3]) <= 0.01 * A_DAY
