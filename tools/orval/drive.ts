// Drives a running service by the functions that orval generates. The address is the argument;
// the program prints one line of JSON with what it read.
import * as recrawl from "./client.js";

const base = process.argv[2] ?? "";
const plain = globalThis.fetch;
// orval's functions ask paths, which a browser would complete, and leave the media type of a body
// out where the document has several
globalThis.fetch = (target, init) => {
  const headers = new Headers(init?.headers);
  if (init?.body) headers.set("Content-Type", "application/json");
  return plain(new URL(String(target), base), { ...init, headers });
};

const url = "https://example.com/news";
const registered = await recrawl.postPages([{ url, importance: 10 }]);
if (registered.status !== 200) throw new Error(`${registered.status}`);
const leased = await recrawl.postLeases({ worker: "orval", count: 1 });
if (leased.status !== 200) throw new Error(`${leased.status} ${leased.data.detail}`);
const crawl = leased.data.items[0];
if (crawl === undefined) throw new Error("no crawl is due");
const reported = await recrawl.postObservations([
  { lease: crawl.lease, observed_at: "2026-05-01T12:00:00Z", status: 200, digest: "a" },
]);
if (reported.status !== 200) throw new Error(`${reported.status}`);
const page = await recrawl.getPage(crawl.page_id);
if (page.status !== 200) throw new Error(`${page.status}`);
const changed = await recrawl.patchPage(crawl.page_id, { importance: 3.5, max_crawl_rate: null });
if (changed.status !== 200) throw new Error(`${changed.status}`);
const missing = await recrawl.getPage(999);

console.log(
  JSON.stringify({
    page_ids: registered.data.page_ids,
    leases_ended: reported.data.leases_ended,
    url: page.data.url,
    importance: changed.data.importance,
    max_crawl_rate: changed.data.max_crawl_rate,
    missing: missing.status,
    detail: missing.status === 404 ? missing.data.status : null,
  }),
);
