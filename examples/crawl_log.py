"""Write crawl-log.csv, a simulated log of a crawler, for `recrawl replay --crawl-log`.

The log is simulated, not recorded. Pages of /news change once a day on average, pages of /blog
once a week, and pages of /docs every fifty days. Within a section, the change rates differ widely.
The crawler visits every page once a day.
"""

import csv
import random
import sys
from datetime import UTC, datetime, timedelta

N_PAGES, N_DAYS = 50, 28
SECTIONS = {"news": (10, 1.0), "blog": (15, 0.15), "docs": (25, 0.02)}
"""Number of pages and mean change rate, 1/day, of each section."""
START = datetime(2026, 1, 1, tzinfo=UTC)


def main() -> None:
    """Write the log to standard output, a line for each crawl in the order of time."""
    rng = random.Random(23)  # noqa: S311 - a simulation, no secret
    pages = [
        (f"https://example.com/{section}/{i}", rng.gammavariate(0.5, 2 * mean))
        for section, (n_pages, mean) in SECTIONS.items()
        for i in range(n_pages)
    ]
    versions = dict.fromkeys(pages, 0)
    log = csv.writer(sys.stdout, lineterminator="\n")
    log.writerow(("url", "t", "status", "digest"))
    for day in range(N_DAYS):
        for i, page in enumerate(pages):
            url, rate = page
            if day:
                versions[page] += rng.expovariate(rate) < 1
            at = START + timedelta(days=day, seconds=20 * i)
            log.writerow((url, f"{at:%Y-%m-%dT%H:%M:%SZ}", 200, f"v{versions[page]}"))


if __name__ == "__main__":
    main()
