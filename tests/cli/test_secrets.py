"""Secrets of an operator: in errors, in the log, in .env, in quotes, in files."""

import json
import stat

import pytest

from service.model.errors import InvalidSettings
from service.model.redaction import redacted
from service.runtime.bootstrap import without_passwords
from service.runtime.settings import Settings, read_settings
from service.storage import open_store

SECRET = "S3CRETPW"
KEY = "a-key-of-twenty-characters"


@pytest.mark.parametrize(
    "text",
    [
        f"cannot connect to postgresql://me:{SECRET}@127.0.0.1:1/x",
        f"postgresql+psycopg://me:{SECRET}@@/{SECRET}@h/x is odd",
        f"https://me:{SECRET}%zz@h/ does not answer",
        f"https://:{SECRET}@h/",
        f"s3://key:{SECRET}@bucket/x?secret={SECRET}",
        f"host=h user=me password={SECRET} sslpassword={SECRET}",
        f"postgresql://h/x?user=me&password={SECRET}&bogus=1",
    ],
)
def test_a_password_is_in_no_text_that_is_shown(text):
    assert SECRET not in redacted(text)
    line = without_passwords(None, "", {"event": text, "n": 7, "exception": f"Traceback\n{text}"})
    assert SECRET not in json.dumps(line)
    assert line["n"] == 7


def test_other_texts_are_shown_as_they_are():
    for text in ("http://[::1]:8000/pages", "mail me@a.example: no", "port 127.0.0.1:5432 is shut"):
        assert redacted(text) == text


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://u:{SECRET}@127.0.0.1:1/x",
        f"postgresql://u:p@127.0.0.1:{SECRET}/x",
        f"postgresql://u:{SECRET}@@/{SECRET}@127.0.0.1:1/x",
        f"postgresql://u:{SECRET}%zz@127.0.0.1:1/x",
        f"mysql://u:{SECRET}@h/x",
        f"postgresql://u@127.0.0.1:1/x?password={SECRET}&bogus={SECRET}",
    ],
)
def test_a_command_shows_no_password_of_its_database(recrawl, url):
    ended = recrawl("migrate", database_url=url)
    assert ended.status == 2
    assert SECRET not in ended.err + ended.out


@pytest.mark.parametrize(
    "line",
    [
        f"RECRAWL_API_KEYS: {SECRET}",
        f"RECRAWL_API_KEYS: {SECRET}=",
        f"RECRAWL_API_KEYS {SECRET}",
        f"export RECRAWL_API_KEYS:{SECRET}",
        f"  recrawl_api_keys : {SECRET}",
        f"'RECRAWL_API_KEYS': {SECRET}",
        f"RECRAWL_NO_SUCH: {SECRET}",
    ],
)
def test_a_line_without_an_equals_sign_is_named_by_its_number(tmp_path, monkeypatch, line):
    monkeypatch.setitem(Settings.model_config, "env_file", tmp_path / ".env")
    (tmp_path / ".env").write_text(f"# ours\n{line}\n")
    with pytest.raises(InvalidSettings) as refused:
        read_settings()
    assert SECRET not in str(refused.value)
    assert refused.value.detail.startswith(f"line 2 of {tmp_path}/.env names ")


@pytest.mark.parametrize("quote", ['"', "'"])
def test_quotes_of_an_env_file_of_docker_are_no_part_of_a_value(monkeypatch, quote):
    monkeypatch.setenv("RECRAWL_API_KEYS", f"{quote}{KEY}{quote}")
    monkeypatch.setenv("RECRAWL_DATABASE_URL", f"{quote}sqlite:///a.db{quote}")
    monkeypatch.setenv("RECRAWL_BANDWIDTH", f"{quote}100{quote}")
    monkeypatch.setenv("RECRAWL_TRUSTED_PROXIES", f"{quote}10.0.0.1{quote}")
    settings = read_settings()
    assert [key.get_secret_value() for key in settings.api_keys] == [KEY]
    assert settings.database_url.get_secret_value() == "sqlite:///a.db"
    assert (settings.bandwidth, settings.trusted_proxies) == (100.0, ("10.0.0.1",))
    monkeypatch.setenv("RECRAWL_API_KEYS", f"{quote}{KEY}{quote}, {quote}{KEY}-2{quote}")
    keys = [key.get_secret_value() for key in read_settings().api_keys]
    assert keys == [KEY, f"{KEY}-2"]
    monkeypatch.setenv("RECRAWL_API_KEYS", f"{quote}{KEY}")
    with pytest.raises(InvalidSettings, match="remove the quotes") as refused:
        read_settings()
    assert KEY not in str(refused.value)


def test_a_database_and_an_export_are_for_their_owner(tmp_path, recrawl):
    url = f"sqlite:///{tmp_path / 'recrawl.db'}"
    store = open_store(url, 2)
    store.prepare()
    with store.begin() as tx:
        tx.keep_console_secret("secret")
    assert recrawl("export", tmp_path / "all.ndjson", database_url=url).status == 0
    names = ["recrawl.db", "recrawl.db-wal", "recrawl.db-shm", "all.ndjson"]
    modes = {
        name: stat.S_IMODE((tmp_path / name).stat().st_mode)
        for name in names
        if (tmp_path / name).exists()
    }
    store.close()
    assert modes == dict.fromkeys(modes, 0o600)
    assert {"recrawl.db", "all.ndjson"} <= modes.keys()
