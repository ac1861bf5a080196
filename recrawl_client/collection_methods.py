"""Methods on many pages, of `Client` and of `AsyncClient`."""

from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Literal, TypeVar, Unpack

from recrawl_client import collection
from recrawl_client.collection import CopyName, GroupSettings, PageChanges, PageFilters
from recrawl_client.flows import Flow, Listing
from recrawl_client.wire.freshness import FreshnessAnswer
from recrawl_client.wire.hosts import GroupAnswer
from recrawl_client.wire.listing import (
    BulkAnswer,
    GroupItem,
    LeaseItem,
    LeasesExplained,
    ListedPage,
    PagesAnswer,
    WorkerItem,
)
from recrawl_client.wire.pages import CrawlAnswer
from recrawl_client.wire.url_groups import UrlGroupItem

T = TypeVar("T")
ItemT = TypeVar("ItemT")


class CollectionMethods:
    """Methods on many pages; see `recrawl_client.client.Client`."""

    batch: int

    def _run(self, flow: Flow[T]) -> T:
        raise NotImplementedError

    def _items(self, listing: Listing[ItemT]) -> Iterator[ItemT]:
        raise NotImplementedError

    def pages(self, **filters: Unpack[PageFilters]) -> Iterator[ListedPage]:
        """Yield the pages that match all filters, requested in parts."""
        return self._items(collection.pages(filters))

    def count_pages(self, *, exact: bool = False, **filters: Unpack[PageFilters]) -> PagesAnswer:
        """Return a part with the `count` of the pages that match all filters.

        `count_is` states whether the count is exact; many pages are estimated in any case.
        """
        return self._run(collection.count_pages(filters, exact=exact))

    def change_pages(
        self,
        changes: PageChanges,
        *,
        all_pages: bool = False,
        dry_run: bool = False,
        **filters: Unpack[PageFilters],
    ) -> BulkAnswer:
        """Change the pages that match all filters; with `dry_run` only count them."""
        return self._run(
            collection.change_pages(changes, filters, all_pages=all_pages, dry_run=dry_run)
        )

    def delete_pages(
        self, *, all_pages: bool = False, dry_run: bool = False, **filters: Unpack[PageFilters]
    ) -> BulkAnswer:
        """Delete the pages that match all filters; with `dry_run` only count them."""
        return self._run(collection.delete_pages(filters, all_pages=all_pages, dry_run=dry_run))

    def delete_page(self, page: str | int) -> None:
        """Delete one page, named by URL or page_id, with its state and log; raise `NotFound`."""
        return self._run(collection.delete_page(page))

    def recrawl(
        self,
        *pages: str | int,
        all_pages: bool = False,
        dry_run: bool = False,
        **filters: Unpack[PageFilters],
    ) -> BulkAnswer:
        """Request crawls of pages, named by URL or page_id, or of those that match all filters."""
        return self._run(collection.recrawl(pages, filters, all_pages=all_pages, dry_run=dry_run))

    def page_log(self, page_id: int) -> Iterator[CrawlAnswer]:
        """Yield the whole log of a page, newest entries first, requested in parts."""
        return self._items(collection.page_log(page_id))

    def freshness(self, copies: Iterable[CopyName]) -> FreshnessAnswer:
        """Return verdicts about copies: whether each is still right.

        A copy is named by its URL or page_id, or is a `Copy`; the page's last crawl is its default
        `fetched_at`.
        """
        return self._run(collection.freshness(copies, self.batch))

    def running_leases(self) -> Iterator[LeaseItem]:
        """Yield the leases that run, requested in parts."""
        return self._items(collection.running_leases())

    def explain_leases(self, *hosts: str) -> LeasesExplained:
        """Return why `lease` with these hosts, or of all hosts, gets nothing now."""
        return self._run(collection.explain_leases(hosts))

    def workers(self) -> list[WorkerItem]:
        """Return the workers that hold leases or have lost some, those first that lost most."""
        return self._run(collection.workers())

    def return_leases(self, worker: str, *, dry_run: bool = False) -> int:
        """Return all running leases of a worker that is gone; return their number."""
        return self._run(collection.return_leases(worker, dry_run=dry_run))

    def groups(self) -> Iterator[GroupItem]:
        """Yield all groups of hosts, requested in parts."""
        return self._items(collection.groups())

    def group(self, name: str, /) -> GroupAnswer:
        """Return a group of hosts; raise `NotFound`."""
        return self._run(collection.group(name))

    def set_group(self, name: str, /, **settings: Unpack[GroupSettings]) -> GroupAnswer:
        """Change a group of hosts, new or not; None restores the default of a field."""
        return self._run(collection.set_group(name, settings))

    def url_groups(self, prefix: str = "", *, stopped: bool = False) -> Iterator[UrlGroupItem]:
        """Yield URL groups by name, requested in parts: all, or those that are stopped."""
        return self._items(collection.url_groups(prefix, stopped=stopped))

    def set_url_group(self, group: str, rule: Literal["admit", "stop"] | None) -> UrlGroupItem:
        """Admit or stop the new pages of a URL group; None: what is learnt decides again."""
        return self._run(collection.set_url_group(group, rule))

    def delete_host(self, host: str) -> None:
        """Delete a host without pages; raise `NotFound` or `Refused`."""
        return self._run(collection.delete_host(host))

    def delete_group(self, group: str) -> None:
        """Delete a group, whose hosts stay; raise `NotFound`."""
        return self._run(collection.delete_group(group))


