"""Help that teaches; settings and databases that are refused in one sentence."""

import os
import subprocess
import sys
import uuid
from contextlib import closing

import pytest
import sqlalchemy as sa
from support.live_server import command, running
from support.store_cases import register

from service import __version__
from service.api.server import GracefulServer
from service.cli import app
from service.core.estimators.gamma import Gamma
from service.core.prior import Prior
from service.model.errors import StoreUnavailable
from service.storage import open_store

pytestmark = pytest.mark.dear

COMMANDS = [
    command.name or command.callback.__name__.replace("_", "-")
    for command in app.registered_commands
]


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_every_command_explains_itself(recrawl, name, flag):
    ended = recrawl(name, flag)
    assert ended.status == 0
    assert f"recrawl {name}" in ended.out
    assert len(ended.out.split()) > 20


def test_the_commands_are_listed_when_nothing_is_asked_for(recrawl):
    listed = recrawl("--help").out
    for name in ("serve", "worker", "migrate", "rebuild", "import", "openapi", "demo"):
        assert name in COMMANDS
        assert name in listed
    assert "RECRAWL_DATABASE_URL" in listed
    assert "serve" in "".join(recrawl()[1:])


def test_the_version_is_told(recrawl):
    assert recrawl("--version").out == f"recrawl {__version__}\n"


WITHOUT_ROUNDS = """
import sys
from contextlib import closing
from service.cli import main
if "worker" in sys.argv:
    from service.epochs.run import Runner
    Runner.run_every = lambda self: print("epochs")
try:
    main()
finally:
    print(*sys.modules)
"""


@pytest.mark.dear
@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("verb", "lacks", "loads"),
    [
        ("--help", {"numpy", "scipy", "sqlalchemy", "pydantic", "httpx"}, {"typer"}),
        ("worker", {"fastapi", "starlette", "uvicorn", "prometheus_client"}, {"scipy.special"}),
    ],
)
def test_a_command_loads_only_what_it_needs(sqlite_url, verb, lacks, loads):
    ended = subprocess.run(
        [sys.executable, "-c", WITHOUT_ROUNDS, verb],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "RECRAWL_DATABASE_URL": sqlite_url},
    )
    said = ended.stdout.splitlines()
    loaded = set(said[-1].split())
    assert ("epochs" in said) == (verb == "worker")
    assert not loaded & (lacks | {"fastapi"})
    assert loads <= loaded


def test_an_unknown_command_or_option_is_refused(recrawl):
    for arguments in (("crawl",), ("serve", "--prot", "1"), ("serve", "--port", "65536")):
        ended = recrawl(*arguments)
        assert ended.status == 2
        assert "Traceback" not in ended.err


@pytest.mark.parametrize(
    ("command", "options", "number"),
    [
        ("replay", ("days", "bandwidth", "bandwidth-per-page", "step", "sitemap-every"), "nan"),
        ("replay", ("ping-delay", "ping-share", "ping-recall", "ping-precision"), "nan"),
        ("replay", ("days", "bandwidth", "ping-delay"), "inf"),
        ("demo", ("days", "bandwidth-per-page", "step", "seconds"), "nan"),
        ("watch https://a.example/s.xml", ("interval", "delay"), "nan"),
        ("experiment a22-1", ("scale",), "nan"),
    ],
)
def test_a_number_that_is_not_finite_is_refused(recrawl, tmp_path, command, options, number):
    for option in options:
        ended = recrawl(*command.split(), f"--{option}", number)
        assert ended.status == 2
        assert f"{number} is not a finite number" in ended.err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", ["hosts list", "watch https://a.example/s.xml"])
@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("--to", "127.0.0.1:8000", "is no http:// or https:// address"),
        ("--to", "http://", "is no http:// or https:// address"),
        ("--to", "http://[::1", "is no http:// or https:// address"),
        ("--to", "http://a.example:port", "is no http:// or https:// address"),
        ("--api-key", "schlüssel", "not printable ASCII"),
        ("--api-key", "a\nb", "not printable ASCII"),
    ],
)
def test_an_address_or_key_that_cannot_be_is_refused(recrawl, command, option, value, says):
    ended = recrawl(*command.split(), option, value)
    assert ended.status == 2
    assert says in " ".join(ended.err.replace("│", " ").split())
    assert "schlüssel" not in ended.err


