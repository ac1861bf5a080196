"""A running service at the start of a day, and a fleet that leases all that it can."""

from collections import Counter
from contextlib import contextmanager

from benchmarks.budget.trials import sites
from support.live_server import Clock, running

AT_ONCE = 1_000
"""URLs in one request."""
BUDGET = 30.0
RUDE = {"host_delay_s": 0, "host_concurrency": 0}


class Fleet:
    """Two workers that ask for crawls and report each with a new digest."""

    def __init__(self, live, *clients):
        self.live = live
        self.clients = clients or (live.client, live.client)
        self.crawls = Counter()
        """Number of crawls by day and host."""
        self.first = Counter()
        self.seen = set()

    def ask(self, count=1000):
        """Take all crawls that there are; return their number."""
        taken = 0
        for n, client in enumerate(self.clients):
            report = []
            while True:
                asked = {"count": count, "worker": f"w{n}", "report": report}
                answer = client.post("/leases", json=asked)
                assert answer.status_code == 200, answer.text
                self.answer = answer
                items = answer.json()["items"]
                if not items:
                    break
                taken += len(items)
                report = self.crawl(items)
        return taken

    def crawl(self, items):
        """Count leased crawls, and return their report."""
        at, day = self.live.clock().isoformat(), self.live.clock().date()
        for each in items:
            self.crawls[day, each["host"]] += 1
            self.first[day, each["host"]] += each["page_id"] not in self.seen
            self.seen.add(each["page_id"])
        return [
            {"lease": each["lease"], "observed_at": at, **self.found(each, at)} for each in items
        ]

    def found(self, crawl, at):
        """Return what a crawl found: fields of its report."""
        return {"digest": self.digest(crawl, at)}

    def digest(self, crawl, at):
        """Return the digest of a crawl's content."""
        return at

    def play(self, days, every_h=6.0, epochs=True):
        """Ask every so many hours; return the crawls of each day."""
        for _ in range(round(days * 24 / every_h)):
            self.ask()
            self.live.clock.advance(hours=every_h)
            if epochs:
                self.live.service.runner.run_once()
        return self.days()

    def of(self, host):
        """Return the crawls of a host on each day."""
        return [self.crawls[day, host] for day in self.dates()]

    def dates(self):
        """Return the days with crawls."""
        return sorted({day for day, _ in self.crawls})

    def days(self):
        """Return the crawls of each day."""
        days = Counter()
        for (day, _), n in self.crawls.items():
            days[day] += n
        return [days[day] for day in sorted(days)]


class FirstCrawlFleet(Fleet):
    """A fleet that notes the day of the first crawl of each URL; its real pages change each day."""

    def __init__(self, live, real=()):
        super().__init__(live)
        self.start, self.first_of = live.clock(), {}
        """Day of the first crawl of each URL."""
        self.real = frozenset(real)

    def crawl(self, items):
        day = (self.live.clock() - self.start).days
        for each in items:
            self.first_of.setdefault(each["url"], day)
        return super().crawl(items)

    def digest(self, crawl, at):
        return f"{crawl['url']} {at[:10]}"

    def register(self, urls):
        """Register URLs, a thousand in each request."""
        for begin in range(0, len(urls), AT_ONCE):
            self.live.register(*urls[begin : begin + AT_ONCE])

    def first_by_day(self):
        """Return the number of first crawls of all but the real pages, by day."""
        return Counter(day for url, day in self.first_of.items() if url not in self.real)


class JunkFleet(FirstCrawlFleet):
    """A fleet on real pages, which it has crawled on its first day, beside junk that comes later.

    `answer` returns what a crawl of junk finds.
    """

    def __init__(self, live, answer):
        super().__init__(live, {*sites(100), "https://lonely.example/p-good"})
        self.answer_of = answer
        self.register(sorted(self.real))
        self.play(days=1)
        assert len(self.first_of) == len(self.real)

    def found(self, crawl, at):
        is_real = crawl["url"] in self.real
        return super().found(crawl, at) if is_real else self.answer_of(crawl)


def filter_url(i):
    """Return a URL whose parameters have names of its own: a filter for each property."""
    chosen = [name for bit, name in enumerate("abcdefghijklm") if i >> bit & 1]
    return f"https://h0.example/d0/list?{'&'.join(f'{name}=1' for name in chosen) or 'z=1'}"


@contextmanager
def service(database_url, **options):
    """Serve a database at the start of a day, with a budget."""
    clock = Clock()
    clock.now = clock.now.replace(hour=0)
    given = {"bandwidth": BUDGET, "budget_loan": 0, "change_hours": False, **RUDE, **options}
    with running(database_url, clock=clock, **given) as live:
        yield live


def urls(n, host="a.example"):
    return [f"https://{host}/{i}" for i in range(n)]
