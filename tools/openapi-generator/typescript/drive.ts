// Drives a running service by the TypeScript that openapi-generator writes; prints what it reads.
// The arguments are the addresses of the service, of a page and of a receiver of webhooks, and
// its secret.
import * as recrawl from "./client";

declare const process: { argv: string[]; exit(status: number): never };

async function main(
  service: string,
  url: string,
  receiver: string,
  secret: string,
): Promise<void> {
  const configuration = new recrawl.Configuration({ basePath: service });
  const pages = new recrawl.PagesApi(configuration);
  const leases = new recrawl.LeasesApi(configuration);
  const hosts = new recrawl.HostsApi(configuration);
  const webhooks = new recrawl.WebhooksApi(configuration);

  const registered = await pages.postPages({
    page: [{ url, importance: 2, tags: ["news"] }, { url: "no url" }],
  });
  const [pageId, none] = registered.pageIds;
  if (pageId === undefined || pageId === null) throw new Error("the page was not registered");
  const leased = await leases.postLeases({ leaseBody: { worker: "generated", count: 5 } });
  const [crawl] = leased.items;
  if (crawl === undefined) throw new Error("no crawl is due");
  const reported = await new recrawl.EvidenceApi(configuration).postObservations({
    observation: [{ lease: crawl.lease, observedAt: new Date(), digest: "a" }],
  });
  const epoch = await new recrawl.EpochsApi(configuration).postEpoch({ waitS: 30 });
  const schedule = await new recrawl.ScheduleApi(configuration).getSchedule({ limit: 10 });
  const shown = await pages.getPage({ pageId });
  const byUrl = await pages.listAllPages({ url });
  const listed = await pages.listAllPages({ tag: "news" });
  if (!("pageId" in byUrl) || !("items" in listed)) throw new Error("a list came for a page");
  const patched = await pages.patchPage({
    pageId,
    pagePatchBody: { maxCrawlRate: null, importance: 3.5 },
  });
  const fresh = await pages.postFreshness({ copy: [{ pageId }, { url: "no url" }] });
  const [host] = (await hosts.listHosts({ limit: 1 })).items;
  if (host === undefined) throw new Error("no host is listed");
  const slow = await hosts.patchHost({ host: host.host, hostBody: { maxConcurrency: 3 } });
  const hook = await webhooks.postWebhook({ webhookBody: { url: receiver, secret, maxItems: 10 } });
  const tested = await webhooks.testWebhook({ webhookId: hook.id });
  const missing = await pages.getPage({ pageId: pageId + 1 }).catch((error: unknown) => {
    if (error instanceof recrawl.ResponseError) return error.response.status;
    throw error;
  });

  console.log(
    JSON.stringify({
      page_ids: [
        pageId,
        crawl.pageId,
        schedule.items[0]?.pageId,
        shown.pageId,
        byUrl.pageId,
      ],
      none,
      listed: listed.items.map((page) => page.pageId),
      leases_ended: reported.leasesEnded,
      epoch: [epoch.status, epoch.nPages],
      max_crawl_rate: patched.maxCrawlRate,
      importance: patched.importance,
      verdicts: fresh.verdicts.map((verdict) => verdict && verdict.pageId),
      host: [host.host, slow.maxConcurrency],
      tested: tested.status,
      missing,
    }),
  );
}

const [service = "", url = "", receiver = "", secret = ""] = process.argv.slice(2);
main(service, url, receiver, secret).catch((error: unknown) => {
  console.error(error);
  process.exit(1);
});