@pytest.mark.parametrize("verb", ["serve", "worker", "migrate", "rebuild"])
def test_an_unknown_setting_is_refused_with_what_may_be_meant(recrawl, verb):
    sentence = recrawl(verb, bandwith=3).refusal()
    assert "RECRAWL_BANDWITH is not a setting; did you mean RECRAWL_BANDWIDTH?" in sentence


def test_an_unknown_setting_in_the_file_is_refused_too(recrawl, tmp_path, monkeypatch):
    from service.runtime.settings import Settings

    (tmp_path / ".env").write_text("RECRAWL_OBJEKTIVE=harmonic\n")
    monkeypatch.setitem(Settings.model_config, "env_file", tmp_path / ".env")
    assert "RECRAWL_OBJEKTIVE is not a setting" in recrawl("serve").refusal()


def test_a_setting_in_the_file_that_cannot_be_read_is_refused(recrawl, tmp_path, monkeypatch):
    """Above all a key: nobody is let in for a quote that was left open."""
    from service.runtime.settings import Settings

    (tmp_path / ".env").write_text('RECRAWL_API_KEYS="hunter2\nRECRAWL_EPOCH_INTERVAL_S=60\n')
    monkeypatch.setitem(Settings.model_config, "env_file", tmp_path / ".env")
    sentence = recrawl("serve").refusal()
    assert "RECRAWL_API_KEYS" in sentence
    assert "hunter2" not in sentence


def test_a_key_under_the_name_that_clients_use_is_not_taken_for_none(recrawl):
    assert "RECRAWL_API_KEYS" in recrawl("serve", api_key="hunter2").refusal()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "recrawl.example", ""])
def test_a_server_that_others_reach_is_not_started_without_keys(recrawl, tmp_path, host):
    sentence = recrawl("serve", "--host", host).refusal()
    assert f"--host {host} admits other machines" in sentence
    assert "set RECRAWL_API_KEYS, or RECRAWL_OPEN=true to allow" in sentence
    assert not list(tmp_path.iterdir()), "no database is made"


NOBODY = "postgresql://postgres@127.0.0.1:1/x"


@pytest.mark.parametrize(
    ("host", "settings"),
    [
        ("127.0.0.1", {}),
        ("127.1.2.3", {}),
        ("::1", {}),
        ("localhost", {}),
        ("0.0.0.0", {"open": "true"}),
        ("0.0.0.0", {"api_keys": "1" * 20}),
    ],
)
def test_a_server_is_started_for_this_machine_or_with_keys_or_open(recrawl, host, settings):
    """It comes as far as the database."""
    sentence = recrawl("serve", "--host", host, database_url=NOBODY, **settings).refusal()
    assert "the database does not answer" in sentence


def test_a_file_of_settings_that_is_no_text_is_refused(recrawl, tmp_path, monkeypatch):
    from service.runtime.settings import Settings

    (tmp_path / ".env").write_bytes(b"RECRAWL_BANDWIDTH=\xff\n")
    monkeypatch.setitem(Settings.model_config, "env_file", tmp_path / ".env")
    assert ".env is not UTF-8; save the file as UTF-8" in recrawl("serve").refusal()


@pytest.mark.sampled(12)
@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"estimator": "lln"}, "choose timing poisson or another estimator"),
        ({"estimator": "crystal"}, "RECRAWL_ESTIMATOR is 'crystal'; set one of gamma"),
        ({"objective": "luck"}, "RECRAWL_OBJECTIVE is 'luck'; set one of harmonic"),
        ({"timing": "sometimes"}, "RECRAWL_TIMING"),
        ({"bandwidth": "-1"}, "RECRAWL_BANDWIDTH"),
        ({"bandwidth": "nan"}, "RECRAWL_BANDWIDTH"),
        ({"epoch_interval_s": "0"}, "RECRAWL_EPOCH_INTERVAL_S"),
        ({"max_items": "ten"}, "RECRAWL_MAX_ITEMS"),
        ({"log_level": "loud"}, "RECRAWL_LOG_LEVEL"),
        ({"api_keys": ","}, "RECRAWL_API_KEYS holds no key between its commas"),
        ({"api_keys": "right, schl\u00fcssel"}, "RECRAWL_API_KEYS has a character that is not"),
        ({"api_keys": "hunter2\n2"}, "RECRAWL_API_KEYS has a character that is not"),
        ({"api_keys": "hunter2"}, "RECRAWL_API_KEYS holds a key of 7 characters"),
        ({"bandwidth": "x", "max_items": "y"}, "RECRAWL_MAX_ITEMS"),
        ({"database_url": "nonsense"}, "RECRAWL_DATABASE_URL is not a URL"),
        ({"database_url": "postgresql://u:p@h:abc/db"}, "RECRAWL_DATABASE_URL is not a URL"),
        ({"database_url": "postgresql://u:p@h1:5433,h2:5432/db"}, "?host=one:5432&host=two"),
        ({"database_url": "postgresql://postgres@127.0.0.1"}, "must be sqlite:///FILE or"),
        ({"database_url": "sqlite://"}, "must be sqlite:///FILE"),
        ({"database_url": "mysql://x/y"}, "must be sqlite:///FILE or postgresql://"),
        ({"database_url": "sqlite:////no/such/directory/x.db"}, "x.db cannot be opened"),
        ({"database_url": "postgresql://postgres@127.0.0.1:1/x"}, "database"),
    ],
)
@pytest.mark.parametrize("verb", ["serve", "migrate"])
def test_settings_that_cannot_be_are_refused(recrawl, verb, settings, says):
    assert says in recrawl(verb, **settings).refusal()


