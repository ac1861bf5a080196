"""`recrawl export --states` and `import` carry the settings of hosts, between both databases."""

import json
from datetime import timedelta

import pytest
from support.live_server import START, running

SETTINGS = ("group", "min_delay_s", "robots_delay_s", "max_concurrency", "max_crawl_rate")
TOMORROW, YESTERDAY = START + timedelta(days=1), START - timedelta(days=1)
HOSTS = {
    "slow.example": {"min_delay_s": 12.5, "max_concurrency": 3, "max_crawl_rate": 1.25},
    "robots.example": {"robots_delay_s": 30},
    "blocked.example": {"blocked_until": TOMORROW.isoformat()},
    "open.example": {"blocked_until": YESTERDAY.isoformat()},
    "one.example": {"group": "shared", "min_delay_s": 7, "robots_delay_s": 40},
    "two.example": {"group": "shared"},
    "plain.example": {},
}
GROUP = {"min_delay_s": 2.5, "max_concurrency": 4, "max_crawl_rate": 99}


@pytest.fixture
def urls(sqlite_url, postgres_url):
    return {"sqlite": sqlite_url, "postgres": postgres_url}


def configured(url):
    """Set hosts as an operator does, each with a page."""
    with running(url) as live:
        live.register(*(f"https://{host}/" for host in HOSTS))
        for host, settings in HOSTS.items():
            if settings:
                answer = live.client.patch(f"/hosts/{host}", json=settings)
                assert answer.status_code == 200, answer.text
        block = {"blocked_until": TOMORROW.isoformat()}
        assert live.client.put("/groups/shared", json=GROUP | block).status_code == 200
        return settings_of(live)


def settings_of(live):
    """Return what is set of all hosts and of the group, and what is in force."""
    hosts = {}
    for item in live.get("/hosts").json()["items"]:
        host_queue = item["host_queue"]
        in_force = host_queue["delay_s"], host_queue["concurrency"], running_block(host_queue)
        hosts[item["host"]] = ({name: item[name] for name in SETTINGS}, in_force)
    group = live.get("/groups/shared").json()
    own = {name: group[name] for name in (*GROUP, "robots_delay_s", "members")}
    return hosts, own, running_block(group["host_queue"])


def running_block(host_queue):
    until = host_queue["blocked_until"]
    return until if until and until > START.isoformat() else None


@pytest.fixture(autouse=True)
def in_may(monkeypatch):
    """Commands go by the clock of the live service, not by the machine's."""
    from service.runtime import bootstrap

    opened = bootstrap.opened
    monkeypatch.setattr(bootstrap, "opened", lambda *a, **k: opened(*a, **k, now=lambda: START))


@pytest.mark.dear
@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("source", "target"), [("sqlite", "postgres"), ("postgres", "sqlite")], ids=lambda name: name
)
@pytest.mark.parametrize("name", ["all.csv", "all.ndjson.gz", "all.parquet"])
def test_settings_of_hosts_move_to_the_other_database(urls, recrawl, name, source, target):
    before = configured(urls[source])
    out = recrawl("export", name, "--states", database_url=urls[source])
    assert "7 pages exported, and the settings of 5 hosts and 1 group to" in out.err
    ended = recrawl("import", name, database_url=urls[target])
    assert ended.status == 0, ended.err
    assert f"settings of 5 hosts and 1 group imported from {name}.hosts.ndjson" in ended.out
    with running(urls[target]) as live:
        assert settings_of(live) == before
    again = recrawl("import", name, database_url=urls[target])
    assert again.status == 0
    with running(urls[target]) as live:
        assert settings_of(live) == before


def test_an_export_without_the_file_of_hosts_is_imported_as_before(urls, recrawl, tmp_path):
    """As those of older versions are."""
    configured(urls["sqlite"])
    recrawl("export", "all.csv", "--states", database_url=urls["sqlite"])
    (tmp_path / "all.csv.hosts.ndjson").unlink()
    ended = recrawl("import", "all.csv", database_url=urls["postgres"])
    assert ended.status == 0
    assert "7 new pages registered, 7 states restored" in ended.out
    assert "no settings of hosts imported: no file all.csv.hosts.ndjson" in ended.out


def test_the_settings_alone_can_be_imported(urls, recrawl):
    before = configured(urls["sqlite"])
    recrawl("export", "all.csv", "--states", database_url=urls["sqlite"])
    ended = recrawl("import", "all.csv.hosts.ndjson", database_url=urls["postgres"])
    assert ended.out.splitlines()[1].startswith("settings of 5 hosts and 1 group imported from")
    with running(urls["postgres"]) as live:
        hosts, *group = settings_of(live)
        assert hosts == {host: before[0][host] for host in hosts}
        assert group == list(before[1:])
        assert set(hosts) == {host for host, settings in HOSTS.items() if settings} - {
            "open.example"
        }


def test_settings_that_the_file_lacks_stay(sqlite_url, recrawl, tmp_path):
    with running(sqlite_url) as live:
        live.client.patch("/hosts/a.example", json={"min_delay_s": 9, "max_concurrency": 2})
    (tmp_path / "x.hosts.ndjson").write_text('{"host": "a.example", "max_concurrency": 5}\n')
    assert recrawl("import", "x.hosts.ndjson", database_url=sqlite_url).status == 0
    with running(sqlite_url) as live:
        host = live.get("/hosts/a.example").json()
    assert (host["min_delay_s"], host["max_concurrency"]) == (9, 5)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ({"host": "a.example/x", "min_delay_s": 1}, "is not a host name"),
        ({"host": "a.example", "min_delay_s": -1}, "$.min_delay_s"),
        ({"host": "a.example", "weight": 1}, "unknown field `weight`"),
        ({"group": "not a name"}, "$.group"),
        ({"min_delay_s": 1}, "missing required field `group`"),
        ({"group": "shared", "max_concurrency": 0}, "$.max_concurrency"),
    ],
)
def test_a_bad_line_is_reported_and_skipped(sqlite_url, recrawl, tmp_path, line, says):
    good = {"host": "good.example", "min_delay_s": 4}
    text = "".join(json.dumps(item) + "\n" for item in (line, good))
    (tmp_path / "x.hosts.ndjson").write_text(text)
    ended = recrawl("import", "x.hosts.ndjson", database_url=sqlite_url)
    assert ended.status == 1
    assert "settings of 1 host and 0 groups imported from" in ended.out
    (reason,) = [text for text in ended.err.splitlines() if "x.hosts.ndjson:1:" in text]
    assert says in reason


def test_an_export_to_standard_output_reports_what_it_lacks(sqlite_url, recrawl):
    configured(sqlite_url)
    ended = recrawl("export", "-", "--states", database_url=sqlite_url)
    assert len(ended.out.splitlines()) == 7
    assert "settings of hosts are not exported to stdout: name a file" in ended.err
