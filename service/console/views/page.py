"""One page: its crawls, how stale its copy becomes, its change rate, and the reason."""

from datetime import datetime, timedelta
from typing import NamedTuple

import numpy as np
from fastapi import Response

from recrawl_client.wire.listing import BulkAnswer, LogAnswer
from recrawl_client.wire.pages import CrawlAnswer, PageAnswer
from service.api.routes import bulk, listing, pages
from service.console.charts import (
    Picture,
    Rule,
    Shape,
    Tick,
    across,
    area,
    line,
    pace_ticks,
    round_ticks,
    time_ticks,
    up,
)
from service.console.render import every, percent, span
from service.console.views.hosts import hours_picture
from service.console.visit import Visit
from service.estimation.freshness import stale_between_crawls
from service.estimation.posterior import RateDensities, rate_densities
from service.model.arrays import Floats, Instants, instant, moments
from service.model.outcome_words import WORD, outcome_of_status, result_word
from service.model.outcomes import Outcome
from service.model.words import counted

CRAWLS = 200
"""Maximum number of entries of the log that the strip shows."""
DAY_S = 86_400
NOTABLE = 0.01
"""Least deviation of the next crawl from the mean interval that the page names, a share."""
N_POINTS = 80
LOW = 0.05
"""Highest probability of a picture whose marks need a decimal place."""
LONGEST = timedelta(days=365)
"""Longest time after the last crawl that the forecast shows."""


class StaleCurve(NamedTuple):
    """P(the copy is stale) from the last crawl on, if no crawl comes."""

    at: list[datetime]
    stale: list[float]
    now: float
    """P(stale) now."""


def show(visit: Visit) -> Response:
    """Show one page."""
    page_id = visit.parameters("get_page")["page_id"]
    page = visit.ask(PageAnswer, pages.get_page, caller=visit.caller, page_id=page_id)
    log = visit.ask(
        LogAnswer, listing.list_observations, request=visit.request, page_id=page_id, limit=CRAWLS
    )
    forecast, densities = read(visit, page)
    return visit.page(
        "page.html",
        page=page,
        log=log.items,
        result=result,
        asks_price=bool(page.last_crawls) and result(page.last_crawls[0]) == WORD[Outcome.offered],
        pace=next_pace(page),
        strip=strip_picture(log.items, visit.now) if log.items else None,
        stale=None if forecast is None else forecast.now,
        forecast=None if forecast is None else forecast_picture(forecast, page, visit.now),
        rates=None if densities is None else rates_picture(densities, page),
        change_hours=None if page.change_hours is None else hours_picture(page.change_hours),
    )


def next_pace(page: PageAnswer) -> str:
    """Return the time until the next crawl where it is not that of the crawl rate, else ""."""
    if page.schedule is None or page.last_crawl_at is None or not page.schedule.crawl_rate:
        return ""
    following = page.schedule.next_crawl_at
    if following is None or following <= page.last_crawl_at:
        return ""
    seconds = (following - page.last_crawl_at).total_seconds()
    if abs(seconds * page.schedule.crawl_rate / DAY_S - 1) < NOTABLE:
        return ""
    return f"the next one {span(seconds)} after the last"


def recrawl(visit: Visit) -> Response:
    """Request a crawl of one page."""
    page_id = visit.parameters("get_page")["page_id"]
    body = visit.body(page_ids=[page_id])
    outcome = visit.ask(BulkAnswer, bulk.recrawl_pages, actor=visit.actor, body=body)
    if not outcome.matched:
        return show(visit)
    done = "crawl" if outcome.changed else "waiting"
    return visit.back(f"/console/pages/{page_id}", done)


def delete(visit: Visit) -> Response:
    """Delete one page."""
    page_id = visit.parameters("get_page")["page_id"]
    pages.delete_page(service=visit.service, actor=visit.actor, page_id=page_id)
    return visit.go("/console/pages", "page_deleted")


def read(visit: Visit, page: PageAnswer) -> tuple[StaleCurve | None, RateDensities | None]:
    """Return the forecast of a page and the densities of its change rate, by its estimator."""
    now = instant(visit.now)
    with visit.service.store.begin(write=False) as tx:
        columns = tx.freshness_columns(np.array([page.page_id]))
        if not len(columns):
            return None, None
        rules = visit.service.rules.of(tx)
        estimator, columns = rules.of_pages(tx, columns)
        forecast, crawled_at = None, page.estimate.last_observed_at
        if crawled_at is not None:
            at = _instants(crawled_at, page, visit.now)
            instants = np.append(at, now)
            stale = stale_between_crawls(tx, columns, estimator, now, instants, rules.feeds)
            forecast = StaleCurve(_moments(at), stale[:-1].tolist(), float(stale[-1]))
    return forecast, rate_densities(columns, estimator, now)


def _instants(crawled_at: datetime, page: PageAnswer, now: datetime) -> Instants:
    """Return instants from the last crawl until the next one, or until now if that is later."""
    following = page.schedule.next_crawl_at if page.schedule else None
    end = max(now, following or now, crawled_at + timedelta(minutes=1))
    end = min(end + (end - crawled_at) / 20, max(crawled_at + LONGEST, now))
    start, length = instant(crawled_at), np.timedelta64(end - crawled_at)
    shares: Floats = np.linspace(0.0, 1.0, N_POINTS)
    return start + (shares * length.astype(np.int64)).astype("m8[us]")


