"""A spider that crawls only the pages that are due in Recrawl.

scrapy runspider examples/spider.py -a start=https://example.com/ -O pages.jsonl
"""

from collections.abc import Iterator
from typing import Any, ClassVar

import scrapy
from scrapy.http import HtmlResponse, Response
from scrapy.linkextractors import LinkExtractor


class PagesSpider(scrapy.Spider):
    """A spider that crawls the pages of a site again, and finds new pages by their links."""

    name = "pages"
    custom_settings: ClassVar[dict[str, Any]] = {
        "SCHEDULER": "recrawl_client.scrapy.Scheduler",
        "RECRAWL_URL": "http://127.0.0.1:8000",
        "ROBOTSTXT_OBEY": True,
        "DOWNLOAD_DELAY": 0,  # Recrawl applies each host's delay and concurrency
        "CONCURRENT_REQUESTS_PER_DOMAIN": 16,
        "DOWNLOAD_TIMEOUT": 20,  # Scrapy waits three minutes, and reads a gigabyte
        "DOWNLOAD_MAXSIZE": 5_000_000,
        "USER_AGENT": "recrawl-example/0.1 (+https://example.com/who-answers-complaints)",
    }

    def __init__(self, start: str = "", **options: Any) -> None:
        super().__init__(**options)
        self.start_urls = [start] if start else []  # Recrawl has the pages of earlier runs

    def parse(self, response: Response) -> Iterator[Any]:
        """Yield the item of a page, and requests for its links."""
        if isinstance(response, HtmlResponse):
            yield {"url": response.url, "title": response.css("title::text").get()}
            yield from response.follow_all(LinkExtractor().extract_links(response))
