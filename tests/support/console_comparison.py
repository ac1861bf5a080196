"""The numbers of each view against SQL that was written apart from the service's own.

What only the estimator knows (freshness, posteriors, certificates) is no part of it: SQL cannot
read states. Their tests compare them with the functions of the core.
"""

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, NamedTuple

import httpx
import psycopg
from psycopg.rows import tuple_row

from support.console_life import HOST
from support.console_shown import Shown, same

FORCE = "(SELECT max(epoch) FROM epochs WHERE status = 'published')"
RATE = """CASE WHEN retry_rate > 0 AND (n_failures >= 3 OR NOT crawl_rate > 0)
    THEN retry_rate::float8 ELSE crawl_rate::float8 * urgency END"""
INTERVAL = f"least(interval_factor::float8 / greatest({RATE}, 1e-200), 36500)"
PLANNED = f"""
    CASE WHEN coalesce(n_failures, 0) = 0 THEN {INTERVAL}
    ELSE least(least({INTERVAL}, 1.0 / 24) * 2 ^ (n_failures - 1), 30.0) END
"""
"""Days from the last crawl of a page that has had a rate and failed, if at all, to the next one."""
DUE = f"""
    least(coalesce(last_crawl_at + {PLANNED} * interval '1 day', created_at),
        CASE WHEN last_crawl_at >= requested_at THEN NULL ELSE requested_at END)
"""
SCHEDULE = f"""(
    SELECT 64 * block + place - 1 AS page_id, epoch, change_rate[place] AS change_rate,
        crawl_rate[place] AS crawl_rate, urgency[place] AS urgency,
        crawl_probability[place] AS crawl_probability
    FROM schedule, generate_series(1, 64) AS place
    WHERE epoch = {FORCE} AND crawl_rate[place] >= 0
)"""
"""Rows of the schedule in force: a block has 64 pages, and -1 in the place of a page it has not."""
HAD_COPY = f"""
    page_id IN (
        SELECT page_id FROM observations WHERE kind = 0
        AND observed_at < (SELECT finished_at FROM epochs WHERE epoch = {FORCE})
    )
"""
"""Condition on a page that had a copy when the epoch came into force: first crawls are apart."""
USED = f"""
    SELECT sum(crawl_rate::float8) FROM {SCHEDULE} AS schedule WHERE {HAD_COPY}
"""
"""Crawls a day of these pages."""
PAGES = f"""
    pages JOIN page_states USING (page_id)
    LEFT JOIN {SCHEDULE} AS schedule ON schedule.page_id = pages.page_id
"""
STEP = "date_bin('10 minutes', observed_at, '1970-01-01Z')"


class Difference(NamedTuple):
    """A number of a view that SQL does not confirm."""

    view: str
    name: str
    shown: str
    expected: Any


Pairs = Iterator[tuple[str, str, Any]]
"""Name, text and expected value of each number."""


