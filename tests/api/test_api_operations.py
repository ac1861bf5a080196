"""What operators rely on: keys, metrics, liveness, readiness, documentation without a network."""

import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import pytest
import sqlalchemy as sa
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as read_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as read_plain
from support.document import DOCUMENT
from support.live_server import Live, cloned, command, running

from service.api.responses.problems import TYPES
from service.storage import migrations

OPEN = ("/healthz", "/readyz", "/metrics")
OF_HUBS = [(method, "/websub/{subscription_id}") for method in ("get", "post")]
"""WebSub's hubs have no key; what they send is signed."""
OPERATIONS = [
    (
        method.upper(),
        path.format(
            subscription_id="s",
            page_id=1,
            epoch=1,
            lease="1-a",
            host="h",
            group="g",
            key_id="0" * 10,
            webhook_id="x" * 22,
        ),
    )
    for path, methods in DOCUMENT["paths"].items()
    for method in methods
    if (method, path) not in OF_HUBS
]


@pytest.fixture(scope="module")
def guarded(sqlite_template, tmp_path_factory):
    """A service that asks for one of two keys."""
    path = shutil.copy(sqlite_template, tmp_path_factory.mktemp("guarded") / "recrawl.db")
    with running(f"sqlite:///{path}", api_keys=("right", "also right")) as live:
        yield live


def samples(api: Live) -> dict[str, float]:
    """Read the metrics."""
    text = api.get("/metrics").text
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in lines}


@pytest.mark.sampled(40)
@pytest.mark.parametrize(("method", "path"), OPERATIONS)
@pytest.mark.parametrize("given", [None, "Bearer wrong", "Basic right", "right", "Bearer righté"])
def test_without_a_key_nothing_but_health_is_answered(guarded: Live, method, path, given):
    headers = {"Authorization": (given or "").encode("latin-1")}
    response = guarded.client.request(method, path, headers=headers)
    if path in OPEN:
        assert response.status_code == 200
    else:
        assert response.status_code == 401
        is_shown = (given or "").startswith("Bearer ")
        challenge = 'Bearer error="invalid_token", error_description="Send a valid' * is_shown
        assert response.headers["WWW-Authenticate"].startswith(challenge or "Bearer")
        assert is_shown or response.headers["WWW-Authenticate"] == "Bearer"
        assert response.headers["Content-Type"] == "application/problem+json"
        assert "Authorization: Bearer KEY" in response.json()["detail"]


@pytest.mark.parametrize("key", ["right", "also right"])
def test_each_of_the_keys_opens(guarded: Live, key):
    response = guarded.client.get("/epochs", headers={"Authorization": f"bearer {key}"})
    assert response.status_code == 200


def test_a_refused_caller_writes_nothing(guarded: Live):
    refused = guarded.client.post(
        "/pages", json=[{"url": "https://x.example/"}], headers={"Authorization": "Bearer wrong"}
    )
    assert refused.status_code == 401
    assert guarded.get("/pages", url="https://x.example/").status_code == 404


def test_metrics_count_items_and_requests_by_route(sqlite_api: Live):
    api = sqlite_api
    (page_id,) = api.register("https://a.example/")
    at = api.clock().isoformat()
    observation = {"page_id": page_id, "observed_at": at, "changed": True}
    api.post("/observations", [observation, {}])
    api.post("/observations", [observation])
    api.post("/observations", [{}, {}])
    api.post("/pings", [{"page_id": page_id, "changed_at": at}])
    for _ in range(3):
        api.get(f"/pages/{page_id}")
    api.get("/pages/99")
    api.get("/no/such/path")
    found = samples(api)
    assert found['recrawl_items_total{kind="page",outcome="accepted"}'] == 1
    assert found['recrawl_items_total{kind="observation",outcome="accepted"}'] == 1
    assert found['recrawl_items_total{kind="observation",outcome="duplicate"}'] == 1
    assert found['recrawl_items_total{kind="observation",outcome="rejected"}'] == 3
    assert found['recrawl_items_total{kind="ping",outcome="accepted"}'] == 1
    labels = 'method="GET",route="/pages/{page_id}"'
    assert found[f'recrawl_requests_total{{{labels},status="200"}}'] == 3
    assert found[f'recrawl_requests_total{{{labels},status="404"}}'] == 1
    assert found[f"recrawl_request_seconds_count{{{labels}}}"] == 4
    assert found['recrawl_requests_total{method="GET",route="unknown",status="404"}'] == 1


def test_metrics_tell_of_the_epoch_in_force(api: Live):
    assert "recrawl_epoch" not in samples(api)
    api.register(*(f"https://a.example/{i}" for i in range(5)))
    epoch = api.epoch()
    api.clock.advance(minutes=7)
    found = samples(api)
    assert found["recrawl_epoch"] == epoch["epoch"]
    assert found["recrawl_epoch_age_seconds"] == 420.0
    assert found["recrawl_pages"] == 5
    assert found["recrawl_bandwidth_crawls_per_day"] == epoch["bandwidth"]
    assert found["recrawl_bandwidth_used_crawls_per_day"] == epoch["bandwidth_used"]
    assert found["recrawl_epoch_duration_seconds"] == pytest.approx(sum(epoch["seconds"].values()))


