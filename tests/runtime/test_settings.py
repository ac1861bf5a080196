"""Settings: what is read from where, and what is refused at start-up."""

from datetime import timedelta

import pytest
from pydantic import ValidationError

from service.core.allocation import ALLOCATORS
from service.core.estimators import ESTIMATORS
from service.core.estimators.bursty import Bursty
from service.core.estimators.gamma import Gamma
from service.epochs.plan import Plan
from service.model.domain import Timing
from service.model.errors import InvalidSettings, StartupRefused
from service.runtime.settings import Settings, read_settings

SECRET = "s3cret-do-not-show-it"


@pytest.fixture
def env_file(tmp_path, monkeypatch):
    """An .env file of one's own; gives the function that writes it."""
    path = tmp_path / ".env"
    monkeypatch.setitem(Settings.model_config, "env_file", path)
    return path.write_text


def refusal(**given):
    with pytest.raises(InvalidSettings) as refused:
        read_settings(**given)
    assert isinstance(refused.value, StartupRefused)
    return str(refused.value)


def test_every_setting_has_a_default_that_works():
    settings = read_settings()
    assert settings.database_url.get_secret_value() == "sqlite:///recrawl.db"
    assert settings.api_keys == ()
    assert settings.plan() == Plan(
        estimator=Bursty(half_life_days=180),
        objective="harmonic",
        timing=Timing.periodic,
        bandwidth=None,
        first_share=0.5,
        retention=timedelta(days=730),
        audit_retention=timedelta(days=730),
        history_retention=timedelta(days=90),
        url_groups=True,
        change_hours=True,
        host_delay_s=1.0,
    )


def test_settings_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("RECRAWL_BANDWIDTH", "1234.5")
    monkeypatch.setenv("RECRAWL_TIMING", "poisson")
    monkeypatch.setenv("recrawl_objective", "uniform")
    monkeypatch.setenv("RECRAWL_URL_GROUPS", "false")
    monkeypatch.setenv("RECRAWL_CHANGE_HOURS", "false")
    settings = read_settings()
    assert (settings.bandwidth, settings.timing) == (1234.5, Timing.poisson)
    assert settings.objective == "uniform"
    assert not settings.plan().url_groups
    assert not settings.plan().change_hours


def test_settings_come_from_the_env_file_and_the_environment_goes_first(env_file, monkeypatch):
    env_file("""
# RECRAWL_NONSENSE=commented out
export RECRAWL_MAX_ITEMS=77
RECRAWL_BANDWIDTH="5"
POSTGRES_PASSWORD=somebody else's
""")
    monkeypatch.setenv("RECRAWL_BANDWIDTH", "6")
    settings = read_settings()
    assert (settings.max_items, settings.bandwidth) == (77, 6.0)


def test_what_is_given_goes_before_the_environment(monkeypatch):
    monkeypatch.setenv("RECRAWL_BANDWIDTH", "6")
    assert read_settings(bandwidth=7).bandwidth == 7.0


def test_an_unknown_name_in_the_environment_is_refused_with_the_likely_one(monkeypatch):
    monkeypatch.setenv("RECRAWL_BANDWITH", "6")
    assert refusal() == "RECRAWL_BANDWITH is not a setting; did you mean RECRAWL_BANDWIDTH?"


def test_an_unknown_name_in_the_env_file_is_refused(env_file):
    env_file("export RECRAWL_DATABASE=x\n")
    assert "RECRAWL_DATABASE is not a setting; did you mean RECRAWL_DATABASE_URL?" in refusal()


def test_a_name_like_no_other_is_refused_with_the_known_ones(monkeypatch):
    monkeypatch.setenv("RECRAWL_QQQQQQ", "6")
    message = refusal()
    for name in Settings.model_fields:
        assert f"RECRAWL_{name.upper()}" in message


def test_the_value_of_an_unknown_name_is_not_shown(monkeypatch):
    monkeypatch.setenv("RECRAWL_API_KEYZ", SECRET)
    assert SECRET not in refusal()


@pytest.mark.parametrize(
    "name", ["RECRAWL_TEST_POSTGRES_URL", "RECRAWL_URL", "RECRAWL_API_KEY", "OTHER"]
)
def test_names_of_others_are_left_alone(monkeypatch, name):
    monkeypatch.setenv(name, "x")
    read_settings()


@pytest.mark.parametrize("name", ["bandwidth", "estimator", "half_life_days", "retention_days"])
def test_a_blank_means_none_where_none_means_something(monkeypatch, name):
    monkeypatch.setenv(f"RECRAWL_{name.upper()}", "")
    assert getattr(read_settings(), name) is None