class AsyncCollectionMethods:
    """Methods on many pages; see `recrawl_client.async_client.AsyncClient`."""

    batch: int

    async def _run(self, flow: Flow[T]) -> T:
        raise NotImplementedError

    def _items(self, listing: Listing[ItemT]) -> AsyncIterator[ItemT]:
        raise NotImplementedError

    def pages(self, **filters: Unpack[PageFilters]) -> AsyncIterator[ListedPage]:
        """Yield the pages that match all filters, requested in parts."""
        return self._items(collection.pages(filters))

    async def count_pages(
        self, *, exact: bool = False, **filters: Unpack[PageFilters]
    ) -> PagesAnswer:
        """Return a part with the `count` of the pages that match all filters.

        `count_is` states whether the count is exact; many pages are estimated in any case.
        """
        return await self._run(collection.count_pages(filters, exact=exact))

    async def change_pages(
        self,
        changes: PageChanges,
        *,
        all_pages: bool = False,
        dry_run: bool = False,
        **filters: Unpack[PageFilters],
    ) -> BulkAnswer:
        """Change the pages that match all filters; with `dry_run` only count them."""
        return await self._run(
            collection.change_pages(changes, filters, all_pages=all_pages, dry_run=dry_run)
        )

    async def delete_pages(
        self, *, all_pages: bool = False, dry_run: bool = False, **filters: Unpack[PageFilters]
    ) -> BulkAnswer:
        """Delete the pages that match all filters; with `dry_run` only count them."""
        return await self._run(
            collection.delete_pages(filters, all_pages=all_pages, dry_run=dry_run)
        )

    async def delete_page(self, page: str | int) -> None:
        """Delete one page, named by URL or page_id, with its state and log; raise `NotFound`."""
        return await self._run(collection.delete_page(page))

    async def recrawl(
        self,
        *pages: str | int,
        all_pages: bool = False,
        dry_run: bool = False,
        **filters: Unpack[PageFilters],
    ) -> BulkAnswer:
        """Request crawls of pages, named by URL or page_id, or of those that match all filters."""
        return await self._run(
            collection.recrawl(pages, filters, all_pages=all_pages, dry_run=dry_run)
        )

    def page_log(self, page_id: int) -> AsyncIterator[CrawlAnswer]:
        """Yield the whole log of a page, newest entries first, requested in parts."""
        return self._items(collection.page_log(page_id))

    async def freshness(self, copies: Iterable[CopyName]) -> FreshnessAnswer:
        """Return verdicts about copies: whether each is still right.

        A copy is named by its URL or page_id, or is a `Copy`; the page's last crawl is its default
        `fetched_at`.
        """
        return await self._run(collection.freshness(copies, self.batch))

    def running_leases(self) -> AsyncIterator[LeaseItem]:
        """Yield the leases that run, requested in parts."""
        return self._items(collection.running_leases())

    async def explain_leases(self, *hosts: str) -> LeasesExplained:
        """Return why `lease` with these hosts, or of all hosts, gets nothing now."""
        return await self._run(collection.explain_leases(hosts))

    async def workers(self) -> list[WorkerItem]:
        """Return the workers that hold leases or have lost some, those first that lost most."""
        return await self._run(collection.workers())

    async def return_leases(self, worker: str, *, dry_run: bool = False) -> int:
        """Return all running leases of a worker that is gone; return their number."""
        return await self._run(collection.return_leases(worker, dry_run=dry_run))

    def groups(self) -> AsyncIterator[GroupItem]:
        """Yield all groups of hosts, requested in parts."""
        return self._items(collection.groups())

    async def group(self, name: str, /) -> GroupAnswer:
        """Return a group of hosts; raise `NotFound`."""
        return await self._run(collection.group(name))

    async def set_group(self, name: str, /, **settings: Unpack[GroupSettings]) -> GroupAnswer:
        """Change a group of hosts, new or not; None restores the default of a field."""
        return await self._run(collection.set_group(name, settings))

    def url_groups(self, prefix: str = "", *, stopped: bool = False) -> AsyncIterator[UrlGroupItem]:
        """Yield URL groups by name, requested in parts: all, or those that are stopped."""
        return self._items(collection.url_groups(prefix, stopped=stopped))

    async def set_url_group(
        self, group: str, rule: Literal["admit", "stop"] | None
    ) -> UrlGroupItem:
        """Admit or stop the new pages of a URL group; None: what is learnt decides again."""
        return await self._run(collection.set_url_group(group, rule))

    async def delete_host(self, host: str) -> None:
        """Delete a host without pages; raise `NotFound` or `Refused`."""
        return await self._run(collection.delete_host(host))

    async def delete_group(self, group: str) -> None:
        """Delete a group, whose hosts stay; raise `NotFound`."""
        return await self._run(collection.delete_group(group))
