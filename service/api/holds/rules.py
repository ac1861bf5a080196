"""The rule of holds: the first reason why a page is not crawled now. Pure.

`hold_of_page` asks the questions of `OF_PAGE` in their order, then `hold_of_turn` those of
`OF_TURN`, which are about the host queue, the budget and the crawlers. The first question with an
answer is the reason. The last one always has an answer: the page is ready.

| kind | held until | by |
| --- | --- | --- |
| `leased` | the end of the lease | the worker |
| `unreported`, `set_aside` | the end of the wait after leases without a report | the worker |
| `retired` | a ping or a request | |
| `waits_for_group` | crawls of its URL group, or the next filling of the queue | |
| `stopped` | first crawls of its URL group are worth it | the URL group |
| `unscheduled` | an epoch, a ping or a larger budget | |
| `host_paused` | the end of the pause | `site` or `operator` |
| `window_closed` | the opening of the next window, or its due time after that | the host or group |
| `not_due` | its due time | |
| `no_worker` | `recrawl worker` fills the queue of due pages | |
| `cap` | the next UTC day | the host or group |
| `budget` | the next UTC day, because the budget of today is spent | |
| `income` | the next crawl that the income of the budget allows | |
| `no_crawler` | a request for leases | |
| `host_busy` | its turn among the pages of its host | the host or group |
| `ready` | the next request for leases | |
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from shlex import quote

from service.api.holds.facts import PageNow, Turn
from service.api.holds.hold import Hold, first
from service.api.holds.standstill import SCHEDULED_NEXT, not_queued, with_remedy
from service.api.holds.turn import (
    hold_of_budget,
    hold_of_pause,
    hold_of_turn,
    hold_of_window,
    pause_beyond,
)
from service.api.responses.unfinished import remedy_of, what_ended
from service.ingest.redirects import MOST_BARREN, MOST_HOPS, MOST_TARGETS
from service.leases.due import MAX_DUE_DAYS
from service.model import outcome_words
from service.model.domain import Observability, Page
from service.model.outcomes import Outcome
from service.model.words import ahead, number

UNNAMED = "worker"
"""Name of a worker that has not named itself (`wire.leases.LeaseBody`)."""


def hold_of_page(page: PageNow, turn: Turn) -> Hold:
    """Return what holds a page now: exactly one reason, the first one."""
    return with_delay(_first_hold(page, turn), turn)


def _first_hold(page: PageNow, turn: Turn) -> Hold:
    held = first(question(page, turn) for question in OF_PAGE)
    if held is not None:
        return with_remedy(held, turn)
    due_at = page.due_at or turn.now
    held = hold_of_turn(turn, due_at)
    if page.page.feed and held.kind in ("no_crawler", "ready"):
        cause = "it is a feed, and the next request of `recrawl watch` gets it"
        held = replace(held, kind="ready", cause=cause, remedy="run `recrawl watch` to read it")
    if asks_price(page.page):
        return replace(held, cause=f"{_asks(page)}; {held.cause}")
    if page.page.gone:
        return replace(held, cause=f"{_how_gone(page)}; another check of it is due; {held.cause}")
    if not page.page.no_content:
        return held
    # what its site does holds the page more than its turn
    own = held.remedy or _remedy(page)
    return replace(held, remedy=own, cause=f"{_last_result(page)}; {held.cause}")


def is_held_alone(page: PageNow, turn: Turn) -> bool:
    """Return whether the page has a hold that needs neither caps nor crawlers."""
    return first(question(page, turn) for question in OF_PAGE) is not None


def _leased(page: PageNow, turn: Turn) -> Hold | None:
    lease = page.lease
    if lease is None or lease.until <= turn.now:
        return None
    ends = ahead(lease.until, turn.now)
    worker = "a worker" if lease.worker == UNNAMED else f"the worker {lease.worker}"
    cause = f"{worker} crawls it, under a lease that ends {ends}"
    if page.unfinished is not None:
        cause += f"; {what_ended(page.unfinished)}"
    return Hold(kind="leased", cause=cause, until=lease.until, by=lease.worker)


def _unreported(page: PageNow, turn: Turn) -> Hold | None:
    ended = page.unfinished
    if ended is None or ended.next_crawl_at is None or ended.next_crawl_at <= turn.now:
        return None
    next_at = ended.next_crawl_at
    tried = "it is set aside and tried once a day, next" if ended.is_set_aside else "it is tried"
    return Hold(
        kind="set_aside" if ended.is_set_aside else "unreported",
        cause=f"{what_ended(ended)}; {tried} {ahead(next_at, turn.now)}",
        remedy=remedy_of(ended),
        until=next_at,
        by=ended.worker,
    )


def _retired(page: PageNow, _: Turn) -> Hold | None:
    if not page.retired:
        return None
    one = page.page
    if one.gone:
        cause = f"{_how_gone(page)}, so it is crawled no more"
        again = "a ping or POST /pages with its url has it crawled once more"
    else:
        state = "no page redirects to it any more" if one.hops < 0 else "it has had no content"
        cause = f"only redirects led to it, and {state}, so it is crawled no more"
        again = "a ping or POST /pages with its url has it crawled"
    return Hold(kind="retired", cause=f"{cause}; {again}")


def _held(page: PageNow, turn: Turn) -> Hold | None:
    if not page.page.held or page.due_at is not None:  # a request admits a page
        return None
    if page.stopped_at is None:
        return _waiting(page, turn)
    if page.stop_by_rule:
        return Hold(
            kind="stopped",
            cause=f"a rule of an operator stops the first crawls of {page.stopped_at}",
            remedy=f"end the rule by `recrawl url-groups learn {quote(page.stopped_at)}` if you "
            "want it crawled",
            by=page.stopped_at,
        )
    if page.stop_forbidden:
        return Hold(
            kind="stopped",
            cause=f"robots.txt forbids most of the first crawls of {page.stopped_at}",
            remedy=f"stop its URL group by `recrawl url-groups stop {quote(page.stopped_at)}` for "
            "good, or delete the page",
            by=page.stopped_at,
        )
    group, url = quote(page.stopped_at), quote(page.page.url)
    return Hold(
        kind="stopped",
        cause=f"first crawls of {page.stopped_at} have brought too little that is new",
        remedy=f"admit its URL group by `recrawl url-groups admit {group}`, or this page by "
        f"`recrawl pages recrawl --url {url}`, if you want it crawled",
        by=page.stopped_at,
    )


def _waiting(page: PageNow, turn: Turn) -> Hold:
    """Return the hold of a page that waits for others of its URL group, and what holds those."""
    cause = (
        "it waits for its first crawl; pages of its URL group are crawled first, and their crawls "
        "admit more"
    )
    until = None
    if page.admits_at is not None:
        until = page.admits_at if page.admits_at > turn.now else None
        when = "in its next round" if until is None else ahead(until, turn.now)
        cause = (
            "it waits for its first crawl; no page of its URL group is admitted now, and the "
            f"service admits some {when}, or after the next epoch if that comes first"
        )
    held = Hold(kind="waits_for_group", cause=cause, until=until)
    group = hold_of_turn(turn, turn.now)
    if group.kind in ("ready", "host_busy"):
        return held
    return replace(held, cause=f"{cause}; {group.cause}", remedy=group.remedy)


def _unscheduled(page: PageNow, _: Turn) -> Hold | None:
    one = page.page
    if page.due_at is not None:
        return None
    if one.observability is Observability.complete:
        return Hold(kind="unscheduled", cause="only a ping leads to a crawl of it")
    if one.crawl_rate is None or _is_first_since(one, page.planned_at):
        return SCHEDULED_NEXT
    if asks_price(one):
        return Hold(
            kind="unscheduled",
            cause=f"{_asks(page)}, and other pages gain more from it",
            remedy="raise the budget if it shall be crawled",
        )
    if page.all_have_shares and one.importance and one.n_observations and not one.n_failures:
        # it had no copy when the epoch began: past crawls were reported after it
        return SCHEDULED_NEXT
    return Hold(
        kind="unscheduled",
        cause="other pages gain more from the budget, so it has no share of it",
        remedy="raise the budget or its importance if it shall be crawled",
    )


def asks_price(page: Page) -> bool:
    """Return whether the last crawl of a page got a price in place of content."""
    return page.outcome is Outcome.offered and bool(page.cost) and not page.gone


def _asks(page: PageNow) -> str:
    """Return the price that a site asks, as a clause."""
    unit = "" if page.unit == "crawls" else f" {page.unit}"
    copy = "" if page.page.last_observed_at else ", and it has had no content yet"
    return f"its site asks a price of {number(page.page.cost or 0.0)}{unit} for a crawl{copy}"


def _is_first_since(page: Page, planned_at: datetime | None) -> bool:
    """Return whether a page has had its first crawl since the plan, which so gave it no share."""
    crawled_at = page.last_crawl_at
    if crawled_at is None or planned_at is None or page.n_observations or page.n_failures:
        return False
    return crawled_at >= planned_at


def _paused(page: PageNow, turn: Turn) -> Hold | None:
    # a pause that ends before the page is due does not hold it
    pause = pause_beyond(turn, page.due_at or turn.now)
    return None if pause is None else hold_of_pause(pause, turn)


def _closed(page: PageNow, turn: Turn) -> Hold | None:
    due_at = page.due_at or turn.now
    held = hold_of_window(turn, min(due_at, _due_if_open(page) or due_at))
    if held is None or held.until is None or due_at <= held.until:
        return held
    # crawls are spread over the open time, so this one comes after the opening
    return replace(held, cause=f"{held.cause}; it is due {ahead(due_at, turn.now)}", until=due_at)


def _due_if_open(page: PageNow) -> datetime | None:
    """Return when a page would be due if its host were always open; None: not by its interval."""
    one = page.page
    crawled_at, requested_at = one.last_crawl_at, one.requested_at
    if crawled_at is None:
        return one.created_at
    if requested_at is not None and requested_at > crawled_at:
        return requested_at
    if one.gone or one.n_failures or one.outcome is Outcome.offered or not one.due_rate:
        return None
    days = one.interval_factor / one.due_rate
    return crawled_at + timedelta(days=days) if days < MAX_DUE_DAYS else None


def _not_due(page: PageNow, turn: Turn) -> Hold | None:
    one, due_at = page.page, page.due_at
    if due_at is None or due_at <= turn.now:
        return None
    cause, remedy, next_ = "", "", ahead(due_at, turn.now)
    if asks_price(one):
        cause = f"{_asks(page)}; the next crawl may pay it, and is due {next_}"
        remedy = "run `recrawl pages recrawl --url URL` to pay it sooner"
    elif one.gone:
        cause = f"{_how_gone(page)}; it is checked ever more rarely, next {next_}"
    elif one.no_content:
        remedy = _remedy(page)
        shareless = "it has no share of the budget, and is tried ever more rarely"
        cause = f"{_last_result(page)}; {shareless}, next {next_}{_unconfirmed(one)}"
    elif one.n_failures and one.last_observed_at is None:
        remedy = _remedy(page) if page.behind_wall else ""
        cause = f"{_last_result(page)}; it has had no content yet, and is tried again {next_}"
        cause += _unconfirmed(one)
    elif one.n_failures:
        remedy = _remedy(page) if page.behind_wall else ""
        cause = f"{_last_result(page)}; it is tried again {next_}{_unconfirmed(one)}"
    else:
        cause = f"it is due {next_}"
    spent = hold_of_budget(turn, due_at)
    # without a place in the queue, a budget with room brings no crawl
    if spent is None or (turn.standstill is not None and turn.standstill.queue_ended):
        return Hold(kind="not_due", cause=cause, remedy=remedy, until=due_at)
    return replace(spent, cause=f"{cause}; {spent.cause}")


def with_delay(hold: Hold, turn: Turn) -> Hold:
    """Return a hold of a page that its interval or its host's turns keep, with a delay too long."""
    if turn.slow is None or hold.kind not in ("not_due", "host_busy"):
        return hold
    remedy = hold.remedy or f"run `{turn.slow.remedy}` if its site allows it"
    if not hold.remedy and turn.slow.whose == "robots":
        remedy = "ask the site for a shorter delay"
    return replace(hold, cause=f"{hold.cause}; {turn.slow.cause}", remedy=remedy)


