"""Pages in lists: filters, the columns of a list, tags and the changes of many pages."""

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.model.arrays import Codes, Columns, Floats, Instants, Ints
from service.model.columns import DueColumns
from service.model.domain import Observability


class Unfinished(NamedTuple):
    """Filter of pages whose last leases ended without a report."""

    least: int
    """Least number of such leases in a row."""
    now: datetime
    """Instant by which leases have expired."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageFilter:
    """Filter of pages by the values of columns; None: all pages."""

    host: str | None = None
    url_prefix: str | None = None
    """Start of the normalised URL; `host` must be set too."""
    tag: str | None = None
    observability: Observability | None = None
    gone: bool | None = None
    failing: bool | None = None
    """True: pages whose last crawl had no content."""
    no_content: bool | None = None
    """True: pages without content in `outcomes.NO_CONTENT_AFTER` crawls in a row or more."""
    moved: bool | None = None
    """True: pages whose last crawl was redirected for good."""
    crawled: bool | None = None
    """True: pages with a reported crawl."""
    may_retire: bool | None = None
    """True: pages that are gone, or known only as the target of a redirect."""
    change_rate_from: float | None = None
    change_rate_to: float | None = None
    crawl_rate_from: float | None = None
    crawl_rate_to: float | None = None
    """Inclusive bounds of the rates in the schedule in force, 1/day."""
    changed_since: datetime | None = None
    """Earliest crawl that found the page changed, of those that the log keeps."""
    unfinished: Unfinished | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedPages(DueColumns):
    """(N,) pages by ascending page_id; rates are NaN for a page that no epoch has scheduled."""

    url: NDArray[np.object_]
    importance: Floats
    observability: Codes
    min_crawl_rate: Floats
    max_crawl_rate: Floats
    change_rate: Floats
    crawl_rate: Floats
    n_observations: Ints
    n_changes: Ints
    tags: NDArray[np.object_]
    """Tags of each page, separated by spaces; "" without one."""
    redirects_to: Ints
    """Page to which the last answer redirected; 0: none."""
    redirect_url: NDArray[np.object_]
    """URL of that page; "" for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownPages(ListedPages):
    """(N,) pages of a list, with their leases that ended without a report."""

    n_unfinished: Ints
    """Such leases in a row."""
    until: Instants
    """Earliest next lease after them; NaT: the page does not wait."""


class ListedPart(NamedTuple):
    """Result of one reading of a list of pages."""

    pages: ListedPages
    after: int | None
    """page_id after which the next reading begins; None at the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageTags(Columns):
    """(M,) tags of pages, by page_id."""

    page_id: Ints
    tag: NDArray[np.object_]


@dataclass(frozen=True, slots=True, kw_only=True)
class PageBounds(Columns):
    """(N,) bounds of pages by ascending page_id, 1/day; NaN: none."""

    page_id: Ints
    min_crawl_rate: Floats
    max_crawl_rate: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class TagColumns(Columns):
    """(M,) tags of pages by their ids, in any order."""

    page_id: Ints
    tag_id: Ints


class TagPatch(NamedTuple):
    """Changes of the tags of pages."""

    all: frozenset[str] | None = None
    """The whole set; None: the tags stay, apart from `add` and `remove`."""
    add: frozenset[str] = frozenset()
    remove: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class RunningLease:
    """A lease that runs."""

    page_id: int
    url: str
    host: str
    worker: str
    leased_at: datetime
    expires_at: datetime
    requested: bool
