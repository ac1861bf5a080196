"""What holds a page now: the first reason why it is not crawled, in words and values. Pure.

`hold_of_page` asks the questions of `OF_PAGE` in their order, then `hold_of_turn` those of
`OF_TURN`, which are about the host queue, the budget and the crawlers. The first question with an
answer is the reason. The last one always has an answer: the page is ready.

| kind | held until | by |
| --- | --- | --- |
| `leased` | the end of the lease | the worker |
| `unreported`, `set_aside` | the end of the wait after leases without a report | the worker |
| `retired` | a ping or a request | |
| `stopped`, `waits_for_group` | first crawls of its URL group are worth it | the URL group |
| `unscheduled` | an epoch, a ping or a larger budget | |
| `host_paused` | the end of the pause | `site` or `operator` |
| `not_due` | its due time | |
| `cap` | the next UTC day | the host or group |
| `budget` | the next room in the budget | |
| `no_crawler` | a request for leases | |
| `host_busy` | its turn among the pages of its host | the host or group |
| `ready` | the next request for leases | |
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeVar

from recrawl_client.wire.pages import HoldKind
from service.api.holds.facts import HostNow, PageNow, Pause, Turn
from service.api.responses.unfinished import remedy_of, what_ended
from service.ingest.redirects import MOST_BARREN, MOST_HOPS, MOST_TARGETS
from service.model import outcome_words
from service.model.arrays import LATEST
from service.model.domain import Observability, Page
from service.model.outcomes import Outcome
from service.model.words import ahead, counted, every, moment, number, span

QUIET = timedelta(minutes=10)
"""Time without a sign of a crawler after which a due page waits for one."""
LONG = timedelta(days=1)
"""Time until the turn of a page from which an operator may want a shorter delay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """The reason why a page is not crawled now."""

    kind: HoldKind
    cause: str
    """Clause on the reason."""
    remedy: str = ""
    """What to do; empty: nothing."""
    until: datetime | None = None
    """Earliest time of the crawl, as far as the reason tells it; None: it does not."""
    by: str | None = None
    """Who or what holds the page; None: nobody."""
    n_before: int = 0
    """Pages of the host queue that come before."""

    @property
    def sentence(self) -> str:
        """The reason as a sentence without a full stop, which begins with what to do."""
        return f"{self.to_do}: {self.cause}"

    @property
    def to_do(self) -> str:
        """What to do, in words."""
        return f"{self.remedy[:1].upper()}{self.remedy[1:]}" if self.remedy else "Nothing to do"


def hold_of_page(page: PageNow, turn: Turn) -> Hold:
    """Return what holds a page now: exactly one reason, the first one."""
    held = _first(question(page, turn) for question in OF_PAGE)
    if held is not None:
        return held
    due_at = page.due_at or turn.now
    held = hold_of_turn(turn, due_at)
    if not page.page.no_content:
        return held
    # what its site does holds the page more than its turn
    own = held.remedy or outcome_words.remedy(page.page.outcome, page.status)
    return replace(held, remedy=own, cause=f"{_last_result(page)}; {held.cause}")


def hold_of_turn(turn: Turn, due_at: datetime) -> Hold:
    """Return what holds a due page of a host queue whose own rules do not hold it."""
    held = _first(question(turn, due_at) for question in OF_TURN)
    return _ready(turn, due_at) if held is None else held


AnswerT = TypeVar("AnswerT")


def _first(answers: Iterable[AnswerT | None]) -> AnswerT | None:
    return next((answer for answer in answers if answer is not None), None)


# -- the page


def _leased(page: PageNow, turn: Turn) -> Hold | None:
    lease = page.lease
    if lease is None or lease.until <= turn.now:
        return None
    cause = f"the worker {lease.worker} crawls it, under a lease that ends {_at(lease.until, turn)}"
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
        cause=f"{what_ended(ended)}; {tried} {_at(next_at, turn)}",
        remedy=remedy_of(ended),
        until=next_at,
        by=ended.worker,
    )


def _retired(page: PageNow, _: Turn) -> Hold | None:
    if not page.retired:
        return None
    one = page.page
    if one.gone:
        state = "has moved" if one.redirects_to else "is gone"
        cause = f"it {state}, as {_last_crawls(one.n_failures)} found, so it is crawled no more"
        again = "a ping or POST /pages with its url has it crawled once more"
    else:
        state = "no page redirects to it any more" if one.hops < 0 else "it has had no content"
        cause = f"only redirects led to it, and {state}, so it is crawled no more"
        again = "a ping or POST /pages with its url has it crawled"
    return Hold(kind="retired", cause=f"{cause}; {again}")


def _held(page: PageNow, _: Turn) -> Hold | None:
    if not page.page.held:
        return None
    if page.stopped_at is None:
        cause = (
            "it waits for its first crawl; pages of its URL group are crawled first, and their "
            "crawls admit more"
        )
        return Hold(kind="waits_for_group", cause=cause)
    return Hold(
        kind="stopped",
        cause=f"first crawls of {page.stopped_at} have brought too little that is new, or a rule "
        "stops them",
        remedy="admit its URL group by PUT /url-groups, or this page by POST /pages/recrawl, if "
        "you want it crawled",
        by=page.stopped_at,
    )