def test_a_file_that_is_no_database_is_refused(recrawl, tmp_path):
    (tmp_path / "notes.db").write_text("these are my notes " * 100)
    for verb in ("serve", "migrate"):
        sentence = recrawl(verb, database_url=f"sqlite:///{tmp_path}/notes.db").refusal()
        assert f"{tmp_path}/notes.db cannot be opened or changed: file is not a" in sentence
    assert (tmp_path / "notes.db").read_text().startswith("these are my notes")


@pytest.mark.parametrize("verb", ["serve", "worker", "rebuild"])
def test_a_postgres_without_the_schema_is_refused(recrawl, empty_postgres_url, verb):
    sentence = recrawl(verb, database_url=empty_postgres_url).refusal()
    assert "run `recrawl migrate`" in sentence


def test_what_postgres_said_is_told(recrawl, empty_postgres_url):
    sentence = recrawl("serve", database_url=f"{empty_postgres_url}_not").refusal()
    assert "the database does not answer" in sentence
    assert sentence.endswith("does not exist)")


@pytest.fixture
def stranger(empty_postgres_url):
    """Give the address of a database as somebody has it who has no rights in it."""
    name, there = f"stranger_{uuid.uuid4().hex}", sa.make_url(empty_postgres_url)
    command(there, f"CREATE ROLE {name} LOGIN PASSWORD 'hunter2'")
    command(there, "REVOKE CREATE ON SCHEMA public FROM public")
    yield there.set(username=name, password="hunter2").render_as_string(hide_password=False)
    command(there, f"DROP ROLE {name}")


@pytest.mark.dear
def test_rights_that_are_missing_are_told(recrawl, empty_postgres_url, stranger):
    sentence = recrawl("migrate", database_url=stranger).refusal()
    assert sentence.endswith("permission denied for schema public")
    assert recrawl("migrate", database_url=empty_postgres_url).status == 0
    sentence = recrawl("serve", database_url=stranger).refusal()
    assert sentence.endswith("(permission denied for table alembic_version)")


@pytest.mark.dear
def test_tables_of_somebody_else_are_left_alone(recrawl, empty_postgres_url):
    command(sa.make_url(empty_postgres_url), "CREATE TABLE pages (theirs int)")
    sentence = recrawl("migrate", database_url=empty_postgres_url).refusal()
    assert sentence.endswith('relation "pages" already exists')
    command(sa.make_url(empty_postgres_url), "SELECT theirs FROM pages")


def test_no_refusal_shows_a_secret(recrawl):
    url = "postgresql://me:hunter2@127.0.0.1:1/x"
    for settings in (
        {"database_url": url},
        {"database_url": url, "bandwidth": "x"},
        {"database_url": url.replace("postgresql", "mysql")},
    ):
        assert "hunter2" not in recrawl("serve", **settings).refusal()
    assert "hunter2" not in recrawl("serve", api_keys="hunter2", bandwidth="x").refusal()


