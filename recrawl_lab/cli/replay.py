"""`recrawl replay`: compare Recrawl with other policies on the past of a site."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from service.cli.options import finite

Weighting = Literal["equal", "lognormal", "column"]
HoursKind = Literal["daily", "cron", "flat", "bulk", "stops", "shifts"]
PingKind = Literal["none", "true", "delayed", "noisy", "sitemap", "lying-sitemap"]


def _site(*names: str, help: str, **bounds: Any) -> Any:  # noqa: A002 - as typer names it
    return typer.Option(*names, help=help, rich_help_panel="Site", **bounds)


def _bandwidth(help: str) -> Any:  # noqa: A002
    return typer.Option(help=help, min=1e-6, callback=finite, rich_help_panel="Bandwidth")


def _notices(help: str, **bounds: Any) -> Any:  # noqa: A002
    return typer.Option(help=help, callback=finite, rich_help_panel="Change notices", **bounds)


def _how(*names: str, help: str, **bounds: Any) -> Any:  # noqa: A002
    return typer.Option(*names, help=help, rich_help_panel="Run", **bounds)


Trace = Annotated[
    Path | None,
    _site(help="DIR/SITE of recorded changes (DIR/SITE.csv.gz, DIR/pages/SITE.pages.csv.gz)"),
]
CrawlLog = Annotated[
    Path | None,
    _site(help="CSV of a crawler: url, t and changed or digest; status, importance"),
]
Database = Annotated[
    str | None,
    _site(help="Database of a service, sqlite:///FILE or postgresql://…, to play its own log"),
]
Git = Annotated[Path | None, _site(help="Clone of the git repository of the site's sources")]
Rules = Annotated[
    list[str] | None,
    _site(
        "--map",
        metavar="REGEX=/PAGE",
        help=r"Rule from a file to its page, e.g. `docs/(.*)\.md=/\1/`; may be repeated",
    ),
]
Pages = Annotated[int, _site(min=2, help="Number of pages of a synthetic site")]
ChangeHours = Annotated[
    HoursKind | None,
    _site(help="Synthetic site of hosts with an hour each; `stops` and `shifts` at half-time"),
]
Days = Annotated[
    float | None,
    _site(callback=finite, min=1, help="Days up to the end; default all, 60 for a synthetic site"),
]
Importance = Annotated[
    Weighting | None, _site(help="Page importance; default equal, lognormal for a synthetic site")
]
Bulk = Annotated[
    bool, _site("--bulk/--no-bulk", help="Count revisions that touched over 200 pages at once")
]
Outages = Annotated[
    bool,
    _site("--outages", help="The site answers 404, 503, 429 or nothing for an hour a week"),
]
Windows = Annotated[
    str | None,
    _site(
        "--windows",
        metavar="WINDOWS",
        help="When the site may be crawled, such as '22:00-06:00 Europe/Berlin; Sun 02:00-03:00 "
        "UTC'; default always",
    ),
]
Bandwidth = Annotated[float | None, _bandwidth("Crawls a day over all pages")]
BandwidthPerPage = Annotated[
    float | None, _bandwidth("Crawls a day for each page; default 0.02, 0.2 for a synthetic site")
]
Pings = Annotated[
    PingKind,
    typer.Option(help="Kind of change notices for Recrawl", rich_help_panel="Change notices"),
]
PingShare = Annotated[float, _notices("Share of pages that send notices", min=0, max=1)]
PingDelay = Annotated[float, _notices("delayed: mean days", min=0)]
PingRecall = Annotated[float, _notices("noisy: share of changes with a notice", min=0, max=1)]
PingPrecision = Annotated[float, _notices("noisy: share of true notices", min=0.001, max=1)]
SitemapEvery = Annotated[float, _notices("sitemap: days between fetches", min=0.01)]
Policies = Annotated[str, _how(help="default, all, parts, or names separated by commas")]
ListOnly = Annotated[bool, _how("--list", help="List the policies and exit")]
Freshness = Annotated[
    bool,
    _how(
        "--freshness",
        help="Compare verdicts about copies with maximum ages, instead of policies",
    ),
]
Step = Annotated[
    float | None,
    _how(
        callback=finite,
        min=0.01,
        help="Days between epochs; default half a page's mean interval, up to 1",
    ),
]
Seed = Annotated[int, _how(min=0, help="Seed of all random numbers")]
Processes = Annotated[int | None, _how(min=1, help="Policies played at a time; default one a core")]
Out = Annotated[Path, _how(help="Folder for report.html, JSON and CSV")]


def replay(
    trace: Trace = None,
    crawl_log: CrawlLog = None,
    git: Git = None,
    database: Database = None,
    rules: Rules = None,
    pages: Pages = 2_000,
    change_hours: ChangeHours = None,
    days: Days = None,
    importance: Importance = None,
    bulk: Bulk = False,
    outages: Outages = False,
    windows: Windows = None,
    bandwidth: Bandwidth = None,
    bandwidth_per_page: BandwidthPerPage = None,
    pings: Pings = "none",
    ping_share: PingShare = 1.0,
    ping_delay: PingDelay = 1.0,
    ping_recall: PingRecall = 0.8,
    ping_precision: PingPrecision = 0.8,
    sitemap_every: SitemapEvery = 1.0,
    policies: Policies = "default",
    list_: ListOnly = False,
    freshness: Freshness = False,
    step: Step = None,
    seed: Seed = 1,
    processes: Processes = None,
    out: Out = Path("replay"),
) -> None:
    """Replay the past of a site, and compare Recrawl with other policies.

    Reads the changes of a site's pages. Then Recrawl and other policies crawl the pages with the
    same bandwidth, and the replay compares the staleness of their copies. Recrawl runs the
    service's code and knows only the results of its own crawls.

    Prints a table with conclusions, and writes --out/report.html with figures, and all numbers
    as JSON and CSV. Without --trace, --crawl-log, --database or --git the site is synthetic.
    """
    from recrawl_lab.cli.replay_run import PingSource, Source, judge, print_policies, run

    if list_:
        return print_policies()
    source = Source(
        trace,
        crawl_log,
        git,
        database,
        rules,
        pages,
        change_hours,
        days,
        importance,
        bulk,
        outages,
        windows,
    )
    notices = PingSource(pings, ping_share, ping_delay, ping_recall, ping_precision, sitemap_every)
    if freshness:
        return judge(source, notices, bandwidth, bandwidth_per_page, step, seed, out)
    return run(source, notices, bandwidth, bandwidth_per_page, step, policies, seed, processes, out)