def _unscheduled(page: PageNow, _: Turn) -> Hold | None:
    one = page.page
    if page.due_at is not None:
        return None
    if one.observability is Observability.complete:
        return Hold(kind="unscheduled", cause="only a ping leads to a crawl of it")
    if one.crawl_rate is None:
        return Hold(kind="unscheduled", cause="the next epoch schedules it")
    if one.outcome is Outcome.offered and one.cost:
        unit = "" if page.unit == "crawls" else f" {page.unit}"
        asks = f"its site asks a price of {number(one.cost)}{unit} for a crawl"
        return Hold(
            kind="unscheduled",
            cause=f"{asks}, and other pages gain more from it",
            remedy="raise the budget if it shall be crawled",
        )
    return Hold(
        kind="unscheduled",
        cause="other pages gain more from the budget, so it has no share of it",
        remedy="raise the budget or its importance if it shall be crawled",
    )


def _paused(page: PageNow, turn: Turn) -> Hold | None:
    # a pause that ends before the page is due does not hold it
    pause = _pause_beyond(turn, page.due_at or turn.now)
    return None if pause is None else _hold_of_pause(pause, turn)


def _not_due(page: PageNow, turn: Turn) -> Hold | None:
    one, due_at = page.page, page.due_at
    if due_at is None or due_at <= turn.now:
        return None
    cause, remedy, next_ = "", "", _at(due_at, turn)
    if one.gone:
        state = "has moved" if one.redirects_to else "is gone"
        found = f"it {state}, as {_last_crawls(one.n_failures)} found"
        cause = f"{found}; it is checked ever more rarely, next {next_}"
    elif one.no_content:
        remedy = outcome_words.remedy(one.outcome, page.status)
        shareless = "it has no share of the budget, and is tried ever more rarely"
        cause = f"{_last_result(page)}; {shareless}, next {next_}"
    elif one.n_failures and one.last_observed_at is None:
        cause = f"{_last_result(page)}; it has had no content yet, and is tried again {next_}"
    elif one.n_failures:
        cause = f"{_last_result(page)}; it is tried again {next_}"
    else:
        cause = f"it is due {next_}"
    return Hold(kind="not_due", cause=cause, remedy=remedy, until=due_at)


OF_PAGE: tuple[Callable[[PageNow, Turn], Hold | None], ...] = (
    _leased,
    _unreported,
    _retired,
    _held,
    _unscheduled,
    _paused,
    _not_due,
)
"""Questions about a page, in their order."""


# -- its turn


def _host_paused(turn: Turn, _: datetime) -> Hold | None:
    pause = _pause_beyond(turn, turn.now)
    return None if pause is None else _hold_of_pause(pause, turn)


def _pause_beyond(turn: Turn, due_at: datetime) -> Pause | None:
    """Return the pause that ends last, if it ends after now and after a due time."""
    last = max(turn.host.pauses, key=lambda pause: (pause.until, pause.by), default=None)
    return None if last is None or last.until <= max(due_at, turn.now) else last


def _hold_of_pause(pause: Pause, turn: Turn) -> Hold:
    until = (
        f"until {moment(pause.until)}, {span((pause.until - turn.now).total_seconds())} from now"
    )
    if pause.by == "operator":
        forever = pause.until >= LATEST
        until = "until an operator ends the pause" if forever else until
        cause = f"an operator has paused {pause.of} {until}"
        remedy = "end the pause if its pages shall be crawled"
        return Hold(kind="host_paused", cause=cause, remedy=remedy, until=pause.until, by=pause.by)
    cause = (
        f"{pause.of} is paused {until}, because it asked for a pause (429, 503, Retry-After), "
        "failed or did not answer"
    )
    return Hold(kind="host_paused", cause=cause, until=pause.until, by=pause.by)


def _capped(turn: Turn, _: datetime) -> Hold | None:
    cap = turn.host.cap
    if cap is None or cap.until <= turn.now:
        return None
    what = "first crawls" if cap.of_first else "crawls"
    goes_on = f"and goes on {_at(cap.until, turn)}"
    cause = (
        f"{cap.of} has had its {what} of today by its cap of {number(cap.crawls_a_day)} a day, "
        f"{goes_on}"
    )
    return Hold(
        kind="cap",
        cause=cause,
        remedy="raise the cap if the page shall be crawled sooner",
        until=cap.until,
        by=cap.of,
    )


def _spent(turn: Turn, _: datetime) -> Hold | None:
    until = turn.spent_until
    if until is None or until <= turn.now:
        return None
    if until >= LATEST:
        cause = "one crawl of it costs more than the budget of a day"
        return Hold(kind="budget", cause=cause, remedy="raise the budget if it shall be crawled")
    return Hold(
        kind="budget",
        cause=f"the budget is spent {_until(until, turn)}",
        remedy="wait, or raise the budget",
        until=until,
    )


