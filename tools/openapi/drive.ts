// Drives a running service by the types that openapi-typescript generates. The address is the
// argument; the program prints one line of JSON with what it read.
import createClient from "openapi-fetch";
import type { components, operations, paths } from "./schema.js";

const client = createClient<paths>({ baseUrl: process.argv[2] ?? "" });
const url = "https://example.com/news";
const observedAt = "2026-05-01T12:00:00Z";

type Answer<T> = { data?: T; error?: components["schemas"]["Problem"]; response: Response };

function read<T>(answer: Answer<T>): NonNullable<T> {
  if (answer.data === undefined || answer.data === null) {
    throw new Error(`${answer.response.status} ${answer.error?.detail}`);
  }
  return answer.data;
}

const registered = read(
  await client.POST("/pages", { body: [{ url, importance: 10 }, { url: "https://example.org/" }] }),
);
const lease = read(await client.POST("/leases", { body: {} }));
const crawl = lease.items[0];
if (crawl === undefined) throw new Error("no crawl is due");
const extended = read(
  await client.PATCH("/leases/{lease}", {
    params: { path: { lease: crawl.lease } },
    body: { ttl_s: 600 },
  }),
);
const reported = read(
  await client.POST("/observations", {
    body: [{ lease: crawl.lease, observed_at: observedAt, digest: "a" }],
  }),
);
const few: operations["post_leases"]["requestBody"]["content"]["application/json"] = {
  worker: "typescript",
  count: 2,
};
const second = read(await client.POST("/leases", { body: few }));
const pinged = read(
  await client.POST("/pings", { body: [{ url: crawl.url, changed_at: "2026-05-01T12:01:00Z" }] }),
);
const sitemap = read(
  await client.POST("/sitemaps", {
    params: { query: { url: "https://example.com/sitemap.txt" } },
    body: "https://example.com/about\n",
    headers: { "Content-Type": "text/plain" },
    bodySerializer: (body) => body,
  }),
);
const hostName = { params: { path: { host: "example.com" } } };
const host = read(await client.PATCH("/hosts/{host}", { ...hostName, body: { min_delay_s: 2.5 } }));
const hosts: string[] = [];
let cursor: string | null = null;
do {
  const part: components["schemas"]["HostsAnswer"] = read(
    await client.GET("/hosts", { params: { query: cursor === null ? { limit: 1 } : { limit: 1, cursor } } }),
  );
  hosts.push(...part.items.map((item) => item.host));
  cursor = part.next_cursor;
} while (cursor !== null);
const epoch = read(await client.POST("/epochs"));
const epochs = read(await client.GET("/epochs"));
const schedule = read(await client.GET("/schedule", { params: { query: { limit: 10 } } }));
if (typeof schedule === "string") throw new Error("the schedule came as NDJSON");
const page = read(await client.GET("/pages", { params: { query: { url } } }));
if (typeof page === "string" || !("page_id" in page)) throw new Error("a list came for one URL");
const changed = read(
  await client.PATCH("/pages/{page_id}", {
    params: { path: { page_id: page.page_id } },
    body: { max_crawl_rate: null },
  }),
);
const missing = await client.GET("/pages/{page_id}", { params: { path: { page_id: 999 } } });

console.log(
  JSON.stringify({
    registered: registered.page_ids.length,
    worker_got: lease.items.length + second.items.length,
    lease_goes_on: extended.lease === crawl.lease,
    leases_ended: reported.leases_ended,
    decision: pinged.decisions[0]?.reason,
    created: sitemap.created,
    delay_s: host.host_queue.delay_s,
    hosts,
    epoch: epoch.epoch,
    epochs: epochs.items.length,
    scheduled: schedule.items.length,
    max_crawl_rate: changed.max_crawl_rate,
    missing: missing.error?.status,
  }),
);
