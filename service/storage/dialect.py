"""The interface through which statements that both databases share run.

Statements are text with parameters `%(name)s`. A value is None, a bool, a number, text, bytes or an
aware datetime. A dict or tuple is for a JSON column; an array has ids or texts.

Words in braces differ between the databases:

| word | |
| --- | --- |
| `{double}` | converts the number before it to eight bytes: products of four bytes overflow |
| `{greatest}`, `{least}` | functions |
| `{microsecond}` | span to add to an instant |
| `{in_hosts}` | condition that a value is in the array `hosts` |
| `{among_ids}` | condition that a value is in the array `ids` |
| `{ids}`, `{names}` | the array of this name as a table with the column `value` |
| `{lock_rows}` | end of a SELECT that locks its rows until the transaction ends |
| `{lock_free_rows}` | the same for the rows that no other transaction has locked |
| `{days_since}` | days from `pings_since` to `%(now)s` |
| `{log_of_page}` | condition that finds a page's entries of the log without a scan |
| `{log_of_any}` | condition beside one on `page_id`, for entries of several pages |
| `{log_since}` | the same for entries since `since` |
| `{log}` | the log in the database, with the days that are set aside for the archive |
| `{joined_tags}` | the tags of a group in one text, separated by spaces |
| `{of_host_after}`, `{of_host_order}` | walk along the index of a host's pages from `after` |
| `{schedule_of: name, page_id, epoch}` | LEFT JOIN of a page's row in a schedule, under a name |
| `{schedule_between: name, page_id, epoch}` | the same for pages between `after` and `last` |
| `{scheduled_ids: epoch}` | the pages of a schedule between `after` and `last` as a table |
| `{last_scheduled: epoch}` | the last page of a schedule |
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from service.archive.log_archive import LogArchive
from service.model.arrays import Ints, distinct
from service.model.calendars import ALWAYS_OPEN, Calendars
from service.model.columns import DueColumns
from service.model.errors import ArchiveUnavailable
from service.storage.clock import Clock
from service.storage.topics import Topic

Arrays = dict[str, NDArray[np.generic]]
WORD = re.compile(r"\{(\w+)(?:: ([^{}]+))?\}")

HOST_QUEUE = "coalesce(-hosts.group_id, hosts.host_id)"
"""Host queue of a page: that of its host, or of its host's group."""


IS_HELD = "CASE WHEN held > 0 THEN 1 ELSE 0 END"
"""Expression of `DueColumns.held`."""

HOSTS_OF = """
SELECT page_id, host_id FROM pages WHERE page_id IN (SELECT value FROM {ids}) ORDER BY page_id
"""

DueT = TypeVar("DueT", bound=DueColumns)


class Rows(Protocol):
    """The answer to a statement."""

    @property
    def rowcount(self) -> int:
        """Rows read or written."""

    def __iter__(self) -> Iterator[Any]: ...


EPOCHS_KEPT = 2
"""Published epochs whose schedule is kept, so that a reader of the last one can finish."""
NUMBER_IN_FORCE = "SELECT max(epoch) FROM epochs WHERE status = 'published'"
KEPT = f"""
SELECT epoch FROM epochs WHERE status = 'published' ORDER BY epoch DESC LIMIT {EPOCHS_KEPT}
"""


class Subject(ABC):
    """A part of a transaction, with what all parts know of the transaction."""

    clock: Clock
    """The store's time, as this process knows it."""
    archive: LogArchive | None = None
    """The archive of the settings; None: entries older than the retention are deleted."""
    holds_new: bool = False
    """True where new pages wait until they are worth a first crawl (`budget.admission`)."""

    calendars: Calendars = ALWAYS_OPEN
    """When hosts may be crawled."""

    @abstractmethod
    def hosts_of(self, page_id: Ints) -> Ints:
        """Return the host_id of each of (N,) pages; 0: no such page."""

    def with_hours(self, pages: DueT) -> DueT:
        """Return pages with the open hours of their hosts."""
        if not self.calendars.in_use:
            return pages
        host_id = getattr(pages, "host_id", None)
        host_id = self.hosts_of(pages.page_id) if host_id is None else host_id
        return replace(pages, hours=self.calendars.of_hosts(host_id, self.clock()))

    def now(self) -> datetime:
        """Return the store's time: on Postgres that of the database, read in this transaction."""
        return self.clock()

    def foresee(self, *reads: Callable[[], object]) -> None:  # noqa: B027 - a question costs no trip
        """Send the first statement of each read, so that one exchange answers all of them.

        The reads are called again for their results, in this transaction, with the same arguments.
        A read does not see what this transaction writes after the question.
        """

    def ring(self, topic: Topic) -> None:  # noqa: B027 - nobody waits for a store in memory
        """Ring for a topic in all processes, once this transaction is committed."""

    @abstractmethod
    def number_in_force(self) -> int:
        """Return the number of the newest published epoch, 0 before the first."""

    def needed_archive(self) -> LogArchive:
        """Return the archive that has old days; raise `ArchiveUnavailable` without one."""
        if self.archive is None:
            raise ArchiveUnavailable(
                "days of the log or the feed are in an archive, and RECRAWL_ARCHIVE is not set; "
                "set it to the path or address of these files"
            )
        return self.archive