@pytest.mark.dear
def test_migrate_goes_up_and_down_and_says_where_it_stands(recrawl, empty_database_url):
    up = recrawl("migrate", database_url=empty_database_url)
    again = recrawl("migrate", "--database-url", empty_database_url)
    assert up == again
    assert up.status == 0
    assert up.out.startswith("the database is at revision 0")
    unasked = recrawl("migrate", "--down", "base", database_url=empty_database_url).refusal()
    assert "this drops all tables, with 0 pages, their logs, and all keys and webhooks" in unasked
    assert "nothing was done: add --yes" in unasked
    assert recrawl("migrate", database_url=empty_database_url).out == up.out
    older = recrawl("migrate", "--down", "0037", database_url=empty_database_url).refusal()
    assert "this goes back to revision 0037 and drops no values; nothing was done" in older
    with closing(open_store(empty_database_url, 2)) as store:
        register(store, 1)
        with store.begin() as tx:
            tx.run("UPDATE hosts SET first_share = 0.5")
    older = recrawl("migrate", "--down", "0001", database_url=empty_database_url).refusal()
    assert "this goes back to revision 0001 and drops" in older
    assert "incarnations (1 row)" in older
    assert "hosts.first_share (1 row)" in older
    assert "incarnations.number" not in older
    for none_below in ("-999", "0038"):
        none = recrawl("migrate", "--down", none_below, database_url=empty_database_url).refusal()
        assert "drops no values" in none
    for options in (("--yes",), ()):  # the second one finds nothing to drop, and asks nothing
        down = recrawl("migrate", "--down", "base", *options, database_url=empty_database_url)
        assert down.out == "the database is at revision base\n"
    with closing(open_store(empty_database_url, 2)) as store:
        (part,) = store.parts
        with part.engine.connect() as connection:
            assert sa.inspect(connection).get_table_names() == []
    assert recrawl("migrate", database_url=empty_database_url).out == up.out
    with closing(open_store(empty_database_url, 2)) as store:
        store.check()


@pytest.mark.dear
@pytest.mark.sampled(1)
@pytest.mark.parametrize("estimator", ["lognormal", "mle"])
def test_states_of_another_estimator_are_refused_until_rebuilt(recrawl, database_url, estimator):
    """The two keep two and four numbers a page; gamma keeps two."""
    url = "https://a.example/"
    with running(database_url, estimator="gamma") as live:
        live.clock.advance(days=8)
        days = range(1, 8)
        crawls = [
            {"url": url, "observed_at": f"2026-05-0{d}T00:00:00Z", "changed": True} for d in days
        ]
        live.post("/observations", crawls)
        before = live.get("/pages", url=url).json()["estimate"]
    sentence = recrawl("serve", database_url=database_url, estimator=estimator).refusal()
    assert f"estimator gamma, the settings ask for {estimator}" in sentence
    assert "recrawl rebuild" in sentence
    rebuilt = recrawl("rebuild", database_url=database_url, estimator=estimator)
    assert rebuilt.status == 0, rebuilt.err
    assert rebuilt.out.startswith("1 page rebuilt")
    with running(database_url, estimator=estimator) as live:
        estimate = live.get("/pages", url=url).json()["estimate"]
        assert estimate["estimator"] == estimator
        assert estimate["n_observations"] == 6
        assert estimate["change_rate"] > 0.1
        epoch = live.epoch()
        assert epoch["status"] == "published"
    assert recrawl("rebuild", database_url=database_url, estimator="gamma").status == 0
    with running(database_url) as live:
        after = live.get("/pages", url=url).json()["estimate"]
    if not epoch["prior"]:
        assert after["change_rate"] == before["change_rate"]
        return
    a, b, within_shape = (epoch["prior"][name] for name in ("a", "b", "within_shape"))
    gamma = Gamma(Prior(a, b), 180.0)  # the corpus is the same, whoever fitted it
    state = gamma.init()
    for _ in range(6):
        state = gamma.update(state, 1.0, changed=True)
    url_group = Gamma(Prior(within_shape, within_shape / after["url_group_change_rate"]), 180.0)
    assert after["change_rate"] == pytest.approx(float(url_group.change_rate(state)), rel=1e-6)


def test_a_database_goes_on_with_its_estimator_unless_another_is_chosen(recrawl, database_url):
    seen = {"url": "https://a.example/", "changed": True}
    with running(database_url, estimator="lognormal") as live:
        live.clock.advance(days=8)
        for day in (1, 2, 3):
            live.post("/observations", [seen | {"observed_at": f"2026-05-0{day}T00:00:00Z"}])
        before = live.get("/pages", url=seen["url"]).json()["estimate"]
    with running(database_url) as live:
        live.clock.advance(days=8)
        assert live.get("/pages", url=seen["url"]).json()["estimate"] == before
        live.post("/observations", [seen | {"observed_at": "2026-05-04T00:00:00Z"}])
        after = live.get("/pages", url=seen["url"]).json()["estimate"]
        assert live.epoch()["status"] == "published"
    assert after["estimator"] == "lognormal"
    assert after["n_observations"] == 3
    assert "1 page rebuilt" in recrawl("rebuild", database_url=database_url).out
    with running(database_url) as live:
        estimate = live.get("/pages", url=seen["url"]).json()["estimate"]
    assert (estimate["estimator"], estimate["n_observations"]) == ("bursty", 3)


