"""Lines of a file .env: which are read, and which are refused without showing a value."""

import re
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import NamedTuple

from dotenv import dotenv_values
from dotenv.parser import parse_stream

from service.model.errors import InvalidSettings

ENCODING = "utf-8-sig"
"""UTF-8, with or without the mark that editors of Windows write at the start of a file."""
NAME = re.compile(r"\s*(?:export\s+)?['\"]?(\w+)['\"]?\s*(=?)")
"""Name of a variable at the start of a line, and the sign behind it."""
NEWLINE = re.compile(r"\r\n|\n|\r")
SHAPE = "write NAME=VALUE, or # before a comment"


class Statement(NamedTuple):
    """One variable of the file, which may have several lines where its value is in quotes."""

    number: int
    """Number of its first line, from 1."""
    text: str
    name: str
    has_value: bool
    """True where `=` follows the name."""
    is_read: bool
    """False where the reader of .env files can make nothing of it."""


def values_of(path: Path, prefix: str) -> dict[str, str]:
    """Return the values of a file by name in capitals; none without a file.

    Names of other programs are left alone. A name alone is one of theirs that Docker takes from
    the environment.

    Raises
    ------
    InvalidSettings
        The file cannot be read, or a line has another shape than NAME=VALUE. The error has the
        number of the line, and nothing behind the name.
    """
    for statement in statements(path):
        check(statement, path, prefix)
    if not path.is_file():
        return {}
    values = dotenv_values(path, encoding=ENCODING)
    return {name.upper(): value for name, value in values.items() if value is not None}


def statements(path: Path) -> Iterator[Statement]:
    """Yield the variables of a file, none without a file; raise `InvalidSettings`."""
    for binding in parse_stream(StringIO(text_of(path))):
        text = binding.original.string.lstrip()
        if not text or text.startswith("#"):
            continue
        before = binding.original.string.removesuffix(text)
        yield Statement(
            number=binding.original.line + len(NEWLINE.findall(before)),
            text=text,
            name=binding.key or "",
            has_value=binding.value is not None,
            is_read=not binding.error,
        )


def text_of(path: Path) -> str:
    """Return the text of a file, "" without a file; raise `InvalidSettings`."""
    try:
        if path.is_dir():  # as Docker makes of a mounted file that does not exist
            raise InvalidSettings(f"{path} is a directory; remove it, or put a file in its place")
        text = path.read_bytes().decode(ENCODING) if path.is_file() else ""
    except UnicodeDecodeError as error:
        raise InvalidSettings(f"{path} is not UTF-8; save the file as UTF-8") from error
    except OSError as error:
        raise InvalidSettings(
            f"{path} cannot be read: {error.strerror}; let this user read it, or remove it"
        ) from error
    if "\0" in text:  # UTF-16 without a mark
        raise InvalidSettings(f"{path} is not UTF-8; save the file as UTF-8")
    return text


def check(statement: Statement, path: Path, prefix: str) -> None:
    """Raise `InvalidSettings` for a line of another shape; the rest may be a secret."""
    place = f"line {statement.number} of {path}"
    match = NAME.match(statement.text)
    name = match[1] if match else ""
    if match is not None and name.upper().startswith(prefix):
        if match[2] != "=":
            raise InvalidSettings(f"{place} names {name} without a value; write {name}=VALUE")
        if not statement.is_read or statement.name != name:
            raise InvalidSettings(
                f"{place} cannot be read where it sets {name}; is a quote left open, or is text "
                f"behind the quote? Write {name}=VALUE"
            )
    elif not statement.is_read:
        raise InvalidSettings(f"{place} sets no variable; {SHAPE}")
    elif not is_name(statement.name) and not statement.has_value:
        raise InvalidSettings(f"{place} has no = and is no name; {SHAPE}")
    elif not is_name(statement.name) and prefix.rstrip("_") in statement.name.upper():
        raise InvalidSettings(f"{place} has other characters before the name; {SHAPE}")
    for number, line in enumerate(NEWLINE.split(statement.text)[1:], statement.number + 1):
        inner = NAME.match(line)
        if inner is not None and inner[1].upper().startswith(prefix) and inner[2]:
            raise InvalidSettings(
                f"line {number} of {path} sets {inner[1]} within a value that begins on line "
                f"{statement.number}; is a quote left open?"
            )


def is_name(text: str) -> bool:
    """Return whether a text can be the name of a variable.

    >>> [is_name(text) for text in ("A_1", "a-b", "$env:A", "")]
    [True, False, False, False]
    """
    return text.isascii() and text.isidentifier()
