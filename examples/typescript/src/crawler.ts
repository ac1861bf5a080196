// A polite crawler: it leases due pages from Recrawl, fetches and reports them until SIGTERM.
//
// node out/crawler.js http://127.0.0.1:8000    # and RECRAWL_API_KEY, if there is a key
import { createHash } from "node:crypto";
import { hostname } from "node:os";
import { Recrawl, price, retryAfter, type Crawl, type Observation } from "./recrawl.js";
import { Robots } from "./robots.js";

const WORKER = `${hostname()}-${process.pid}`;
const AGENT = "recrawl-example/0.1 (+https://example.com/who-answers-complaints)";
/** Number of pages that are fetched at a time; of one host the service hands out one. */
const TASKS = 16;
/** Longest time to the end of a body, and wait for reports after a signal, milliseconds. */
const DEADLINE = 30_000;
const LAST_REPORTS = 10_000;
/** Length up to which a body is read, bytes; it may be endless. */
const MOST_BYTES = 5_000_000;

const stop = new AbortController();
const giveUp = new AbortController();
for (const name of ["SIGINT", "SIGTERM"] as const) {
  process.on(name, () => {
    stop.abort();
    setTimeout(() => giveUp.abort(new Error("the service does not answer")), LAST_REPORTS).unref();
  });
}
const key = process.env["RECRAWL_API_KEY"];
const recrawl = new Recrawl(process.argv[2] ?? "http://127.0.0.1:8000", key, stop.signal, giveUp.signal);
const robots = new Robots(AGENT);

/** Fetch a page and return the evidence; follow no redirect, because its target is a page too. */
async function fetched(crawl: Crawl, signal: AbortSignal): Promise<Observation> {
  const started = performance.now();
  const headers: Record<string, string> = { "User-Agent": AGENT };
  if (crawl.etag) headers["If-None-Match"] = crawl.etag;
  if (crawl.last_modified) headers["If-Modified-Since"] = new Date(crawl.last_modified).toUTCString();
  if (crawl.max_price) headers["crawler-max-price"] = crawl.max_price;
  const answer = await fetch(crawl.url, { headers, redirect: "manual", signal });
  const seen: Observation = { status: answer.status };
  const digest = createHash("sha256");
  let bytes = 0;
  for await (const part of answer.body ?? []) {
    digest.update(part.subarray(0, MOST_BYTES - bytes)); // store the content here
    bytes += part.length;
    if (bytes >= MOST_BYTES) break;
  }
  if (answer.ok) seen.digest = digest.digest("hex");
  const location = answer.headers.get("Location");
  if (location && URL.canParse(location, crawl.url)) {
    seen.redirect_url = new URL(location, crawl.url).href;
  }
  const modified = Date.parse(answer.headers.get("Last-Modified") ?? "");
  if (!Number.isNaN(modified)) seen.last_modified = new Date(modified).toISOString();
  const etag = answer.headers.get("ETag");
  if (etag) seen.etag = etag;
  const wait = retryAfter(answer.headers);
  if (wait) seen.retry_after_s = wait;
  const paid = price(answer);
  if (paid !== null) seen.price = paid;
  return { ...seen, bytes, seconds: (performance.now() - started) / 1000 };
}

/** Extend the lease of a crawl while it runs; abort the crawl once the lease is lost. */
function holding(crawl: Crawl, lost: AbortController): NodeJS.Timeout {
  const ttl = Math.max((Date.parse(crawl.expires_at) - Date.now()) / 1000, 1);
  const timer = setInterval(async () => {
    const goesOn = await recrawl.extend(crawl, ttl).catch(() => true);
    if (!goesOn) lost.abort(new Error("the lease is lost"));
  }, 500 * ttl);
  return timer.unref();
}

/** Visit a leased page and return its report; null for a crawl that is another worker's now. */
async function visited(crawl: Crawl): Promise<Observation | null> {
  const lost = new AbortController();
  const timer = holding(crawl, lost);
  // without a date: nobody knows when `fetch` sends, and the service takes the start of the lease
  const report = { lease: crawl.lease };
  try {
    const denial = await robots.denial(crawl.url);
    lost.signal.throwIfAborted();
    if (denial) {
      console.log(`- ${crawl.url} robots.txt`);
      return { ...report, ...denial };
    }
    const seen = await fetched(crawl, AbortSignal.any([lost.signal, AbortSignal.timeout(DEADLINE)]));
    console.log(`${seen.status} ${crawl.url} ${seen.redirect_url ?? ""}`);
    return { ...report, ...seen };
  } catch (error) {
    if (lost.signal.aborted) {
      console.log(`lost ${crawl.url}`);
      return null;
    }
    console.log(`0 ${crawl.url} ${error}`);
    return { ...report, status: 0 };
  } finally {
    clearInterval(timer);
  }
}

/** Lease and visit one page at a time until stopped; report the last one. */
async function work(): Promise<void> {
  let report: Observation[] = [];
  while (!stop.signal.aborted) {
    const crawls = await recrawl.lease(WORKER, 1, report);
    report = [];
    for (const crawl of crawls) {
      if (stop.signal.aborted) {
        await recrawl.release(crawl);
        continue;
      }
      const seen = await visited(crawl);
      if (seen) report.push(seen);
    }
  }
  if (report.length) await recrawl.report(report);
}

await Promise.all(Array.from({ length: TASKS }, work));