def test_strangers_cannot_make_time_series(sqlite_api: Live):
    for i in range(5):
        sqlite_api.get(f"/made/up/{i}")
        sqlite_api.client.request("PROPFIND", f"/pages/{i}")
    assert not [name for name in samples(sqlite_api) if "made" in name or "PROPFIND" in name]


def test_a_healthy_service_is_alive_and_ready(api: Live):
    for path in ("/healthz", "/readyz"):
        assert api.get(path).json()["status"] == "ok"
        head = api.client.head(path)  # as some load balancers ask
        assert (head.status_code, head.content) == (200, b"")


def assert_unavailable(api: Live) -> None:
    assert api.get("/healthz").status_code == 200
    assert api.get("/metrics").status_code == 200
    refused = [
        api.get("/readyz"),
        api.get("/schedule"),
        api.client.post("/epochs"),
        api.post("/pages", [{"url": "https://lost.example/"}]),
    ]
    for response in refused:
        assert response.status_code == 503, response.text
        assert int(response.headers["Retry-After"]) > 0
        assert response.headers["Content-Type"] == "application/problem+json"
        assert re.search("(try|send this) again", response.json()["detail"])


@pytest.mark.dear
def test_without_its_database_the_service_is_alive_but_not_ready_until_it_is_back(
    postgres_server, postgres_template
):
    with cloned(postgres_server, postgres_template) as url, running(url) as api:
        name = sa.make_url(url).database
        api.register("https://a.example/")
        command(postgres_server, f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        kill = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
        command(postgres_server, kill)
        assert_unavailable(api)
        command(postgres_server, f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
        assert api.alive()
        assert api.get("/pages", url="https://a.example/").status_code == 200
        assert api.get("/pages", url="https://lost.example/").status_code == 404


def test_without_its_file_the_service_is_alive_but_not_ready(sqlite_url, tmp_path):
    with running(sqlite_url) as api:
        api.service.store.close()
        path = Path(sa.make_url(sqlite_url).database)
        path.rename(tmp_path / "elsewhere.db")
        path.mkdir()
        assert_unavailable(api)
        path.rmdir()
        (tmp_path / "elsewhere.db").rename(path)
        assert api.alive()


@pytest.mark.dear
def test_a_database_that_a_newer_version_migrates_meanwhile_makes_it_not_ready(api: Live):
    to = sa.text("UPDATE alembic_version SET version_num = :revision")
    with api.service.store.engine.begin() as connection:
        connection.execute(to, {"revision": "9999"})
    answered = api.get("/readyz")
    with api.service.store.engine.begin() as connection:
        connection.execute(to, {"revision": migrations.head()})
    assert api.alive()
    assert answered.status_code == 503
    assert "a newer version has migrated it" in answered.json()["detail"]
    assert answered.json()["type"] == f"{TYPES}schema-ahead"


class Named(HTMLParser):
    """The scripts, styles and pictures that a page loads."""

    def __init__(self) -> None:
        super().__init__()
        self.urls: list[str] = []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        name = {"script": "src", "link": "href", "img": "src"}.get(tag, "")
        if given.get(name):
            self.urls.append(given[name])


@pytest.mark.parametrize("path", ["/docs", "/redoc"])
def test_documentation_needs_no_one_else(sqlite_api: Live, path):
    page = sqlite_api.get(path)
    assert page.headers["Content-Type"].startswith("text/html")
    named = Named()
    named.feed(page.text)
    assert any(url.endswith(".js") for url in named.urls)
    described = re.findall(r"""["'](/?openapi\.json)["']""", page.text)
    assert described
    for url in {*named.urls, *described}:
        target = urlsplit(urljoin(f"{sqlite_api.url}{path}", url))
        assert f"{target.scheme}://{target.netloc}" == sqlite_api.url, f"{url} is someone else's"
        asset = sqlite_api.client.get(url)
        assert asset.status_code == 200
        assert len(asset.content) > 100


PLAIN = "text/plain; version=0.0.4; charset=utf-8"
PROMETHEUS_2 = (
    "application/openmetrics-text;version=1.0.0;q=0.5,"
    "application/openmetrics-text;version=0.0.1;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.1"
)
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("", PLAIN),
        ("*/*", PLAIN),
        ("text/plain", PLAIN),
        ("text/plain;version=nonsense", PLAIN),
        ("text/html, application/json;q=0.5", PLAIN),
        ("application/openmetrics-text;q=0, */*", PLAIN),
        ("text/plain;version=0.0.4;q=0.5,application/openmetrics-text;version=1.0.0;q=0.4", PLAIN),
        ("application/openmetrics-text", OPENMETRICS),
        (PROMETHEUS_2, OPENMETRICS),
        (PROMETHEUS_3, OPENMETRICS),
    ],
)
def test_metrics_have_the_format_that_the_scraper_prefers(sqlite_api: Live, accept, content_type):
    response = sqlite_api.client.get("/metrics", headers={"Accept": accept})
    assert response.headers["Content-Type"] == content_type
    assert "Accept" in response.headers["Vary"]
    parse = read_openmetrics if content_type == OPENMETRICS else read_plain
    families = {family.name: family for family in parse(response.text)}
    assert families["recrawl_up"].samples[0].value == 1