def test_beside_an_archive_the_database_keeps_what_the_estimator_needs(monkeypatch, tmp_path):
    monkeypatch.setenv("RECRAWL_ARCHIVE", str(tmp_path))
    settings = read_settings()
    assert settings.log_archive().root == str(tmp_path)
    kept = {name: settings.plan(name).retention.days for name in ("gamma", "mle", "mm")}
    assert kept == {"gamma": 30, "mle": 730, "mm": 730}
    monkeypatch.setenv("RECRAWL_RETENTION_DAYS", "90")
    assert {read_settings().plan(name).retention.days for name in kept} == {90}
    monkeypatch.setenv("RECRAWL_RETENTION_DAYS", "")
    assert read_settings().plan().retention is None
    monkeypatch.setenv("RECRAWL_ARCHIVE", "")
    assert read_settings().log_archive() is None


def test_none_for_ever_reaches_the_plan(monkeypatch):
    monkeypatch.setenv("RECRAWL_HALF_LIFE_DAYS", "")
    monkeypatch.setenv("RECRAWL_RETENTION_DAYS", "")
    plan = read_settings().plan()
    assert (plan.estimator, plan.retention) == (Bursty(half_life_days=None), None)


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_a_half_life_is_refused_where_evidence_never_fades(monkeypatch, name):
    monkeypatch.setenv("RECRAWL_ESTIMATOR", name)
    monkeypatch.setenv("RECRAWL_TIMING", "poisson")
    read_settings().plan()  # the default of a setting nobody made is no contradiction
    monkeypatch.setenv("RECRAWL_HALF_LIFE_DAYS", "")
    read_settings().plan()  # nor is "never"
    monkeypatch.setenv("RECRAWL_HALF_LIFE_DAYS", "30")
    if name in ("gamma", "bursty", "lognormal"):
        assert read_settings().plan().estimator.half_life_days == 30.0
    else:
        assert refusal() == (
            f"RECRAWL_HALF_LIFE_DAYS has no meaning for estimator {name}, whose evidence never "
            "fades; unset it or choose gamma or bursty or lognormal"
        )


def test_the_plan_goes_on_with_the_estimator_that_is_found_unless_one_is_chosen():
    settings = read_settings(half_life_days=90.0)
    assert settings.plan("gamma").estimator == Gamma(half_life_days=90.0)
    assert read_settings(estimator="lognormal").plan("gamma").estimator.name == "lognormal"
    with pytest.raises(InvalidSettings, match="holds states of mle: RECRAWL_HALF_LIFE_DAYS has no"):
        settings.plan("mle")
    with pytest.raises(InvalidSettings, match=r"holds states of lln: .* choose timing poisson"):
        read_settings().plan("lln")


def test_a_half_life_in_the_env_file_is_refused_as_well(env_file):
    env_file("RECRAWL_ESTIMATOR=mle\nRECRAWL_HALF_LIFE_DAYS=365\n")
    assert "RECRAWL_HALF_LIFE_DAYS" in refusal()


@pytest.mark.parametrize("name", ["epoch_interval_s", "max_items", "timing", "log_level"])
def test_a_blank_is_refused_where_a_value_is_needed(monkeypatch, name):
    monkeypatch.setenv(f"RECRAWL_{name.upper()}", "")
    assert name in refusal().lower()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("bandwidth", "0"),
        ("bandwidth", "-1"),
        ("bandwidth", "nan"),
        ("bandwidth", "inf"),
        ("bandwidth", "1e16"),
        ("bandwidth", "much"),
        ("first_share", "-0.1"),
        ("first_share", "1.1"),
        ("first_share", "nan"),
        ("epoch_interval_s", "0.5"),
        ("epoch_interval_s", "nan"),
        ("epoch_interval_s", "inf"),
        ("half_life_days", "0"),
        ("half_life_days", "nan"),
        ("half_life_days", "inf"),
        ("retention_days", "0"),
        ("retention_days", "nan"),
        ("retention_days", "1e9"),
        ("max_items", "0"),
        ("max_items", "1.5"),
        ("max_items", "1000001"),
        ("max_body_bytes", "10"),
        ("timing", "weekly"),
        ("log_level", "loud"),
    ],
)
def test_a_value_outside_of_its_domain_is_refused_by_name(monkeypatch, name, value):
    monkeypatch.setenv(f"RECRAWL_{name.upper()}", value)
    assert refusal().startswith(f"RECRAWL_{name.upper()}: ")


def test_every_fault_is_named_at_once(monkeypatch):
    monkeypatch.setenv("RECRAWL_BANDWIDTH", "-1")
    monkeypatch.setenv("RECRAWL_MAX_ITEMS", "none")
    message = refusal()
    assert "RECRAWL_BANDWIDTH" in message
    assert "RECRAWL_MAX_ITEMS" in message