def _unasked(turn: Turn, _: datetime) -> Hold | None:
    seen_at, since = turn.crawlers.seen_at, turn.crawlers.since
    if seen_at is not None and turn.now - seen_at < QUIET:
        return None
    asked = "no crawler has asked for leases or sent a report"
    if seen_at is None:
        cause = f"{asked} since the server began, {_ago(since, turn)}"
    else:
        cause = f"{asked} for {span((turn.now - seen_at).total_seconds())}"
    return Hold(kind="no_crawler", cause=cause, remedy="start a crawler")


def _busy(turn: Turn, _: datetime) -> Hold | None:
    host = turn.host
    if host.n_before:
        return _behind(turn)
    if host.opens_at is not None and host.opens_at > turn.now:
        pace = _pace_of(host) or "with a delay"
        cause = f"{host.name} is crawled {pace}, next {_at(host.opens_at, turn)}"
        return replace(_busy_host(host, cause), until=host.opens_at)
    if 0 < host.concurrency <= host.n_running:
        run = "a crawl" if host.n_running == 1 else counted(host.n_running, "crawl")
        verb = "runs" if host.n_running == 1 else "run"
        return _busy_host(host, f"{run} of {host.name} {verb}, which is the maximum at a time")
    return None


def in_turns(host: HostNow) -> Hold:
    """Return the hold of due pages of a host of which others are ready."""
    pace = _pace_of(host) or f"with {counted(host.concurrency, 'crawl')} at a time"
    return _busy_host(host, f"{host.name} is crawled {pace}, and others come first")


def _behind(turn: Turn) -> Hold:
    """Return the hold of a page that has others of its host before it."""
    host, pace = turn.host, _pace_of(turn.host)
    least = "at least " if host.n_before_is_least else ""
    verb = "is" if host.n_before == 1 else "are"
    cause = f"{least}{counted(host.n_before, 'page')} of {host.name} {verb} before it"
    if not pace:
        return _busy_host(host, cause)
    begin = max(host.opens_at or turn.now, turn.now)
    turn_at = begin + timedelta(seconds=host.delay_s * host.n_before)
    remedy = ""
    if turn_at - turn.now >= LONG and not host.by_robots:
        remedy = "lower the delay of the host if its site allows it"
    cause = f"{cause}, {pace}, so its turn is {_at(turn_at, turn)}, or later"
    return replace(_busy_host(host, cause), until=turn_at, remedy=remedy)


def _busy_host(host: HostNow, cause: str) -> Hold:
    return Hold(kind="host_busy", cause=cause, by=host.name, n_before=host.n_before)


def _pace_of(host: HostNow) -> str:
    """Return the pace of a host with a delay, in words; "" without one."""
    if host.delay_s <= 0:
        return ""
    asks = ", as its robots.txt asks" if host.by_robots else ""
    return f"once {every(86_400.0 / host.delay_s)}{asks}"


OF_TURN: tuple[Callable[[Turn, datetime], Hold | None], ...] = (
    _host_paused,
    _capped,
    _spent,
    _unasked,
    _busy,
)
"""Questions about the turn of a due page, in their order."""


def _ready(turn: Turn, due_at: datetime) -> Hold:
    since = "it is due now"
    if due_at < turn.now:
        since = f"it is due since {moment(due_at)}"
    return Hold(kind="ready", cause=f"{since}, and the next request for leases gets it", until=None)


# -- words


def _at(at: datetime, turn: Turn) -> str:
    return ahead(at, turn.now)


def _until(at: datetime, turn: Turn) -> str:
    return f"until {moment(at)}, {span((at - turn.now).total_seconds())} from now"


def _ago(at: datetime, turn: Turn) -> str:
    return f"{span(max((turn.now - at).total_seconds(), 0.0))} ago"


def _last_crawls(n: int) -> str:
    return "its last crawl" if n <= 1 else f"its last {n} crawls"


def _last_result(page: PageNow) -> str:
    """Return what the last crawls of a page without content found."""
    return last_result(page.page, page.status)


def last_result(page: Page, status: int | None) -> str:
    """Return what the last crawls of a page without content found, as a clause."""
    result = f"{outcome_words.found(page.outcome, status)}{_not_followed(page)}"
    return f"{_last_crawls(page.n_failures)} {result}"


def _not_followed(page: Page) -> str:
    """Return why the last redirect of a page was not followed, where it was not."""
    if page.outcome is not Outcome.elsewhere or page.redirects_to is not None:
        return ""
    if page.hops >= MOST_HOPS:
        return f", {MOST_HOPS} redirects away from a page that was asked for, which is the maximum"
    if page.n_targets >= MOST_TARGETS:
        return f", after {page.n_targets} other targets, which is the maximum"
    if page.n_targets >= MOST_BARREN:
        return f", after {page.n_targets} other targets, the last of which had no content"
    return ""
