"""Arguments of the form NAME=VALUE, each name at most once."""

from collections.abc import Iterable, Iterator

import typer


def pairs(texts: Iterable[str], hint: str) -> Iterator[tuple[str, str]]:
    """Yield the names and the values of arguments; `hint` is their name in errors.

    Raises
    ------
    typer.BadParameter
        An argument is no pair, or a name stands more than once: the last one alone would hold.
    """
    seen: set[str] = set()
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise typer.BadParameter(f"{text!r} is not NAME=VALUE", param_hint=hint)
        if name in seen:
            once = f"{name}= stands more than once; send it once, or run the command for each value"
            raise typer.BadParameter(once, param_hint=hint)
        seen.add(name)
        yield name, value