@pytest.mark.dear
def test_after_a_rebuild_cut_short_only_another_one_is_taken(recrawl, database_url, monkeypatch):
    with running(database_url) as live:
        live.register("https://a.example/")

    def power_cut(*_args):
        raise StoreUnavailable

    with monkeypatch.context() as patch:
        patch.setattr("service.ingest.rebuild.replayed", power_cut)
        assert recrawl("rebuild", database_url=database_url, estimator="mle").status != 0
    for estimator in ("gamma", "mle"):
        sentence = recrawl("serve", database_url=database_url, estimator=estimator).refusal()
        assert "a rebuild did not finish" in sentence
    assert recrawl("rebuild", database_url=database_url, estimator="mle").status == 0
    with running(database_url, estimator="mle") as live:
        assert live.get("/pages", url="https://a.example/").status_code == 200


@pytest.mark.parametrize(
    ("revision", "says"),
    [
        ("nonsense", "Can't locate revision identified by 'nonsense'"),
        ("9999", "send one of base, 0001, 0002,"),
        ("", "name a revision, or base"),
    ],
)
def test_a_revision_that_does_not_exist_is_refused_and_nothing_changes(
    recrawl, sqlite_url, revision, says
):
    ended = recrawl("migrate", "--down", revision, database_url=sqlite_url)
    assert ended.status == 2
    assert says in " ".join(ended.err.replace("│", " ").split())
    assert "Traceback" not in ended.err
    assert recrawl("migrate", database_url=sqlite_url).status == 0


def test_a_second_server_of_a_sqlite_file_is_refused(recrawl, sqlite_url):
    recrawl("migrate", database_url=sqlite_url)
    with closing(open_store(sqlite_url, 2)) as store, store.serving():
        refused = recrawl("serve", "--port", "0", database_url=sqlite_url).refusal()
    assert "Another `recrawl serve` serves this SQLite file; end it" in refused


@pytest.mark.parametrize("command", [("rebuild",), ("export", "pages.csv")])
def test_a_database_that_is_not_there_is_not_made_by_reading_it(recrawl, tmp_path, command):
    assert "there is no database" in recrawl(*command).refusal()
    assert not list(tmp_path.iterdir())


@pytest.mark.dear
@pytest.mark.sampled(2)
@pytest.mark.parametrize("command", [("serve",), ("worker",), ("migrate",), ("export", "-")])
def test_a_database_of_a_newer_version_is_left_as_it_is(recrawl, empty_database_url, command):
    assert recrawl("migrate", database_url=empty_database_url).status == 0
    store = open_store(empty_database_url, 2)
    with closing(store), store.engine.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    refusal = recrawl(*command, database_url=empty_database_url).refusal()
    assert "a newer version has migrated it" in refusal


@pytest.mark.parametrize("arguments", [("--seed", -1), ("--pages", 10**9), ("--days", 1e300)])
def test_a_demo_that_cannot_be_is_refused_before_it_plays(recrawl, arguments):
    ended = recrawl("demo", *arguments)
    assert ended.status == 2
    assert "is not in the range" in " ".join(ended.err.split())


def test_a_demo_whose_plot_has_no_folder_is_refused_before_it_plays(recrawl):
    ended = recrawl("demo", "--plot", "/no/such/folder/x.png")
    assert ended.status == 2
    assert "does not exist" in ended.err
    assert "serves at" not in ended.err


@pytest.mark.parametrize(
    ("proxies", "trusted"), [("", []), ("10.0.0.1, fd00::/8", ["10.0.0.1", "fd00::/8"])]
)
def test_only_trusted_proxies_name_the_caller(recrawl, monkeypatch, sqlite_url, proxies, trusted):
    configs = []

    def run(server, sockets):
        configs.append(server.config)
        server.started = True
        for each in sockets:
            each.close()

    monkeypatch.setattr(GracefulServer, "run", run)
    serve = ("serve", "--port", 0)
    assert recrawl(*serve, database_url=sqlite_url, trusted_proxies=proxies).status == 0
    (config,) = configs
    assert config.proxy_headers is bool(trusted)
    assert config.forwarded_allow_ips == trusted