class Dialect(Subject):
    """A transaction that runs text, on either database."""

    @abstractmethod
    def run(self, statement: str, **parameters: Any) -> Rows:
        """Return the answer to one statement; values are as the database returns them."""

    @abstractmethod
    def read(self, statement: str, **parameters: Any) -> list[dict[str, Any]]:
        """Return rows as dicts by column; instants are aware, JSON is decoded."""

    @abstractmethod
    def ids(self, statement: str, **parameters: Any) -> Ints:
        """Return the ids that a SELECT reads, in its order."""

    @abstractmethod
    def arrays(self, statement: str, dtypes: Mapping[str, str], **parameters: Any) -> Arrays:
        """Return the columns that a SELECT without NULL reads, by name, in its order of rows.

        `dtypes` has the numpy type of each column; blobs have one width, such as "V72".
        """

    def scalar(self, statement: str, **parameters: Any) -> Any:
        """Return the first value of the first row; None without a row."""
        row = next(iter(self.run(statement, **parameters)), None)
        return None if row is None else row[0]

    @override
    def hosts_of(self, page_id: Ints) -> Ints:
        rows = self.arrays(HOSTS_OF, {"page_id": "i8", "host_id": "i8"}, ids=distinct(page_id))
        if not len(rows["page_id"]):
            return np.zeros(len(page_id), np.int64)
        at = np.minimum(rows["page_id"].searchsorted(page_id), len(rows["page_id"]) - 1)
        return np.where(rows["page_id"][at] == page_id, rows["host_id"][at], 0)

    def kept(self) -> set[int]:
        """Return the published epochs whose schedule is kept."""
        return {epoch for (epoch,) in self.run(KEPT)}

    def get_meta(self, name: str) -> str:
        """Return one entry of `meta`; "" without one."""
        return self.scalar(GET_META, name=name) or ""

    def put_meta(self, name: str, value: str) -> None:
        """Write one entry of `meta`."""
        self.run(PUT_META, name=name, value=value)

    def add_meta(self, name: str, value: str) -> None:
        """Write one entry of `meta`, unless there is one."""
        self.run(ADD_META, name=name, value=value)


WEBHOOKS_HELD = "webhooks_held"
"""Name of the entry of `meta` that holds all deliveries: the time of the restore."""
GET_META = "SELECT value FROM meta WHERE name = %(name)s"
PUT_META = """
INSERT INTO meta (name, value) VALUES (%(name)s, %(value)s)
ON CONFLICT (name) DO UPDATE SET value = excluded.value
"""
ADD_META = """
INSERT INTO meta (name, value) VALUES (%(name)s, %(value)s) ON CONFLICT (name) DO NOTHING
"""


def assignments(names: Iterable[str]) -> str:
    """Return the SET list that writes parameters into the columns of the same name.

    >>> assignments(["importance", "max_crawl_rate"])
    'importance = %(importance)s, max_crawl_rate = %(max_crawl_rate)s'
    """
    return ", ".join(f"{name} = %({name})s" for name in names)


def worded(statement: str, words: Mapping[str, str]) -> str:
    """Return a statement with a database's own words.

    >>> worded("SELECT {greatest}(a, b)", {"greatest": "max"})
    'SELECT max(a, b)'
    >>> worded("{least_of: a, b}", {"least_of": "min({0}, {1})"})
    'min(a, b)'
    """
    return WORD.sub(partial(_word, words), statement)


def _word(words: Mapping[str, str], match: re.Match[str]) -> str:
    word = words[match[1]]
    return word if match[2] is None else word.format(*match[2].split(", "))


def all_of(conditions: Iterable[str]) -> str:
    """Return the condition that all these conditions hold, each in its own brackets.

    >>> all_of(["a = 1", "b OR c"])
    '(a = 1) AND (b OR c)'
    >>> all_of([])
    'true'
    """
    return " AND ".join(f"({condition})" for condition in conditions) or "true"
