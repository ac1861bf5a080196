"""A site that answers 304 although its pages change: found out, and no longer believed."""

from datetime import timedelta

import pytest
from support.live_server import START, running

URL = "https://a.example/1"
ETAG, DATE = '"v1"', "2026-04-01T08:00:00Z"


@pytest.fixture
def live(database_url, monkeypatch):
    monkeypatch.setenv("RECRAWL_HOST_DELAY_S", "0")
    monkeypatch.setenv("RECRAWL_HOST_CONCURRENCY", "0")
    monkeypatch.setenv("RECRAWL_BANDWIDTH", "48")
    with running(database_url) as live:
        yield live


def report(live, status=200, digest=None, url=URL, hours=1.0, **fields):
    live.clock.advance(hours=hours)
    item = {"url": url, "observed_at": live.clock().isoformat(), "status": status, **fields}
    item |= {} if digest is None else {"digest": digest}
    response = live.post("/observations", [item])
    assert response.json()["accepted"] == 1, response.text


def page(live, url=URL):
    return live.get("/pages", url=url).json()


def host(live):
    return live.get("/hosts/a.example").json()


def leased(live, url=URL):
    """Request a crawl of a page, and return its lease's validators."""
    live.clock.advance(hours=1)
    live.client.post("/pages/recrawl", json={"page_ids": [page(live, url)["page_id"]]})
    crawls = live.client.post("/leases", json={"count": 100}).json()["items"]
    (crawl,) = (crawl for crawl in crawls if crawl["url"] == url)
    return crawl.get("etag"), crawl.get("last_modified"), crawl["lease"]


@pytest.mark.dear
def test_a_constant_etag_is_found_out_and_its_304s_are_unlearnt(live):
    (page_id,) = live.register(URL)
    report(live, digest="1", etag=ETAG)
    first = live.clock()
    for _ in range(38):
        report(live, 304)
    assert page(live)["estimate"]["n_observations"] == 38
    believed = page(live)["estimate"]["change_rate"]
    report(live, digest="2", etag=ETAG)
    shown = page(live)
    assert host(live)["false_304_at"] == live.clock().isoformat().replace("+00:00", "Z")
    assert (shown["estimate"]["n_observations"], shown["estimate"]["n_changes"]) == (1, 1)
    assert shown["estimate"]["change_rate"] > 3 * believed
    assert shown["last_crawls"][0]["interval"] == pytest.approx(
        (live.clock() - first).days + 15 / 24
    )
    (change,) = live.get("/changes", kind="changed").json()["items"]
    assert change["changed_after"] == first.isoformat().replace("+00:00", "Z")
    assert (shown["etag"], leased(live)[:2]) == (None, (None, None))
    live.epoch()
    (row,) = live.schedule(validators=True)
    assert "etag" not in row
    sentence = live.get(f"/pages/{page_id}").json()["why"]["sentence"]
    until = (first + timedelta(hours=39, days=30)).date()
    assert f"it is requested without ETag and date until {until}" in sentence


@pytest.mark.dear
def test_what_a_page_learns_after_the_proof_stays(live):
    live.register(URL)
    report(live, digest="0", etag=ETAG)
    for digest in "123456":
        report(live, digest=digest, etag=ETAG)
    estimate = page(live)["estimate"]
    assert (estimate["n_observations"], estimate["n_changes"]) == (6, 6)


@pytest.mark.parametrize(
    ("before", "after", "proves"),
    [
        ({"etag": '"a"'}, {"etag": '"a"'}, True),
        ({"etag": 'W/"a"'}, {"etag": 'W/"a"'}, True),
        ({"etag": '"a"'}, {"etag": 'W/"a"'}, True),
        ({"etag": '"a"'}, {"etag": '"b"'}, False),
        ({"last_modified": DATE}, {"last_modified": DATE}, True),
        ({"last_modified": DATE}, {"last_modified": "2026-04-02T08:00:00Z"}, False),
        ({"etag": '"a"', "last_modified": DATE}, {"etag": '"b"', "last_modified": DATE}, False),
        ({"etag": '"a"', "last_modified": DATE}, {"last_modified": DATE}, True),
        ({"last_modified": DATE}, {"etag": '"a"', "last_modified": DATE}, True),
        ({"etag": '"a"'}, {"last_modified": DATE}, False),
        ({"etag": '"a"'}, {}, False),
        ({}, {"etag": '"a"'}, False),
    ],
)
def test_only_the_same_validator_with_other_content_is_a_proof(live, before, after, proves):
    live.register(URL)
    report(live, digest="1", **before)
    report(live, 304)
    report(live, digest="2", **after)
    assert (host(live)["false_304_at"] is not None) is proves