OF_PAGE: tuple[Callable[[PageNow, Turn], Hold | None], ...] = (
    _leased,
    _unreported,
    _retired,
    _held,
    _unscheduled,
    _paused,
    _closed,
    _not_due,
    not_queued,
)
"""Questions about a page, in their order."""


def _last_crawls(n: int) -> str:
    return "its last crawl" if n <= 1 else f"its last {n} crawls"


def _how_gone(page: PageNow) -> str:
    one, state = page.page, "is gone"
    if outcome_words.is_wall(one.outcome, page.status):
        return outcome_words.IS_WALL
    if one.redirects_to and not _loops(one):
        state = "has moved" if (target := moved_to(one)) is None else f"has moved to {target}"
    return f"it {state}, as {_last_crawls(one.n_failures)} found"


def moved_to(page: Page) -> str | None:
    """Return the URL to which a page has moved for good; None: it has not moved."""
    return page.redirects_to_url if page.gone and not _loops(page) else None


def _unconfirmed(page: Page) -> str:
    """Return which look makes no absent page gone, as the end of a clause; "" for another page."""
    if page.gone or page.outcome is not Outcome.absent:
        return ""
    # a request of a person confirms no sooner: a site in trouble answers 404 for some minutes, too
    return "; a second look within an hour, or within its interval if shorter, does not confirm it"


