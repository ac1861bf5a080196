"""Lines of .env: those that Docker and systemd take, and those that no error may show."""

import pytest

from service.model.errors import InvalidSettings
from service.runtime.settings import Settings, read_settings

SECRET = "s3cret-do-not-show-it"


@pytest.fixture
def env_file(tmp_path, monkeypatch):
    path = tmp_path / ".env"
    monkeypatch.setitem(Settings.model_config, "env_file", path)
    return path


def keys():
    return [one.get_secret_value() for one in read_settings().api_keys]


def refusal(path):
    with pytest.raises(InvalidSettings) as refused:
        read_settings()
    sentence = str(refused.value)
    assert SECRET not in sentence
    assert refused.value.__suppress_context__ or SECRET not in repr(refused.value.__context__)
    return sentence.replace(str(path), ".env")


@pytest.mark.parametrize(
    "text",
    [
        f"RECRAWL_API_KEYS={SECRET}",
        f"RECRAWL_API_KEYS={SECRET}\r\nRECRAWL_BANDWIDTH=\r\n",
        f"\ufeffRECRAWL_API_KEYS={SECRET}\n",
        f"\ufeff# ours\r\n\r\n  export RECRAWL_API_KEYS = {SECRET}  \r\n",
        f'RECRAWL_API_KEYS="{SECRET}"\n',
        f"RECRAWL_API_KEYS='{SECRET}' # ours\n",
        f"recrawl_api_keys={SECRET}\n",
        f"RECRAWL_API_KEYS={SECRET}\nHOME\nmy.var=1\nPS1='a\nb'\n",
    ],
)
def test_a_line_is_read_in_each_of_its_usual_shapes(env_file, text):
    env_file.write_bytes(text.encode())
    assert keys() == [SECRET]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (
            f"RECRAWL_API_KEYS: {SECRET}",
            "names RECRAWL_API_KEYS without a value; write RECRAWL_API_KEYS=VALUE",
        ),
        (
            "RECRAWL_API_KEYS",
            "names RECRAWL_API_KEYS without a value; write RECRAWL_API_KEYS=VALUE",
        ),
        (f'RECRAWL_API_KEYS="{SECRET}', "cannot be read where it sets RECRAWL_API_KEYS; is a"),
        (f'RECRAWL_API_KEYS="{SECRET}" {SECRET}', "cannot be read where it sets RECRAWL_API_KEYS;"),
        (f'"RECRAWL_API_KEYS"={SECRET}', "cannot be read where it sets RECRAWL_API_KEYS;"),
        (f"- RECRAWL_API_KEYS={SECRET}", "sets no variable; write NAME=VALUE, or # before"),
        (f"set RECRAWL_API_KEYS={SECRET}", "sets no variable; write NAME=VALUE, or # before"),
        (f"$env:RECRAWL_API_KEYS={SECRET}", "has other characters before the name; write NAME="),
        (f"RECRAWL-API-KEYS={SECRET}", "has other characters before the name; write NAME="),
        (f"the key is {SECRET}", "sets no variable; write NAME=VALUE, or # before"),
        (SECRET, "has no = and is no name; write NAME=VALUE, or # before"),
    ],
)
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_line_of_another_shape_is_refused_by_its_number(env_file, line, sentence, mark, newline):
    lines = [f"{mark}# ours", "", "OTHER='a", "b'", line, "RECRAWL_BANDWIDTH=5", ""]
    env_file.write_bytes(newline.join(lines).encode())
    assert refusal(env_file).startswith(f"line 5 of .env {sentence}")


def test_a_setting_within_the_value_of_another_is_not_lost(env_file):
    env_file.write_text(f'OTHER="a\nRECRAWL_API_KEYS={SECRET}\nANOTHER="b"\n')
    assert refusal(env_file).startswith("line ")
    env_file.write_text(f'\nOTHER="a\nRECRAWL_API_KEYS={SECRET}\nANOTHER="\n')
    assert refusal(env_file) == (
        "line 3 of .env sets RECRAWL_API_KEYS within a value that begins on line 2; is a quote "
        "left open?"
    )


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_a_file_of_another_encoding_is_refused(env_file, encoding):
    env_file.write_bytes(f"RECRAWL_API_KEYS={SECRET}\n".encode(encoding))
    assert refusal(env_file) == ".env is not UTF-8; save the file as UTF-8"


def test_a_directory_in_place_of_the_file_is_refused(env_file):
    env_file.mkdir()
    assert refusal(env_file) == ".env is a directory; remove it, or put a file in its place"


def test_a_file_of_another_user_is_refused(env_file, monkeypatch):
    env_file.write_text(f"RECRAWL_API_KEYS={SECRET}\n")

    def denied(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(type(env_file), "read_bytes", denied)  # root may read all files
    expected = ".env cannot be read: Permission denied; let this user read it, or remove it"
    assert refusal(env_file) == expected
