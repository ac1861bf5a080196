"""The PoliteCrawling data set: 14 weeks of Bing's crawls of 18.5 M pages, as five TSV files.

The README and the code of github.com/microsoft/Optimal-Freshness-Crawl-Scheduling define these
files. Every line is data, without a header; columns are separated by tabs:

- `url_urlid_hostid.txt`: URL, URL_ID, Host_ID
- `host_hostid_isconstrained.txt`: Host_URL, Host_ID, 1 where the host limits Bing's crawler
- `urlid_imp.txt`: URL_ID, importance score (an integer; the higher, the more important)
- `urlid_offset_history.txt`: URL_ID, days from the start of the collection to the page's first
  crawl, and `[[days since the previous crawl, 1 if changed else 0], ...]`
- `urlid_chrate_compl_obs_hist.txt`: URL_ID, changes per day; the pages (about 4 %) whose
  sitemaps announce every change

The data itself was not available, so this module assumes: UTF-8; any order of rows in each file;
ids unique within a file but neither dense nor sorted; a score of 0 is possible and counts as the
least importance. Names may end in .tsv or have no ending, and files may be .gz. The first line may
be a header, whose id is not a number. The hosts' file is not needed: the URL of a page contains its
host, and the import ignores the politeness of hosts.
"""

import gc
import gzip
import itertools
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Annotated, Any, Literal, NamedTuple

import msgspec
import numpy as np

from service.model.arrays import Bools, Floats, Ints
from service.model.errors import UnreadableFile

URLS = "url_urlid_hostid"
IMPORTANCES = "urlid_imp"
HISTORIES = "urlid_offset_history"
CHANGE_RATES = "urlid_chrate_compl_obs_hist"
ENDINGS = (".txt", ".tsv", "", ".txt.gz", ".tsv.gz", ".gz")
BLOCK = 10_000
HISTORY_BLOCK = 2_000
URL_BLOCK = 200_000
"""URLs in a block, inserted in the order of their keys."""

Id = Annotated[int, msgspec.Meta(ge=0, lt=10**18)]
Amount = Annotated[float, msgspec.Meta(ge=0)]
Crawl = tuple[float, Literal[0, 1]]


class RowBlock(NamedTuple):
    """Some rows of a file as columns, and the lines without usable content."""

    columns: Any
    lines: Ints
    skipped: list[tuple[int, str]]
    last_line: int
    bytes_read: int
    """Bytes of the file read so far, compressed bytes for a .gz file."""


class Urls(NamedTuple):
    """(N,) pages with their names in the data set."""

    url_id: Ints
    url: list[str]


class UrlNumbers(NamedTuple):
    """(N,) numbers, one for each URL_ID."""

    url_id: Ints
    number: Floats


class ById(NamedTuple):
    """Numbers, one for each URL_ID, by ascending id."""

    url_id: Ints
    value: Any

    def get(self, url_id: Ints, missing: Any) -> Any:
        """Return the values of (N,) ids, `missing` for an absent id."""
        if not len(self.url_id):
            return np.full(len(url_id), missing)
        at = np.minimum(np.searchsorted(self.url_id, url_id), len(self.url_id) - 1)
        return np.where(self.url_id[at] == url_id, self.value[at], missing)


class Histories(NamedTuple):
    """(N,) pages with the crawls of all pages concatenated."""

    url_id: Ints
    first: Floats
    """Time from the start of the collection to the first crawl, days."""
    n_crawls: Ints
    """Number of crawls after the first one."""
    interval: Floats
    """(sum n_crawls,) time since the page's previous crawl, days."""
    changed: Bools
    """(sum n_crawls,) whether the crawl found a change."""


def find_table(folder: Path, name: str) -> Path:
    """Return the path of one of the five files.

    Raises
    ------
    UnreadableFile
        The file is missing, or there are several versions of it.
    """
    paths = [path for ending in ENDINGS if (path := folder / f"{name}{ending}").is_file()]
    if not paths:
        raise UnreadableFile(
            f"{folder}: no {name}.txt (or .tsv, or either as .gz); "
            "name the folder of the unpacked PoliteCrawling data set"
        )
    if len(paths) > 1:
        raise UnreadableFile(f"{folder}: keep only one of {', '.join(path.name for path in paths)}")
    return paths[0]


def read_urls(path: Path, block: int = URL_BLOCK) -> Iterator[RowBlock]:
    """Yield `Urls` in blocks of rows."""
    yield from _read(path, block, _URLS)


def read_histories(path: Path, block: int = HISTORY_BLOCK) -> Iterator[RowBlock]:
    """Yield `Histories` in blocks of rows."""
    yield from _read(path, block, _HISTORIES)


def read_numbers(path: Path) -> tuple[ById, list[tuple[int, str]]]:
    """Return a file of one number per URL_ID (importances or change rates), and unusable lines.

    Raises
    ------
    UnreadableFile
        An id appears twice, so that its number is ambiguous.
    """
    ids, values = [np.zeros(0, np.int64)], [np.zeros(0)]
    skipped: list[tuple[int, str]] = []
    for part in _read(path, BLOCK, _NUMBERS):
        ids.append(part.columns.url_id)
        values.append(part.columns.number)
        skipped += part.skipped
    return by_id(path, np.concatenate(ids), np.concatenate(values)), skipped


def by_id(path: Path, url_id: Ints, value: Any) -> ById:
    """Return values sorted by id; raise `UnreadableFile` for a duplicate id."""
    order = np.argsort(url_id, kind="stable")
    url_id = url_id[order]
    if (twice := url_id[1:] == url_id[:-1]).any():
        raise UnreadableFile(f"{path}: URL_ID {url_id[1:][twice][0]} appears twice; keep one line")
    return ById(url_id, value[order])