@pytest.mark.dear
@pytest.mark.parametrize(
    "answers",
    [
        [("1", '"a1"'), ("1", '"b1"'), ("1", '"a1"'), ("2", '"b2"'), ("2", '"a2"')],
        [(str(n // 3), f'"{n}"') for n in range(9)],
        [("1", '"a"'), ("1", '"a"'), ("2", '"b"'), ("1", '"a"')],
    ],
    ids=["two machines", "an ETag for each answer", "content that comes back"],
)
def test_sites_with_many_etags_stay_trusted(live, answers):
    live.register(URL)
    for digest, etag in answers:
        report(live, digest=digest, etag=etag)
    assert host(live)["false_304_at"] is None
    assert leased(live)[0] == answers[-1][1]


def test_a_page_that_is_gone_and_back_is_no_proof(live):
    live.register(URL)
    report(live, digest="1", etag=ETAG)
    for _ in range(2):
        report(live, 404, hours=2)
    report(live, digest="2", etag=ETAG)
    assert page(live)["estimate"]["n_changes"] == 2
    assert host(live)["false_304_at"] is None


@pytest.mark.parametrize(("age_s", "kept"), [(-30, False), (0, False), (59, False), (60, True)])
def test_a_date_within_a_minute_of_its_crawl_is_no_validator(live, age_s, kept):
    live.register(URL)
    date = (START + timedelta(hours=1) - timedelta(seconds=age_s)).isoformat()
    report(live, digest="1", etag=ETAG, last_modified=date)
    shown = page(live)
    assert (shown["etag"], shown["last_modified"] is not None) == (ETAG, kept)


@pytest.mark.dear
def test_a_host_is_trusted_again_after_30_days_or_by_an_operator(live):
    other = "https://a.example/2"
    live.register(URL, other, "https://b.example/")
    for url in (URL, other, "https://b.example/"):
        report(live, digest="1", url=url, etag=ETAG)
    report(live, digest="2", etag=ETAG)
    assert [leased(live, url)[0] for url in (URL, other)] == [None, None], "the host's pages alike"
    assert leased(live, "https://b.example/")[0] == ETAG
    live.clock.advance(days=30)
    assert leased(live, other)[0] == ETAG
    report(live, digest="3", etag=ETAG)
    assert leased(live, other)[0] is None
    kept = live.client.put("/hosts/a.example", json={"min_delay_s": 0}).json()
    assert kept["false_304_at"] is not None
    reset = live.client.patch("/hosts/a.example", json={"false_304_at": None}).json()
    assert reset["false_304_at"] is None
    assert leased(live, other)[0] == ETAG
    refused = live.client.patch("/hosts/a.example", json={"false_304_at": "1980-01-01T00:00:00Z"})
    assert (refused.status_code, refused.json()["field"]) == (422, "false_304_at")


def test_a_304_that_contradicts_a_request_makes_the_next_request_plain(live):
    live.register(URL)
    report(live, digest="1", etag=ETAG)
    etag, _, lease = leased(live)
    assert etag == ETAG
    report(live, 304, lease=lease, etag=ETAG, hours=0)
    assert page(live)["etag"] is None
    etag, _, lease = leased(live)
    assert etag is None
    report(live, digest="1", lease=lease, etag=ETAG, hours=0)
    assert (page(live)["etag"], leased(live)[0]) == (ETAG, ETAG), "the site was right"
    assert host(live)["false_304_at"] is None


@pytest.mark.dear
def test_a_304_without_a_request_is_believed(live):
    live.register(URL)
    report(live, digest="1", etag=ETAG)
    report(live, 304)
    assert page(live)["etag"] == ETAG


@pytest.mark.dear
def test_every_proof_of_a_batch_counts(live):
    urls = [f"https://{name}.example/{n}" for name in "abc" for n in range(20)]
    live.register(*urls)

    def batch(version=None, **fields):
        live.clock.advance(hours=1)
        at = live.clock().isoformat()
        # one digest on many pages would be an incident
        digests = [{"digest": f"{version}{n:02}"} if version else {} for n in range(len(urls))]
        items = [
            {"url": url, "observed_at": at, "etag": ETAG, **fields, **digest}
            for url, digest in zip(urls, digests, strict=True)
        ]
        assert live.post("/observations", items).json()["accepted"] == len(urls)

    batch("1", status=200)
    for _ in range(3):
        batch(status=304)
    batch("2", status=200)
    for name in "abc":
        assert live.get(f"/hosts/{name}.example").json()["false_304_at"] is not None
    for url in urls:
        estimate = page(live, url)["estimate"]
        assert (estimate["n_observations"], estimate["n_changes"]) == (1, 1)


def test_draws_at_the_lease_and_in_the_schedule_leave_validators_out(live, monkeypatch):
    live.register(URL)
    report(live, digest="1", etag=ETAG)
    live.epoch()
    monkeypatch.setattr("service.leases.conditional.PLAIN_SHARE", 1.1)
    assert leased(live)[0] is None
    (row,) = live.schedule(validators=True)
    assert "etag" not in row
    assert page(live)["etag"] == ETAG, "the page shows what the store has"
