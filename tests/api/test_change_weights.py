"""Weights of changes through the running service, on each database."""

import json
import math
from datetime import timedelta

import numpy as np
import pytest
from support.live_server import lease_freely

pytestmark = pytest.mark.dear

PAGE = "https://shop.example/item"


def report(live, url=PAGE, days=1.0, **found):
    live.clock.advance(days=days)
    item = {"url": url, "observed_at": live.clock().isoformat(), **found}
    answer = live.post("/observations", [item]).json()
    assert (answer["accepted"], answer["rejected"]) == (1, []), answer


def weights(live, **filters):
    items = live.get("/changes", **filters).json()["items"]
    return [(item["kind"], item.get("weight", 1.0)) for item in items]


def test_events_carry_the_weight_and_readers_choose_the_least(api):
    report(api, digest="a", change_weight=0.5)
    report(api, digest="b", change_weight=0.01)
    report(api, digest="c")
    report(api, changed=True, change_weight=1 / 3)
    report(api, changed=True, change_weight=0)
    every = [("new", 1.0), ("changed", 0.01), ("changed", 1.0), ("changed", 0.333333)]
    assert weights(api) == [*every, ("changed", 0.0)]
    assert weights(api, min_weight=0) == [*every, ("changed", 0.0)]
    assert weights(api, min_weight=0.3) == [every[0], every[2], every[3]]
    assert weights(api, min_weight=1) == [every[0], every[2]]
    log = api.get("/pages/1").json()["last_crawls"]
    assert [entry["weight"] for entry in log] == [0.0, 0.333333, None, 0.01, None]


def test_a_weight_counts_only_with_a_change_of_content(api):
    report(api, digest="a")
    report(api, changed=False, change_weight=0.2)
    report(api, digest="a", change_weight=0.2)
    report(api, status=304, change_weight=0.2)
    assert [entry["weight"] for entry in api.get("/pages/1").json()["last_crawls"]] == [None] * 4
    report(api, status=404)
    report(api, status=404, change_weight=0.2, days=2)
    report(api, digest="b", change_weight=0.2)
    assert weights(api) == [("new", 1.0), ("gone", 1.0), ("back", 1.0)]


@pytest.mark.parametrize("weight", [-0.01, 1.01, 1e9, math.nan, math.inf, "much", True, [], {}])
def test_a_wrong_weight_is_refused_by_its_field_with_a_right_one(shared, weight):
    item = {"url": PAGE, "observed_at": shared.clock().isoformat(), "digest": "x"}
    body = json.dumps([{**item, "change_weight": weight}, {**item, "url": f"{PAGE}/2"}])
    headers = {"Content-Type": "application/json"}
    answer = shared.client.post("/observations", content=body, headers=headers).json()
    (refused,) = answer["rejected"]
    assert (refused["index"], refused["field"]) == (0, "change_weight")
    assert "such as 0.25" in refused["detail"]


def test_a_refused_weight_ends_the_lease_of_its_report(api):
    lease_freely(api)
    api.register(PAGE)
    (leased,) = api.post("/leases", {"count": 1}).json()["items"]
    item = {"lease": leased["lease"], "digest": "a", "change_weight": 7}
    answer = api.post("/observations", [item]).json()
    assert answer["rejected"][0]["field"] == "change_weight"
    assert answer["leases_ended"] == 1
    assert api.get("/pages/1").json()["unfinished"]["ending"] == "refused"


@pytest.mark.parametrize("value", ["-1", "1.5", "nan", "much"])
def test_a_wrong_least_weight_is_refused(shared, value):
    answer = shared.get("/changes", min_weight=value)
    assert answer.status_code == 422
    assert "min_weight" in answer.text


def test_a_webhook_keeps_and_changes_its_least_weight(api):
    url = "https://hooks.example.net/recrawl"
    made = api.client.post("/webhooks", json={"url": url, "min_weight": 0.5}).json()
    assert made["min_weight"] == 0.5
    path = f"/webhooks/{made['id']}"
    assert api.client.patch(path, json={"min_weight": None}).json()["min_weight"] is None
    wrong = api.client.patch(path, json={"min_weight": 2})
    assert wrong.status_code == 422
    assert "such as 0.5" in wrong.json()["detail"]


class Shop:
    """Pages that change for real now and then; half of them flicker by a thousandth, too."""

    def __init__(self, n=120, days=60, seed=3):
        rng = np.random.default_rng(seed)
        rate = rng.choice([0.05, 0.1, 0.2], n)
        self.n, self.days = n, days
        self.real = rng.random((days, n)) < -np.expm1(-rate)
        self.flickers = np.arange(2 * n) >= n

    def urls(self):
        return [f"https://shop.example/{k}" for k in range(2 * self.n)]

    def reports(self, day, at):
        """The items of a day: each page without flicker has a twin that flickers."""
        version = self.real[: day + 1].sum(axis=0)
        for k, url in enumerate(self.urls()):
            item = {"url": url, "observed_at": at.isoformat()}
            if not self.flickers[k]:
                yield {**item, "digest": f"{k} v{version[k]}"}
                continue
            page = k - self.n
            weight = 1.0 if self.real[day, page] else 0.01
            yield {**item, "digest": f"{k} v{version[page]}-{day}", "change_weight": weight}


def test_a_price_that_flickers_makes_few_events_and_is_crawled_by_its_real_changes(api):
    shop = Shop()
    for day in range(shop.days):
        at = api.clock.advance(days=1)
        answer = api.post("/observations", list(shop.reports(day, at))).json()
        assert answer["rejected"] == []
    every, wanted = (feed(api, **only) for only in ({}, {"min_weight": 0.5}))
    flickering = set(shop.urls()[shop.n :])
    n_every, n_wanted = (
        sum(url in flickering and kind == "changed" for url, kind, _ in changes)
        for changes in (every, wanted)
    )
    n_real = int(shop.real[1:].sum())
    assert n_wanted == n_real, "no change of weight 1 is missed, and none other comes"
    assert n_wanted <= 0.2 * n_every
    api.epoch()
    rate = {item["url"]: item["change_rate"] for item in api.schedule()}
    steady, twins = (
        np.array([rate[url] for url in shop.urls()[part]])
        for part in (slice(None, shop.n), slice(shop.n, None))
    )
    assert twins.mean() == pytest.approx(steady.mean(), rel=0.2)
    assert np.median(twins / steady) == pytest.approx(1.0, abs=0.2)


def feed(live, **only):
    changes, cursor, more = [], None, True
    while more:
        named = {"cursor": cursor} if cursor else {}
        part = live.get("/changes", limit=10_000, **named, **only).json()
        changes += [(c["url"], c["kind"], c.get("weight", 1.0)) for c in part["items"]]
        cursor, more = part["next_cursor"], part["more"]
    return changes


def test_a_small_change_is_no_change_to_last_intervals(api):
    n, day = 400, timedelta(days=1)
    urls = [f"https://many.example/{k}" for k in range(n)]
    for digest, weight in (("a", None), ("b", 0.01)):
        at = api.clock.advance(days=1)
        item = {"observed_at": at.isoformat()}
        item |= {} if weight is None else {"change_weight": weight}
        items = [{"url": url, "digest": f"{url} {digest}", **item} for url in urls]
        assert api.post("/observations", items).json()["accepted"] == n
    with api.service.store.begin() as tx:
        states = tx.lock_states(np.arange(1, n + 1))
    assert np.abs(states.last_interval) == pytest.approx(day.days)
    assert np.count_nonzero(states.last_interval > 0) < 0.03 * n
    assert (states.n_changes == 1).all()