class Database:
    """The database at the instant of the views."""

    def __init__(self, url: str, now: datetime) -> None:
        self.connection = psycopg.connect(url, autocommit=True, row_factory=tuple_row)
        self.now = now

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    def rows(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a statement, which may use the parameter now."""
        return self.connection.execute(statement, {"now": self.now, **values}).fetchall()

    def one(self, statement: str, **values: Any) -> Any:
        """Return the first cell."""
        return self.rows(statement, **values)[0][0]


def overview(shown: Shown, sql: Database) -> Pairs:
    """Compare the state of the pages, and the counts of each step with the log."""
    ((n, never, overdue),) = sql.rows(
        f"SELECT count(*), count(*) FILTER (WHERE last_crawl_at IS NULL), "
        f"count(*) FILTER (WHERE {DUE} < %(now)s) FROM {PAGES} WHERE NOT gone"
    )
    yield "pages", shown.cards["Pages"][0], n
    yield "never crawled", shown.cards["Pages"][1].split()[0], never
    yield "overdue", shown.cards["Overdue"][0], overdue
    yield "epoch", shown.cards["Epoch in force"][0], sql.one(f"SELECT {FORCE}")
    yield (
        "pings",
        shown.facts.get("Pings", "0"),
        sql.one(
            "SELECT count(*) FROM observations WHERE kind = 1 "
            "AND observed_at > %(now)s - interval '1 day'"
        ),
    )
    blocked = sql.rows(
        "SELECT host, greatest(blocked_until, paused_until), host_queues.n_failures "
        f"FROM host_queues JOIN hosts ON host_id = queue_id WHERE {PAUSED} ORDER BY host_id LIMIT 8"
    )
    yield from _table(shown, "Paused hosts", ("Host", "Until", "Failures in a row"), blocked)
    steps = sql.rows(
        f"SELECT to_char({STEP} AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI'), count(*), "
        "count(*) FILTER (WHERE status >= 500), count(*) FILTER (WHERE changed = 1), "
        f"count(*) FILTER (WHERE changed = 0) FROM observations WHERE kind = 0 "
        f"AND observed_at > %(now)s - interval '1 day' GROUP BY {STEP}"
    )
    columns = [shown.column("Numbers of the last rows", name) for name in NUMBERS]
    cells = {time.removesuffix(" runs"): rest for time, *rest in zip(*columns, strict=True)}
    leased = dict(
        sql.rows(
            "SELECT to_char(date_bin('10 minutes', leased_at, '1970-01-01Z') AT TIME ZONE 'UTC', "
            "'YYYY-MM-DD HH24:MI'), count(*) FROM due_pages WHERE token IS NOT NULL GROUP BY 1"
        )
    )
    for time, *counts in steps:
        for name, text, value in zip(NUMBERS[2:], cells[time][1:], counts, strict=True):
            yield f"{name} from {time}", text, value
        yield f"Leased from {time}", cells[time][0], counts[0] + leased.pop(time, 0)
    for time, n_leases in leased.items():
        yield f"Leased from {time}", cells[time][0], n_leases


PAUSED = "greatest(blocked_until, paused_until) > %(now)s"
NUMBERS = ("From, UTC", "Leased", "Reported", "Failed", "Changed", "Wasted")


def _table(shown: Shown, table: str, names: tuple[str, ...], rows: list[tuple[Any, ...]]) -> Pairs:
    """Compare the first rows of a table, and their number; a part may be short if more follow."""
    if table not in shown.tables:  # an empty list is a sentence
        yield f"{table}: rows", "0", len(rows)
        return
    if shown.has_next:
        rows = rows[: len(shown.tables[table]["rows"])]
    yield f"{table}: rows", str(len(shown.tables[table]["rows"])), len(rows)
    for name, values in zip(names, zip(*rows, strict=True), strict=False):
        for i, (text, value) in enumerate(zip(shown.column(table, name), values, strict=True)):
            yield f"{table}: {name} {i + 1}", text, value


LISTED = f"""
SELECT url, importance, 86400 / nullif(change_rate, 0)::float8,
    86400 / nullif(crawl_rate, 0)::float8, n_changes || ' of ' || n_observations, last_crawl_at,
    CASE WHEN crawl_rate > 0 OR n_failures > 0 OR requested_at > last_crawl_at THEN {DUE} END
FROM {PAGES} WHERE {{where}} ORDER BY pages.page_id LIMIT 50
"""
OF_PAGES = (
    *("Page", "Importance", "Changes every", "Crawled every", "Changes seen"),
    *("Last crawl", "Next crawl"),
)


def pages(where: str) -> Callable[[Shown, Database], Pairs]:
    """Return the comparison of a list of pages with a condition."""

    def compare(shown: Shown, sql: Database) -> Pairs:
        table, rows = "List of pages", sql.rows(LISTED.format(where=where))
        yield from _table(shown, table, OF_PAGES, rows)
        if "or so" not in shown.head:
            n = sql.one(f"SELECT count(*) FROM {PAGES} WHERE {where}")
            yield "selected", shown.head.split()[1], n

    return compare


def page(shown: Shown, sql: Database) -> Pairs:
    """Compare the facts of the page that was crawled last, and its log."""
    page_id = int(shown.facts["Page"])
    ((importance, n, n_changes, n_pings, every_s, last, created),) = sql.rows(
        "SELECT importance, n_observations, n_changes, coalesce(n_pings, 0), "
        "86400 / nullif(crawl_rate, 0)::float8, last_crawl_at, created_at "
        f"FROM {PAGES} "
        "WHERE pages.page_id = %(page_id)s",
        page_id=page_id,
    )
    yield "importance", shown.facts["Importance"], importance
    yield "evidence", shown.facts["Crawls as evidence"], n
    yield "changes", shown.facts["Changes found"], n_changes
    yield "pings", shown.facts["Pings"], n_pings
    yield "crawled every", shown.cards["Crawled every"][0], every_s
    yield "last crawl", shown.facts["Last crawl"], last
    yield "registered", shown.facts["Registered"], created
    log = sql.rows(
        "SELECT to_char(observed_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI'), "
        "CASE kind WHEN 0 THEN 'crawl' ELSE 'ping' END, "
        "CASE WHEN kind = 1 THEN 'ping' WHEN status >= 500 THEN 'failed' "
        "WHEN changed = 1 THEN 'changed' WHEN changed = 0 THEN 'unchanged' "
        "ELSE 'first, or not compared' END, status "
        "FROM observations WHERE page_id = %(page_id)s "
        "ORDER BY observed_at DESC, kind DESC LIMIT 50",
        page_id=page_id,
    )
    yield from _table(shown, "Log", ("Instant, UTC", "Kind", "Result", "Status"), log)


HOSTS = """
SELECT host, coalesce(n_failures, 0)::int,
    CASE WHEN next_at IS NOT NULL THEN greatest(next_at, blocked_until, paused_until, %(now)s) END
FROM hosts
LEFT JOIN host_queues ON queue_id = host_id {where} ORDER BY host_id LIMIT 50
"""


def hosts(where: str) -> Callable[[Shown, Database], Pairs]:
    """Return the comparison of a list of hosts with a condition."""

    def compare(shown: Shown, sql: Database) -> Pairs:
        rows = [
            (host, n, at or "nothing queued") for host, n, at in sql.rows(HOSTS.format(where=where))
        ]
        names = ("Host", "Failures in a row", "Next lease")
        yield from _table(shown, "List of hosts", names, rows)

    return compare


def host(shown: Shown, sql: Database) -> Pairs:
    """Compare the sums and the first pages of a host."""
    ((host_id,),) = sql.rows("SELECT host_id FROM hosts WHERE host = %(host)s", host=HOST)
    ((n, crawl_rate),) = sql.rows(
        f"SELECT count(*), sum(crawl_rate::float8) FILTER (WHERE pages.{HAD_COPY.strip()}) "
        f"FROM {PAGES} WHERE pages.host_id = %(id)s",
        id=host_id,
    )
    ((queued, leased),) = sql.rows(
        "SELECT count(*) FILTER (WHERE coalesce(expires_at <= %(now)s, true)), "
        "count(*) FILTER (WHERE expires_at > %(now)s) FROM due_pages WHERE queue_id = %(id)s",
        id=host_id,
    )
    yield "pages", shown.cards["Pages"][0], n
    yield "crawls a day", shown.cards["Crawls a day"][0], crawl_rate
    yield "due soon", shown.cards["Due soon"][0], queued
    yield "leased", shown.cards["Leased"][0], leased
    first = sql.rows(
        f"SELECT url, 86400 / nullif(crawl_rate, 0)::float8 FROM {PAGES} "
        "WHERE pages.host_id = %(id)s ORDER BY pages.page_id LIMIT 8",
        id=host_id,
    )
    yield from _table(shown, "First pages", ("Page", "Crawled every"), first)


def epochs(shown: Shown, sql: Database) -> Pairs:
    """Compare the list of epochs."""
    rows = sql.rows(
        "SELECT epoch, status, n_pages, bandwidth, bandwidth_used / nullif(bandwidth, 0), "
        "finished_at FROM epochs ORDER BY epoch DESC LIMIT 50"
    )
    names = ("Epoch", "State", "Pages", "Budget a day", "Used", "Published")
    yield from _table(shown, "List of epochs", names, rows)


def epoch(shown: Shown, sql: Database) -> Pairs:
    """Compare an epoch with its schedule."""
    ((n, bandwidth),) = sql.rows(
        "SELECT count(*), (SELECT bandwidth FROM epochs WHERE epoch = "
        f"{FORCE}) FROM {SCHEDULE} AS schedule"
    )
    used = sql.one(USED)
    yield "pages", shown.cards["Pages"][0], n
    yield "bandwidth", shown.cards["Budget, crawls a day"][0], bandwidth
    yield "scheduled", shown.cards["Scheduled"][0], used / bandwidth


def plan(shown: Shown, sql: Database) -> Pairs:
    """Compare the pages of the busiest hosts of a plan."""
    n_pages = dict(
        sql.rows(
            "SELECT host, count(*) FROM pages JOIN hosts USING (host_id) "
            "WHERE host = ANY(%(hosts)s) GROUP BY 1",
            hosts=shown.column("Busiest hosts", "Host"),
        )
    )
    columns = (shown.column("Busiest hosts", name) for name in ("Host", "Pages"))
    for name, text in zip(*columns, strict=True):
        yield f"pages of {name}", text, n_pages[name]


def leases(shown: Shown, sql: Database) -> Pairs:
    """Compare leases and workers with the queue."""
    workers = sql.rows(
        "SELECT worker, count(*), min(expires_at) FROM due_pages WHERE expires_at > %(now)s "
        "GROUP BY worker ORDER BY count(*) DESC, worker"
    )
    yield "leases", shown.cards["Leases that run"][0], sum(row[1] for row in workers)
    yield "workers", shown.cards["Workers with leases"][0], len(workers)
    yield from _table(shown, "Workers", ("Worker", "Leases", "First to end"), workers)
    rows = sql.rows(
        "SELECT url, worker, leased_at, expires_at FROM due_pages JOIN pages USING (page_id) "
        "WHERE expires_at > %(now)s ORDER BY page_id LIMIT 50"
    )
    yield from _table(shown, "List of leases", ("Page", "Worker", "Began", "Ends"), rows)


def changes(shown: Shown, sql: Database) -> Pairs:
    """Compare the webhooks, and the last changes with the log."""
    hooks = sql.rows("SELECT url FROM webhooks ORDER BY created_at LIMIT 50")
    yield from _table(shown, "Webhooks", ("Address",), hooks)
    columns = [shown.column("Last changes", name) for name in ("Kind", "Page", "Found")]
    rows = [row for row in zip(*columns, strict=True) if row[0] == "changed"]
    logged = sql.rows(
        "SELECT url, observed_at FROM observations JOIN pages USING (page_id) "
        "WHERE changed = 1 AND url = ANY(%(urls)s)",
        urls=[url for _, url, _ in rows],
    )
    at = {(url, datetime.fromisoformat(text)) for _, url, text in rows}
    yield "changes in the log", str(len(at)), len(at & set(logged))
    newest = sql.one("SELECT max(observed_at) FROM observations WHERE changed = 1")
    yield "newest change", rows[0][2], newest


def access(shown: Shown, sql: Database) -> Pairs:
    """Compare keys and the audit."""
    keys = sql.rows("SELECT key_id, name, role, created_at FROM api_keys ORDER BY key_id LIMIT 200")
    yield from _table(shown, "Keys", ("Key", "Name", "Role", "Created"), keys)
    rows = sql.rows("SELECT entry, at, key, act, object FROM audit ORDER BY entry DESC LIMIT 50")
    yield from _table(shown, "Audit", ("Entry", "When", "Author", "Act", "Object"), rows)


class View(NamedTuple):
    """A view by its path, and its comparison."""

    path: str
    compare: Callable[[Shown, Database], Pairs] | None = None


def views(page_id: int, epoch_number: int, bandwidth: float, hook: str) -> tuple[View, ...]:
    """Return the views of the console."""
    overdue = f"NOT gone AND {DUE} < %(now)s"
    return (
        View("", overview),
        View("?range=30d"),
        View("/pages", pages("true")),
        View("/pages?state=overdue", pages(overdue)),
        View("/pages?state=failing", pages("NOT gone AND n_failures BETWEEN 1 AND 2")),
        View("/pages?state=no_content", pages("NOT gone AND n_failures >= 3")),
        View(f"/pages?host={HOST}", pages(f"url LIKE 'https://{HOST}/%%'")),
        View("/pages?change_rate_from=5", pages("change_rate >= 5")),
        View(f"/pages/{page_id}", page),
        View("/hosts", hosts("")),
        View("/hosts?blocked=true", hosts(f"WHERE {PAUSED}")),
        View(f"/hosts/{HOST}", host),
        View("/epochs", epochs),
        View(f"/epochs/{epoch_number}", epoch),
        View(f"/plan?bandwidth={bandwidth:g}", plan),
        View("/leases", leases),
        View("/changes", changes),
        View(f"/webhooks/{hook}"),
        View("/access", access),
    )


def places(client: httpx.Client, database: Database) -> tuple[View, ...]:
    """Return the views, with the page that was crawled last and the epoch in force."""
    hook = client.get("/webhooks").raise_for_status().json()["items"][0]["id"]
    newest = client.get("/epochs").raise_for_status().json()["items"][0]
    page_id = database.one("SELECT page_id FROM observations ORDER BY observed_at DESC, page_id")
    return views(page_id, newest["epoch"], 1.5 * newest["bandwidth"], hook)


def differences(view: View, shown: Shown, sql: Database) -> tuple[int, list[Difference]]:
    """Return the number of numbers that were compared, and those that differ."""
    if view.compare is None:
        return 0, []
    compared = list(view.compare(shown, sql))
    wrong = [
        Difference(view.path, name, text, value)
        for name, text, value in compared
        if not same(text.removeprefix("due "), value)
    ]
    return len(compared), wrong
