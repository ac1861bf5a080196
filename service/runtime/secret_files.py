"""Secrets in files: `RECRAWL_API_KEYS_FILE` names a file with the value of `RECRAWL_API_KEYS`."""

from collections.abc import Collection, Mapping
from pathlib import Path

from service.model.errors import InvalidSettings
from service.model.quotes import unquoted

SUFFIX = "_FILE"
MAX_BYTES = 1_000_000
"""Maximum size of such a file, bytes; a device such as /dev/zero has no end."""


def from_files(names: Collection[str], variables: Mapping[str, str]) -> dict[str, str]:
    """Return the values of the variables among `names` that are in files, by their names.

    A variable that is empty counts as unset, as in Compose.

    Raises
    ------
    InvalidSettings
        A variable is set in both ways, or its file cannot be read. The error shows no content.
    """
    files = {name: unquoted(variables.get(f"{name}{SUFFIX}", "").strip()) for name in names}
    for name, path in files.items():
        if path and variables.get(name):
            raise InvalidSettings(f"{name} and {name}{SUFFIX} are both set; unset one of them")
    return {name: content_of(path, f"{name}{SUFFIX}") for name, path in files.items() if path}


def content_of(path: str, variable: str) -> str:
    """Return the line of a file without the newline at its end; raise `InvalidSettings`."""
    # a relative path may be the secret itself, by mistake
    place = f"{variable}: the file {path}" if Path(path).is_absolute() else f"{variable}: its file"
    try:
        with Path(path).open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        remedy = "name a file that holds the secret, not the secret itself"
        raise InvalidSettings(f"{place} does not exist; {remedy}") from None
    except IsADirectoryError:
        raise InvalidSettings(f"{place} is a directory; name a file in it") from None
    except PermissionError:
        raise InvalidSettings(f"{place} cannot be read by this user; change its mode") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "the path is not valid"
        raise InvalidSettings(f"{place} cannot be read: {reason}; name another file") from None
    if len(content) > MAX_BYTES:
        raise InvalidSettings(f"{place} has more than {MAX_BYTES:,} bytes; name another file")
    try:
        text = content.decode("utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError:
        raise InvalidSettings(f"{place} is not UTF-8; save it as UTF-8") from None
    if not text.strip():
        raise InvalidSettings(f"{place} is empty; write the secret into it")
    if "\n" in text or "\r" in text or "\0" in text:
        raise InvalidSettings(f"{place} has more than one line; keep the secret on one line")
    return text