def _moments(at: Instants) -> list[datetime]:
    return [moment for moment in moments(at) if moment is not None]


# -- pictures


def strip_picture(log: list[CrawlAnswer], now: datetime) -> Picture:
    """Return the crawls and pings of a page over time; a crawl that found a change stands out."""
    start = min(log[-1].observed_at, now - timedelta(minutes=1))
    crawls = [entry for entry in log if entry.kind == "crawl"]
    n_changed = sum(bool(entry.changed) for entry in crawls)
    picture = Picture(
        title="Crawls and pings",
        description=f"{counted(len(crawls), 'crawl')}, {n_changed} of which found a change, and "
        f"{counted(len(log) - len(crawls), 'ping')} since {start:%Y-%m-%d %H:%M} UTC",
        height=80,
    )
    x = across(start.timestamp(), now.timestamp())
    for entry in log:
        kind, height = _mark(entry)
        title = f"{entry.observed_at:%Y-%m-%d %H:%M:%S} UTC: {_words(entry)}"
        place = x(entry.observed_at.timestamp())
        picture.rules.append(Rule(kind, place, title, 50 - height / 2, 50 + height / 2))
    picture.x_ticks = time_ticks(start, now, x)
    return picture


def _mark(entry: CrawlAnswer) -> tuple[str, float]:
    """Return the class of an entry of the strip, and its share of the height, percent."""
    if entry.kind == "ping":
        return "mark mark-c", 25
    if not _had_content(entry):
        return "mark mark-bad", 45
    return ("mark mark-b", 90) if entry.changed else ("mark mark-a", 45)


def _had_content(entry: CrawlAnswer) -> bool:
    """Return whether a crawl had content, or the answer that it is unchanged."""
    return not entry.robots_denied and outcome_of_status(entry.status) is Outcome.content


def result(entry: CrawlAnswer) -> str:
    """Return what an entry of the log found, in words."""
    if entry.kind == "ping":
        return "ping"
    if not _had_content(entry):
        return result_word(entry.status, robots_denied=entry.robots_denied)
    return {True: "changed", False: "unchanged", None: "first, or not compared"}[entry.changed]


def _words(entry: CrawlAnswer) -> str:
    return result(entry) if entry.status is None else f"{result(entry)}, status {entry.status}"


def forecast_picture(forecast: StaleCurve, page: PageAnswer, now: datetime) -> Picture:
    """Return the rise of P(stale) since the last crawl, with now and the next crawl."""
    start, end = forecast.at[0], forecast.at[-1]
    following = page.schedule.next_crawl_at if page.schedule else None
    picture = Picture(
        title="Probability that the copy is stale",
        description=f"{percent(forecast.now)} now; {percent(forecast.stale[-1])} at "
        f"{end:%Y-%m-%d %H:%M} UTC if no crawl comes",
    )
    highest = max(*forecast.stale, 0.01) * 1.1
    highest = min(highest, 1.0) if highest < 1.0 else 1.0
    x, y = across(start.timestamp(), end.timestamp()), up(0.0, highest)
    pairs = zip(forecast.at, forecast.stale, strict=True)
    path = line((x(at.timestamp()), y(p)) for at, p in pairs)
    picture.shapes = [Shape("fill-a soft", area(path)), Shape("line-a", path)]
    picture.x_ticks = time_ticks(start, end, x)
    picture.y_ticks = [
        Tick(y(v), f"{v:.0%}" if highest > LOW else f"{v:.1%}") for v in round_ticks(0, highest)
    ]
    picture.rules = [Rule("rule-now", x(now.timestamp()), "now")]
    if following is not None and start <= following <= end:
        picture.rules.append(Rule("rule-next", x(following.timestamp()), "next crawl"))
    return picture


def rates_picture(densities: RateDensities, page: PageAnswer) -> Picture:
    """Return the posterior of the change rate beside that of the page's URL group."""
    interval, estimate = page.estimate.credible_interval, page.estimate
    words = f"a change every {every(estimate.change_rate)}"
    if interval is not None:
        words += (
            f"; with probability 90%, between every {every(interval.high)} "
            f"and every {every(interval.low)}"
        )
    picture = Picture(title="Change rate", description=words, x_label="one change a …")
    low, high = float(densities.rate[0]), float(densities.rate[-1])
    tallest = [densities.page] + ([] if densities.url_group is None else [densities.url_group])
    x = across(low, high, log=True)
    y = up(0.0, max(float(each.max()) for each in tallest) * 1.08)

    def path(density: Floats) -> str:
        pairs = zip(densities.rate.tolist(), density.tolist(), strict=True)
        return line((x(rate), y(value)) for rate, value in pairs)

    if densities.url_group is not None:
        picture.shapes.append(Shape("line-b dashed", path(densities.url_group)))
    own = path(densities.page)
    picture.shapes += [Shape("fill-a soft", area(own)), Shape("line-a", own)]
    picture.x_ticks = pace_ticks(low, high, x)
    if low < estimate.change_rate < high:
        picture.rules = [Rule("rule-now", x(estimate.change_rate), "estimate")]
    return picture
