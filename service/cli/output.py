"""Output of commands: tables for people on a terminal, JSON for programs elsewhere."""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from itertools import islice
from typing import Annotated, Any

import typer

from service.model.words import number

AsJson = Annotated[
    bool,
    typer.Option("--json", help="As JSON, for programs; the default of lists without a terminal"),
]
BLOCK = 200
"""Rows of one table; a longer list is several, so that it begins at once."""
FOLDED = 30
"""Width above which a text may be folded, characters."""
BETWEEN = 3
"""Characters between two columns."""
HEADS = {
    "asked_rate": "due a day",
    "change_rate": "changes a day",
    "crawl_rate": "crawls a day",
    "delay_s": "delay, s",
    "interval": "interval, days",
    "n_first": "first crawls",
}
"""Heads of fields whose name has no unit, or needs one."""
EDGES = 2
"""Characters at both sides of a table."""


def on_terminal() -> bool:
    """Return whether people read the output."""
    return sys.stdout.isatty()


def echo_lines(
    items: Iterable[Any], *names: str, as_json: bool = False, empty: str = "nothing to list"
) -> None:
    """Print items: a line of JSON each, or on a terminal a table of the named fields.

    A name such as `load.n_pages` is a field of a field. `empty` is the sentence for a list without
    items, with the next step.
    """
    from msgspec import to_builtins

    rows = map(to_builtins, items)
    if as_json or not on_terminal():
        for row in rows:
            typer.echo(json.dumps(row))
        return
    first = True
    while block := list(islice(rows, BLOCK)):
        _print_table(names, block)
        first = False
    if first:
        typer.echo(empty)


def echo_item(item: Any, *, as_json: bool = False) -> None:
    """Print an answer: indented JSON, or on a terminal a line for each field."""
    from msgspec import to_builtins
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    value = to_builtins(item)
    if as_json or not on_terminal():
        typer.echo(json.dumps(value, indent=2))
        return
    view = Table.grid(padding=(0, 2))
    for name, cell in _fields(value):
        if cell:
            view.add_row(Text(name, "bold"), Text(cell))
    Console().print(view)


def echo_act(answer: Any, sentence: str, *, as_json: bool) -> None:
    """Print what an act has done: a sentence, also for programs, or JSON if it is asked for."""
    if as_json:
        echo_item(answer, as_json=True)
    else:
        typer.echo(sentence)


def _print_table(names: tuple[str, ...], rows: list[Any]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    cells = {name: [shown(_field(row, name)) for row in rows] for name in names}
    # columns without a value take room from the others
    some = {name: texts for name, texts in cells.items() if any(texts)}
    console, view = Console(), Table(box=box.SIMPLE_HEAD, pad_edge=False)
    wanted = {name: _widths(_head(name), texts) for name, texts in some.items()}
    chosen = fitting(wanted, console.width)
    for name, width in chosen.items():
        view.add_column(_head(name), overflow="fold", width=width)
    for texts in zip(*(some[name] for name in chosen), strict=True):
        view.add_row(*map(Text, texts))
    console.print(view)
    if left_out := [_head(name) for name in some if name not in chosen]:
        console.print(Text(f"no room for {', '.join(left_out)}: widen the terminal, or --json"))


def _head(name: str) -> str:
    """Return the head of a field.

    >>> _head("load.n_pages"), _head("crawl_rate"), _head("last_crawl_at")
    ('pages', 'crawls a day', 'last crawl at')
    """
    field = name.rpartition(".")[2]
    return HEADS.get(field, field.removeprefix("n_").replace("_", " "))


def _widths(head: str, texts: list[str]) -> tuple[int, int]:
    """Return the width in which a column can be read, and that in which nothing is folded."""
    longest = max(map(len, texts), default=0)
    return max(min(longest, FOLDED), *map(len, head.split())), max(longest, len(head))


def fitting(wanted: Mapping[str, tuple[int, int]], width: int) -> dict[str, int]:
    """Return the columns that fit beside the ones before them, with their widths.

    >>> fitting({"url": (30, 50), "state": (6, 6), "at": (20, 20), "rate": (5, 10)}, 60)
    {'url': 36, 'state': 6, 'rate': 10}
    """
    chosen: dict[str, int] = {}
    room = width - EDGES
    for name, (least, _) in wanted.items():
        between = BETWEEN if chosen else 0
        if not chosen or least + between <= room:
            chosen[name] = least
            room -= least + between
    for name in reversed(chosen):
        more = max(min(wanted[name][1] - chosen[name], room), 0)
        chosen[name] += more
        room -= more
    return chosen


def _field(row: Any, name: str) -> Any:
    """Return a field of a row, or of a field of it; None where there is none."""
    for part in name.split("."):
        row = row.get(part) if isinstance(row, Mapping) else None
    return row


def _fields(value: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """Yield the fields of an answer with their texts; fields of fields have both names."""
    for name, field in value.items():
        if isinstance(field, Mapping) and field:
            yield from _fields(field, f"{before}{name} ")
        else:
            yield f"{before.replace('_', ' ')}{_head(name)}", shown(field)


def shown(value: Any) -> str:
    """Return a value for people.

    >>> [shown(v) for v in (None, True, 1234567, 0.123456, ["a", "b"], "2026-05-01T12:00:00.5Z")]
    ['', 'yes', '1,234,567', '0.123', 'a, b', '2026-05-01 12:00:00Z']
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return number(value)
    if isinstance(value, list):
        return ", ".join(map(shown, value))
    if isinstance(value, Mapping):
        some = {_head(name): each for name, each in value.items() if each is not None}
        return ", ".join(f"{name}: {shown(each)}" for name, each in some.items()) or "none"
    return "" if value is None else _instant(str(value))


def _instant(text: str) -> str:
    """Return an instant to the second; any other text as it is."""
    if not text.endswith("Z"):
        return text
    try:
        return f"{datetime.fromisoformat(text):%Y-%m-%d %H:%M:%SZ}"
    except ValueError:
        return text
