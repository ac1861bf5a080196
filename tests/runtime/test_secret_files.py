"""Secrets in files: read where their variable names them, and never shown."""

import os

import pytest
import typer
from pydantic import SecretStr

from service.cli.options import key
from service.model.errors import InvalidSettings
from service.runtime.secret_files import MAX_BYTES
from service.runtime.settings import SECRETS, Settings, read_settings

SECRET = "s3cret-do-not-show-it"
VALUES = {"database_url": f"postgresql://me:{SECRET}@h/db", "api_keys": SECRET, "archive": SECRET}


@pytest.fixture
def named(tmp_path, monkeypatch):
    """Return a function that writes a secret into a file, and names the file by a variable."""

    def write(content, name="RECRAWL_API_KEYS"):
        path = tmp_path / "secret"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        monkeypatch.setenv(f"{name}_FILE", str(path))
        return path

    return write


def refusal():
    with pytest.raises(InvalidSettings) as refused:
        read_settings()
    sentence = str(refused.value)
    assert SECRET not in sentence
    return sentence


def keys():
    return [one.get_secret_value() for one in read_settings().api_keys]


def test_every_setting_that_is_never_shown_may_be_in_a_file():
    shown = repr(read_settings(**VALUES))
    hidden = [
        name
        for name in Settings.model_fields
        if "**" in repr(getattr(read_settings(**VALUES), name))
    ]
    assert sorted(SECRETS) == sorted(hidden) == sorted(VALUES)
    assert SECRET not in shown


@pytest.mark.parametrize("name", SECRETS)
@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_a_secret_comes_from_its_file_without_the_newline(named, name, end):
    named(f"{VALUES[name]}{end}", f"RECRAWL_{name.upper()}")
    value = getattr(read_settings(), name)
    (one,) = value if isinstance(value, tuple) else (value,)
    assert isinstance(one, SecretStr)
    assert one.get_secret_value() == VALUES[name]


def test_a_line_of_the_env_file_may_name_the_file(named, monkeypatch, tmp_path):
    path = named(f"{SECRET},{SECRET}-2\n")
    monkeypatch.delenv("RECRAWL_API_KEYS_FILE")
    monkeypatch.setitem(Settings.model_config, "env_file", tmp_path / ".env")
    (tmp_path / ".env").write_text(f"recrawl_api_keys_file='{path}'\n")
    assert keys() == [SECRET, f"{SECRET}-2"]


def test_what_is_given_goes_before_the_file(named):
    named("", "RECRAWL_DATABASE_URL")
    settings = read_settings(database_url="sqlite:///mine.db")
    assert settings.database_url.get_secret_value() == "sqlite:///mine.db"


def test_an_empty_variable_is_unset_as_in_compose(named, monkeypatch):
    named(SECRET)
    monkeypatch.setenv("RECRAWL_API_KEYS", "")
    assert keys() == [SECRET]
    monkeypatch.setenv("RECRAWL_API_KEYS_FILE", "")
    assert keys() == []


def test_a_secret_in_both_ways_is_refused(named, monkeypatch):
    named(SECRET)
    monkeypatch.setenv("RECRAWL_API_KEYS", SECRET)
    assert refusal() == "RECRAWL_API_KEYS and RECRAWL_API_KEYS_FILE are both set; unset one of them"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "is empty; write the secret into it"),
        ("\n\r\n", "is empty; write the secret into it"),
        ("  \n", "is empty; write the secret into it"),
        (f"{SECRET}\n{SECRET}\n", "has more than one line; keep the secret on one line"),
        (f"{SECRET}\0", "has more than one line; keep the secret on one line"),
        (f"{SECRET}\xff".encode("latin-1"), "is not UTF-8; save it as UTF-8"),
        (SECRET * MAX_BYTES, "has more than 1,000,000 bytes; name another file"),
    ],
)
def test_a_file_without_one_line_is_refused(named, content, sentence):
    path = named(content)
    assert refusal() == f"RECRAWL_API_KEYS_FILE: the file {path} {sentence}"


def test_a_file_that_cannot_be_opened_is_refused(named, monkeypatch, tmp_path):
    path = named(SECRET)
    path.unlink()
    start = f"RECRAWL_API_KEYS_FILE: the file {path} "
    assert refusal() == (
        f"{start}does not exist; name a file that holds the secret, not the secret itself"
    )
    path.mkdir()
    assert refusal() == f"{start}is a directory; name a file in it"
    monkeypatch.setenv("RECRAWL_API_KEYS_FILE", f"{tmp_path}/{'x' * 300}")
    assert "cannot be read: File name too long; name another file" in refusal()


def test_a_file_of_another_user_is_refused(named, monkeypatch):
    path = named(SECRET)

    def denied(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(type(path), "open", denied)  # root may read all files
    assert "cannot be read by this user; change its mode" in refusal()


def test_a_secret_in_place_of_the_path_is_not_shown(monkeypatch):
    monkeypatch.setenv("RECRAWL_API_KEYS_FILE", SECRET)
    assert refusal().startswith("RECRAWL_API_KEYS_FILE: its file does not exist; name a file that")
    monkeypatch.setenv("RECRAWL_API_KEYS_FILE", f"postgresql://me:{SECRET}@h/db")
    assert "does not exist" in refusal()


@pytest.mark.parametrize("name", ["RECRAWL_BANDWIDTH_FILE", "RECRAWL_API_KEYZ_FILE"])
def test_other_settings_have_no_file(monkeypatch, name):
    monkeypatch.setenv(name, "/run/secrets/x")
    meant = {"RECRAWL_BANDWIDTH_FILE": "BANDWIDTH", "RECRAWL_API_KEYZ_FILE": "API_KEYS_FILE"}
    assert refusal() == f"{name} is not a setting; did you mean RECRAWL_{meant[name]}?"


def test_an_empty_file_of_keys_does_not_open_the_service(recrawl, named):
    named("\n")
    assert "is empty; write the secret into it" in recrawl("serve").refusal()


def test_the_key_of_a_client_may_be_in_a_file(named, monkeypatch):
    named(f"{SECRET}\n", "RECRAWL_API_KEY")
    assert [key(None), key(""), key("mine")] == [SECRET, SECRET, "mine"]
    monkeypatch.setenv("RECRAWL_API_KEY", SECRET)
    assert key("mine") == "mine"
    with pytest.raises(InvalidSettings, match="are both set"):
        key(os.environ["RECRAWL_API_KEY"])
    monkeypatch.delenv("RECRAWL_API_KEY")
    named("schlüssel", "RECRAWL_API_KEY")
    with pytest.raises(typer.BadParameter, match="not printable ASCII"):
        key(None)


def test_a_file_of_a_clients_key_is_no_file_of_keys(recrawl, named):
    named("", "RECRAWL_API_KEY")
    assert "RECRAWL_API_KEY_FILE: the file" in recrawl("hosts", "list").refusal()
    sentence = recrawl("serve").refusal()
    assert "RECRAWL_API_KEY_FILE (for clients) is set, but RECRAWL_API_KEYS_FILE" in sentence
