"""CSV files of users, read whole into columns; errors contain file, line and remedy."""

import csv
import gzip
import io
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path

import numpy as np

from recrawl_lab.errors import InvalidTrace
from service.model.arrays import Bools, Floats

GZIP = b"\x1f\x8b"
DAMAGED = (EOFError, OSError, zlib.error)
"""Exceptions of a damaged gzip."""
LEAST_IMPORTANCE, MOST_IMPORTANCE = 1e-9, 1e9
"""Bounds of importance in the service."""
MOST_COUNTED = 2**53
FIRST_AFTER = 1e11
"""Least instant that is not in seconds, seconds since 1970: the year 5138."""
COUNTED_IN = ((1e14, "milliseconds", 3), (1e17, "microseconds", 6), (np.inf, "nanoseconds", 9))


@dataclass(frozen=True, slots=True)
class TextTable:
    """Columns of a CSV file with the text of each cell."""

    path: Path
    column: dict[str, list[str]]
    line: list[int]
    """Last line of each row."""

    def __len__(self) -> int:
        return len(self.line)

    def refuse(self, bad: Bools, why: Callable[[int], str]) -> None:
        """Raise `InvalidTrace` at the first bad row; `why` returns the reason for a row.

        Parameters
        ----------
        bad
            (N,) mask of rows.
        """
        if bad.any():
            row = int(bad.argmax())
            raise InvalidTrace(f"{self.path}, line {self.line[row]}: {why(row)}")

    def numbers(self, name: str, unit: str = "") -> Floats:
        """Return (N,) finite numbers that are not negative."""
        cells = self.column[name]
        values = floats(cells)
        self.refuse(
            ~((values >= 0) & (values < np.inf)),
            lambda row: (
                f"{name} is {cells[row]!r}; write a finite number that is not negative{unit}"
            ),
        )
        return values

    def counts(self, name: str) -> Floats:
        """Return (N,) whole numbers that are not negative."""
        values = self.numbers(name)
        self.refuse(
            (values != np.floor(values)) | (values > MOST_COUNTED),
            lambda row: f"{name} is {self.column[name][row]!r}; write a whole number",
        )
        return values

    def seconds(self, name: str) -> Floats:
        """Return (N,) instants, seconds since 1970."""
        values = self.numbers(name, " (seconds since 1970)")
        self.refuse_late(name, values)
        return values

    def refuse_late(self, name: str, seconds: Floats) -> None:
        """Raise `InvalidTrace` for instants beyond the year 5138, whose unit is below a second."""

        def why(row: int) -> str:
            unit, digits = next(
                (unit, digits) for limit, unit, digits in COUNTED_IN if seconds[row] < limit
            )
            return (
                f"{name} is {self.column[name][row]!r}, which lies beyond the year 5138; instants "
                f"are seconds since 1970, and these look like {unit}: divide them by 1e{digits}"
            )

        self.refuse(seconds >= FIRST_AFTER, why)

    def importance(self) -> Floats:
        """Return (N,) weights within the bounds of the service."""
        cells = self.column["importance"]
        values = floats(cells)
        self.refuse(
            ~((values >= LEAST_IMPORTANCE) & (values <= MOST_IMPORTANCE)),
            lambda row: (
                f"importance is {cells[row]!r}; write a number from {LEAST_IMPORTANCE:g} to "
                f"{MOST_IMPORTANCE:g}"
            ),
        )
        return values


def read_csv(path: Path, required: tuple[str, ...], optional: tuple[str, ...] = ()) -> TextTable:
    """Read a CSV file with a header, plain or gzipped; ignore other columns and blank lines.

    Raises
    ------
    InvalidTrace
        No such file, not CSV in UTF-8, a missing or duplicate column, a line with too few or too
        many fields, or no line at all.
    """
    if not path.is_file():
        raise InvalidTrace(f"no file {path}; name a CSV file, plain or gzipped")
    rows: list[tuple[str, ...]] = []
    lines: list[int] = []
    try:
        names = _read(path, required, optional, rows, lines)
    except UnicodeDecodeError as error:
        raise InvalidTrace(
            f"{path}, line {_undecodable(path)}: {error.reason}; save the file as CSV in UTF-8"
        ) from error
    except (*DAMAGED, csv.Error) as error:
        raise InvalidTrace(
            f"{path}, after line {lines[-1] if lines else 1}: {error}; the file must be CSV in "
            "UTF-8, plain or gzipped"
        ) from error
    if not rows:
        raise InvalidTrace(f"{path}: no line after the header; a recording has at least one")
    columns = map(list, zip(*rows, strict=True))
    return TextTable(path, dict(zip(names, columns, strict=True)), lines)


def _read(
    path: Path,
    required: tuple[str, ...],
    optional: tuple[str, ...],
    rows: list[tuple[str, ...]],
    lines: list[int],
) -> list[str]:
    """Append the cells and line numbers of each row; return the names of the columns."""
    with path.open("rb") as file, io.TextIOWrapper(_content(file), "utf-8-sig", newline="") as text:
        reader = csv.reader(text, strict=True)
        header = [name.strip() for name in next(reader, [])]
        names = _columns(path, header, required, optional)
        take = itemgetter(*map(header.index, names))
        for cells in filter(None, reader):
            if len(cells) != len(header):
                raise InvalidTrace(
                    f"{path}, line {reader.line_num}: {len(cells)} fields, expected "
                    f"{len(header)}: {', '.join(header)}"
                )
            rows.append(take(cells))
            lines.append(reader.line_num)
    return names


def floats(cells: list[str]) -> Floats:
    """Return (N,) numbers, NaN for text that is not a number."""
    try:
        return np.fromiter(map(float, cells), np.float64, len(cells))
    except ValueError:
        return np.fromiter(map(_float, cells), np.float64, len(cells))


def _float(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return np.nan


def _content(file: io.BufferedReader) -> io.BufferedReader | gzip.GzipFile:
    """Return the content of a file, unpacked if it is gzip under any name."""
    return gzip.GzipFile(fileobj=file) if file.peek(2).startswith(GZIP) else file


def _undecodable(path: Path) -> int:
    """Return the first line that is not UTF-8, or the last line of a damaged file."""
    number = 1
    with path.open("rb") as file, suppress(*DAMAGED):
        for number, line in enumerate(_content(file), 1):  # noqa: B007  returned below
            if line.decode(errors="ignore").encode() != line:
                break
    return number


def _columns(
    path: Path, header: list[str], required: tuple[str, ...], optional: tuple[str, ...]
) -> list[str]:
    missing = [name for name in required if name not in header]
    if missing:
        first = ",".join(header)
        problem = f"{path}, line 1: no column {', '.join(missing)}; the first line must name the "
        problem += f"columns, among them {', '.join(required)}"
        if len(header) == 1 and any(mark in first for mark in ";\t|"):
            problem += f", with commas between them, and is {first!r}"
        raise InvalidTrace(problem)
    names = [*required, *(name for name in optional if name in header)]
    twice = [name for name in names if header.count(name) > 1]
    if twice:
        raise InvalidTrace(f"{path}, line 1: two columns {twice[0]}; rename or remove one of them")
    return names