@pytest.mark.parametrize("name", ["estimator", "objective"])
def test_a_choice_that_does_not_exist_is_refused_with_those_that_do(monkeypatch, name):
    monkeypatch.setenv(f"RECRAWL_{name.upper()}", "magic")
    message = refusal()
    known = {"estimator": ESTIMATORS, "objective": ALLOCATORS}[name]
    assert message == f"RECRAWL_{name.upper()} is 'magic'; set one of {', '.join(known)}"


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_estimators_that_need_random_intervals_are_refused_with_periodic_timing(estimator):
    if ESTIMATORS[estimator].periodic_timing_ok:
        assert read_settings(estimator=estimator).plan().estimator.name == estimator
        return
    message = refusal(estimator=estimator)
    assert message.startswith(f"estimator {estimator} assumes")
    assert message.endswith("choose timing poisson or another estimator")


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("objective", ALLOCATORS)
def test_with_poisson_timing_every_combination_makes_a_plan(estimator, objective):
    plan = read_settings(estimator=estimator, objective=objective, timing="poisson").plan()
    assert (plan.estimator.name, plan.objective) == (estimator, objective)


def test_keys_are_separated_by_commas(monkeypatch):
    monkeypatch.setenv("RECRAWL_API_KEYS", f" {'1' * 20} , {'2' * 32},, ")
    keys = [key.get_secret_value() for key in read_settings().api_keys]
    assert keys == ["1" * 20, "2" * 32]


@pytest.mark.parametrize("keys", ["hunter2", f"{'1' * 20},hunter2", "1" * 19])
def test_a_short_key_is_refused_and_not_shown(monkeypatch, keys):
    monkeypatch.setenv("RECRAWL_API_KEYS", keys)
    message = refusal()
    assert "use 20 or more" in message
    assert "secrets.token_urlsafe(32)" in message
    assert "hunter2" not in message
    assert "1" * 19 not in message


@pytest.mark.parametrize("keys", [f"change-me-{SECRET}", f"{'1' * 20},change-me{SECRET}"])
def test_a_key_of_an_example_is_refused_and_not_shown(monkeypatch, keys):
    monkeypatch.setenv("RECRAWL_API_KEYS", keys)
    message = refusal()
    assert "begins with change-me" in message
    assert "secrets.token_urlsafe(32)" in message
    assert SECRET not in message
    assert "1" * 20 not in message


@pytest.mark.parametrize("blank", ["", " "])
def test_blank_keys_are_no_keys(monkeypatch, blank):
    monkeypatch.setenv("RECRAWL_API_KEYS", blank)
    assert read_settings().api_keys == ()


def test_secrets_are_never_shown(monkeypatch):
    monkeypatch.setenv("RECRAWL_API_KEYS", SECRET)
    monkeypatch.setenv("RECRAWL_DATABASE_URL", f"postgresql://me:{SECRET}@host/db")
    settings = read_settings()
    assert SECRET not in repr(settings) + str(settings) + settings.model_dump_json()
    monkeypatch.setenv("RECRAWL_BANDWIDTH", "-1")
    with pytest.raises(InvalidSettings) as refused:
        read_settings()
    assert SECRET not in str(refused.value) + repr(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__


def test_a_refused_combination_shows_no_secret(monkeypatch):
    monkeypatch.setenv("RECRAWL_DATABASE_URL", f"postgresql://me:{SECRET}@host/db")
    monkeypatch.setenv("RECRAWL_ESTIMATOR", "lln")
    assert SECRET not in refusal()


def test_settings_are_frozen():
    settings = read_settings()
    with pytest.raises(ValidationError):
        settings.bandwidth = 5.0


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("BANDWIDTH", "lots", "RECRAWL_BANDWIDTH: the value has a wrong form; set a number"),
        ("LEASE_TTL_S", "x", "RECRAWL_LEASE_TTL_S: the value has a wrong form; set a"),
        ("OBJECTIVE", "x", "RECRAWL_OBJECTIVE"),
        (
            "URL_GROUPS",
            "maybe",
            "RECRAWL_URL_GROUPS: the value has a wrong form; set true or false",
        ),
        ("PORT", "8900", "RECRAWL_PORT is not a setting; set it by `recrawl serve --port`"),
        (
            "RETENTION_DAYS",
            "x",
            "RECRAWL_RETENTION_DAYS: the value has a wrong form; set a number above",
        ),
        ("TIMING", "x", "RECRAWL_TIMING: the value has a wrong form; set one of "),
    ],
)
def test_a_refused_setting_states_what_to_set(monkeypatch, name, value, sentence):
    monkeypatch.setenv(f"RECRAWL_{name}", value)
    told = refusal()
    assert told.startswith(sentence)
    assert "Input should" not in told
    assert len(told) < 400