class _Table(NamedTuple):
    """Functions that parse one file."""

    parse: Callable[[bytes], Any]
    """Function from a line to a row; raises ValueError."""
    gather: Callable[[list[Any]], Any]
    """Function from rows to columns."""
    decoder: msgspec.json.Decoder[Any] | None = None
    """Decoder of many lines at once, for lines that are JSON except for their tabs."""


def _read(path: Path, block: int, table: _Table) -> Iterator[RowBlock]:
    with path.open("rb") as raw:
        content: Any = gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw
        last_line = 0
        try:
            while lines := list(itertools.islice(content, block)):
                with _collecting_no_garbage():
                    rows = _rows(lines, last_line + 1, table, raw)
                yield rows
                last_line = rows.last_line
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise UnreadableFile(f"{path}: the gzip is broken or cut off: {error}") from error


@contextmanager
def _collecting_no_garbage() -> Iterator[None]:
    """Disable garbage collection, because a block creates 100,000 short-lived tuples."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _rows(lines: list[bytes], first: int, table: _Table, raw: IO[bytes]) -> RowBlock:
    """Parse all lines at once, or one by one if that fails."""
    last = first + len(lines) - 1
    if table.decoder is not None:
        text = b"],[".join(lines).replace(b"\t", b",")
        with suppress(msgspec.DecodeError, ValueError):
            rows = table.decoder.decode(b"[[%s]]" % text)
            if len(rows) == len(lines):
                return RowBlock(
                    table.gather(rows), np.arange(first, last + 1), [], last, raw.tell()
                )
    rows, good, skipped = [], [], []
    for number, line in enumerate(lines, first):
        try:
            row = table.parse(line.strip())
        except (ValueError, msgspec.DecodeError) as error:
            if line.strip() and not (number == 1 and _is_header(line)):
                skipped.append((number, str(error)))
        else:
            rows.append(row)
            good.append(number)
    return RowBlock(table.gather(rows), np.array(good, np.int64), skipped, last, raw.tell())


def _is_header(line: bytes) -> bool:
    return not any(cell.strip()[:1].isdigit() for cell in line.split(b"\t"))


def _url(line: bytes) -> tuple[int, str]:
    cells = line.rsplit(b"\t", 2)
    if len(cells) != 3 or not cells[2].isdigit():  # noqa: PLR2004
        raise ValueError("not URL, URL_ID and Host_ID, separated by tabs")
    return _id(cells[1]), cells[0].decode()


def _number(line: bytes) -> tuple[int, float]:
    cells = line.split(b"\t")
    if len(cells) != 2:  # noqa: PLR2004
        raise ValueError("not URL_ID and a number, separated by a tab")
    return _id(cells[0]), _amount(cells[1])


_CRAWLS = msgspec.json.Decoder(list[Crawl])


def _history(line: bytes) -> tuple[int, float, list[Crawl]]:
    cells = line.split(b"\t")
    if len(cells) != 3:  # noqa: PLR2004
        raise ValueError("not URL_ID, an offset and a history, separated by tabs")
    crawls = _CRAWLS.decode(cells[2])
    if any(interval < 0 for interval, _ in crawls):
        raise ValueError("the history goes back in time")
    return _id(cells[0]), _amount(cells[1]), crawls


def _id(cell: bytes) -> int:
    if not cell.isdigit() or len(cell) > 18:  # noqa: PLR2004
        raise ValueError(f"URL_ID is not a whole number: {cell[:40]!r}")
    return int(cell)


def _amount(cell: bytes) -> float:
    try:
        amount = float(cell)
    except ValueError:
        amount = np.nan
    if not 0 <= amount < np.inf:
        raise ValueError(f"not a number of at least 0: {cell[:40]!r}")
    return amount


def _gather_urls(rows: list[tuple[int, str]]) -> Urls:
    return Urls(np.array([url_id for url_id, _ in rows], np.int64), [url for _, url in rows])


def _gather_numbers(rows: list[tuple[int, float]]) -> UrlNumbers:
    flat = np.array(rows, [("url_id", np.int64), ("number", np.float64)])
    return UrlNumbers(flat["url_id"], flat["number"])


def _gather_histories(rows: list[tuple[int, float, list[Crawl]]]) -> Histories:
    """Return the histories of some pages, concatenated."""
    n_crawls = np.array([len(crawls) for _, _, crawls in rows], np.int64)
    each = itertools.chain.from_iterable
    flat = np.fromiter(each(each(crawls for _, _, crawls in rows)), np.float64, 2 * n_crawls.sum())
    if (flat < 0).any():
        raise ValueError("a history goes back in time")
    return Histories(
        url_id=np.array([url_id for url_id, _, _ in rows], np.int64),
        first=np.array([first for _, first, _ in rows], np.float64),
        n_crawls=n_crawls,
        interval=flat[::2].copy(),
        changed=flat[1::2] == 1,
    )


_URLS = _Table(_url, _gather_urls)
_NUMBERS = _Table(_number, _gather_numbers, msgspec.json.Decoder(list[tuple[Id, Amount]]))
_HISTORIES = _Table(
    _history, _gather_histories, msgspec.json.Decoder(list[tuple[Id, Amount, list[Crawl]]])
)

TABLES = (URLS, IMPORTANCES, HISTORIES, CHANGE_RATES)
"""Files that an import reads."""
