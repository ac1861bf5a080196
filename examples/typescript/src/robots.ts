// robots.txt of each site, kept for a day (RFC 9309).
import robotsParser from "robots-parser";
import { retryAfter } from "./recrawl.js";

/** The function of the package, whose types describe a module of another kind. */
const parse = robotsParser as unknown as typeof robotsParser.default;

const KEPT = 86_400_000;
const AGAIN = 30_000;
/** Wait for a robots.txt, and time until the next attempt after none came, milliseconds. */
const WITHIN = 15_000;
const MOST_BYTES = 500 * 1024;

/** What is known of a site: its rules, or why nothing may be fetched now. */
type Site = { allows: (url: string) => boolean; status: number; until: number };

export class Robots {
  private readonly sites = new Map<string, Promise<Site>>();

  constructor(private readonly agent: string) {}

  /** Return what to report of a page that may not be fetched; null if it may. */
  async denial(url: string): Promise<{ robots_denied: true } | { status: number; retry_after_s: number } | null> {
    const site = await this.site(new URL(url).origin);
    if (site.status) return { status: site.status, retry_after_s: (site.until - Date.now()) / 1000 };
    return site.allows(url) ? null : { robots_denied: true };
  }

  private async site(origin: string): Promise<Site> {
    const known = this.sites.get(origin);
    if (known && (await known).until > Date.now()) return known;
    const read = this.read(`${origin}/robots.txt`);
    this.sites.set(origin, read);
    return read;
  }

  private async read(url: string): Promise<Site> {
    const away = (status: number, wait: number): Site => ({
      allows: () => false,
      status,
      until: Date.now() + Math.max(wait, AGAIN),
    });
    try {
      const headers = { "User-Agent": this.agent };
      const answer = await fetch(url, { headers, signal: AbortSignal.timeout(WITHIN) });
      if (answer.status === 429 || answer.status >= 500) {
        await answer.body?.cancel();
        return away(answer.status, 1000 * retryAfter(answer.headers));
      }
      const text = answer.ok ? (await answer.text()).slice(0, MOST_BYTES) : "";
      const rules = parse(url, text);
      const allows = (page: string) => rules.isAllowed(page, this.agent) !== false;
      return { allows, status: 0, until: Date.now() + KEPT };
    } catch {
      return away(503, 0);
    }
  }
}