def _last_result(page: PageNow) -> str:
    """Return what the last crawls of a page without content found."""
    return last_result(page.page, page.status)


def last_result(page: Page, status: int | None) -> str:
    """Return what the last crawls of a page without content found, as a clause."""
    result = outcome_words.found(
        page.outcome, status, loops=_loops(page), target=page.redirects_to_url
    )
    return f"{_last_crawls(page.n_failures)} {result}{_not_followed(page)}"


def _remedy(page: PageNow) -> str:
    one = page.page
    return outcome_words.remedy(
        one.outcome,
        page.status,
        loops=_loops(one),
        target=one.redirects_to_url,
        shared=page.behind_wall,
    )


def _loops(page: Page) -> bool:
    """Return whether the last redirect of a page led to the page itself."""
    return page.redirects_to == page.page_id


def _not_followed(page: Page) -> str:
    """Return why the last redirect of a page was not followed, where it was not."""
    if page.outcome is not Outcome.elsewhere or page.redirects_to is not None:
        return ""
    if page.hops >= MOST_HOPS:
        return f", {MOST_HOPS} redirects away from a page that was asked for, which is the maximum"
    if page.n_targets >= MOST_TARGETS:
        return f", after {page.n_targets} other targets, which is the maximum"
    if page.n_targets >= MOST_BARREN:
        return ", after other targets, the last of which had no content"
    return ""
