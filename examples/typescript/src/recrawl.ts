// Calls of the service, typed by its OpenAPI document and sent again while it is busy or away.
import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import createClient, { type Client } from "openapi-fetch";
import type { components, paths } from "./schema.js";

type Schemas = components["schemas"];
export type Crawl = Schemas["Crawl"];
export type Observation = Schemas["Observation"];

/** Statuses of a busy service, and of a proxy before a service that is away. */
const BUSY = new Set([429, 502, 503, 504, 507]);
/** Shortest and longest pause before a request is sent again, milliseconds. */
const FIRST_PAUSE = 100;
const LONGEST_PAUSE = 10_000;

/** Return the seconds of a Retry-After, a number or a date; 0 where it cannot be read. */
export function retryAfter(headers: Headers): number {
  const text = headers.get("Retry-After") ?? "";
  if (/^[0-9]+$/.test(text)) return Math.min(Number(text), 1e6);
  const at = Date.parse(text);
  return Number.isNaN(at) ? 0 : Math.min(Math.max((at - Date.now()) / 1000, 0), 1e6);
}

/** Return what an answer has charged, or asks with a 402; 0 for content without a price; null: unknown. */
export function price(answer: Response): string | number | null {
  const charged = answer.headers.get("crawler-charged") ?? "";
  const asked = answer.headers.get("crawler-price") ?? "";
  if (answer.ok && !charged && !asked) return 0;
  const text = answer.status === 402 ? asked : charged;
  return /^[A-Za-z]{3} ?[0-9]{1,9}(\.[0-9]{1,12})?$/.test(text) ? text : null;
}

export class Recrawl {
  private readonly api: Client<paths>;

  /** Requests are repeated until `giveUp` is aborted; the wait for crawls ends with `stop`. */
  constructor(
    baseUrl: string,
    key: string | undefined,
    private readonly stop: AbortSignal,
    private readonly giveUp: AbortSignal,
  ) {
    const headers = key ? { Authorization: `Bearer ${key}` } : {};
    this.api = createClient<paths>({ baseUrl, headers, fetch: (sent) => this.send(sent) });
  }

  /** Report crawls and take the next ones in the same commit. */
  async lease(worker: string, count: number, report: Observation[]): Promise<Crawl[]> {
    const { data, error } = await this.api.POST("/leases", {
      // a repeated request receives the same leases
      params: { header: { "Idempotency-Key": randomUUID() } },
      body: { worker, count, wait_s: this.stop.aborted ? 0 : 2, report },
    });
    if (data === undefined) throw refused(error);
    this.show(report, data.reported);
    return data.items;
  }

  /** Report crawls alone. */
  async report(report: Observation[]): Promise<void> {
    const { data, error } = await this.api.POST("/observations", { body: report });
    if (data === undefined) throw refused(error);
    this.show(report, data);
  }

  /** Extend a lease; return false if it has ended, so that the page is another worker's. */
  async extend(crawl: Crawl, ttl_s: number): Promise<boolean> {
    const params = { path: { lease: crawl.lease } };
    const { response, error } = await this.api.PATCH("/leases/{lease}", { params, body: { ttl_s } });
    if (response.status === 404) return false;
    if (error !== undefined) throw refused(error);
    return true;
  }

  /** Return a crawl that is not done, so that another worker gets it at once. */
  async release(crawl: Crawl): Promise<void> {
    await this.api.DELETE("/leases/{lease}", { params: { path: { lease: crawl.lease } } });
  }

  private show(report: Observation[], answer: Schemas["Reported"] | null | undefined): void {
    if (answer?.late) console.log(`${answer.late} reports came after the end of their leases`);
    for (const { index, detail } of answer?.rejected ?? []) {
      console.error(`refused: ${report[index]?.lease}: ${detail}`);
    }
  }

  private async send(request: Request): Promise<Response> {
    for (let pause = FIRST_PAUSE; ; pause = Math.min(2 * pause, LONGEST_PAUSE)) {
      this.giveUp.throwIfAborted();
      let wait = pause * (0.5 + Math.random() / 2);
      try {
        const answer = await fetch(request.clone(), { signal: this.giveUp });
        if (!BUSY.has(answer.status)) return answer;
        wait = Math.max(wait, 1000 * retryAfter(answer.headers));
        console.error(`${request.method} ${request.url}: ${answer.status}, again in ${wait} ms`);
        await answer.body?.cancel();
      } catch (error) {
        this.giveUp.throwIfAborted();
        console.error(`${request.method} ${request.url}: ${error}, again in ${wait} ms`);
      }
      await sleep(wait, undefined, { signal: this.giveUp });
    }
  }
}

function refused(problem: Schemas["Problem"] | undefined): Error {
  return new Error(problem ? `${problem.title}: ${problem.detail}` : "an answer of another server");
}
