"""A spider that crawls the pages that Recrawl has due, and no others.

scrapy runspider examples/spider.py -a start=https://example.com/ -O pages.jsonl
"""

from collections.abc import Iterator
from typing import Any, ClassVar

import scrapy
from scrapy.http import HtmlResponse, Response
from scrapy.linkextractors import LinkExtractor


class PagesSpider(scrapy.Spider):
    """Keeps the pages of a site fresh, and finds new ones by their links."""

    name = "pages"
    custom_settings: ClassVar[dict[str, Any]] = {
        "SCHEDULER": "recrawl_client.scrapy.Scheduler",
        "RECRAWL_URL": "http://127.0.0.1:8000",
        "ROBOTSTXT_OBEY": True,
        "DOWNLOAD_DELAY": 0,  # Recrawl keeps each host's delay and concurrency
        "CONCURRENT_REQUESTS_PER_DOMAIN": 16,
        "USER_AGENT": "recrawl-example/0.1 (+https://example.com/who-answers-complaints)",
    }

    def __init__(self, start: str = "", **options: Any) -> None:
        super().__init__(**options)
        self.start_urls = [start] if start else []  # Recrawl knows those of earlier runs

    def parse(self, response: Response) -> Iterator[Any]:
        """Keep a page, and register those it links to."""
        if isinstance(response, HtmlResponse):
            yield {"url": response.url, "title": response.css("title::text").get()}
            yield from response.follow_all(LinkExtractor().extract_links(response))
