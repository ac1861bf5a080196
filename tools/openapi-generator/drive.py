"""Drive a running service by the Python that openapi-generator writes; print what it reads.

The arguments are the addresses of the service, of a page and of a receiver of webhooks, and its
secret.
"""

import json
import sys
from datetime import UTC, datetime

import openapi_client as recrawl

service, url, receiver, secret = sys.argv[1:]
api = recrawl.ApiClient(recrawl.Configuration(host=service))
pages, leases, hosts = recrawl.PagesApi(api), recrawl.LeasesApi(api), recrawl.HostsApi(api)
schedule, webhooks = recrawl.ScheduleApi(api), recrawl.WebhooksApi(api)

registered = pages.post_pages(
    [recrawl.Page(url=url, importance=2, tags=["news"]), recrawl.Page(url="no url")]
)
page_id, none = registered.page_ids
leased = leases.post_leases(recrawl.LeaseBody(worker="generated", count=5))
(crawl,) = leased.items
crawled = recrawl.Observation(lease=crawl.lease, observed_at=datetime.now(UTC), digest="a")
reported = recrawl.EvidenceApi(api).post_observations([crawled])
epoch = recrawl.EpochsApi(api).post_epoch(wait_s=30)
(row,) = schedule.get_schedule(limit=10).items
shown = pages.get_page(page_id)
by_url = pages.list_all_pages(url=url).actual_instance
listed = pages.list_all_pages(tag="news").actual_instance
patched = pages.patch_page(page_id, recrawl.PagePatchBody(max_crawl_rate=None, importance=3.5))
verdicts = pages.post_freshness([recrawl.Copy(page_id=page_id), recrawl.Copy(url="no url")])
host = hosts.list_hosts(limit=1).items[0]
slow = hosts.patch_host(host.host, recrawl.HostBody(max_concurrency=3))
hook = webhooks.post_webhook(recrawl.WebhookBody(url=receiver, secret=secret, max_items=10))
tested = webhooks.test_webhook(hook.id)
try:
    pages.get_page(page_id + 1)
except recrawl.ApiException as error:
    missing = error.status

print(
    json.dumps(
        {
            "page_ids": [page_id, crawl.page_id, row.page_id, shown.page_id, by_url.page_id],
            "none": none,
            "listed": [page.page_id for page in listed.items],
            "leases_ended": reported.leases_ended,
            "epoch": [epoch.status, epoch.n_pages],
            "max_crawl_rate": patched.max_crawl_rate,
            "importance": patched.importance,
            "verdicts": [verdict and verdict.page_id for verdict in verdicts.verdicts],
            "host": [host.host, slow.max_concurrency],
            "tested": tested.status,
            "missing": missing,
        }
    )
)
