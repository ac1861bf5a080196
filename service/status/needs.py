"""Needs of a service: each kind is a small pure function of plain values. Pure.

To add a kind takes five lines or so, all in this module: a function from `Facts` to conditions,
and a row of `KINDS`. A fact that is not read yet is a field of `facts.Facts`. The metrics, the
console, the command and `GET /status` show the kind by themselves:

    def windows_never_open(facts: Facts) -> Iterator[Found]:
        for host in facts.closed_hosts:
            yield Found(host.name, host.closed_since, {"host": host.name})

    NeedKind("window_never_opens", windows_never_open,
         "Open a window for {host}: none opens within a week.", "recrawl hosts list"),

`since` is the instant at which the condition began, by what is stored. It is never the time of the
question.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from math import isnan
from shlex import quote
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np

from service.model.arrays import NO_TIME, instant, moment
from service.model.incidents import SHOWN
from service.model.subscriptions import SubscriptionState, TroubledSubscription
from service.model.webhooks import TroubledWebhook
from service.model.words import counted, span
from service.model.words import moment as in_words
from service.status.budget_days import exceeded, unused
from service.status.facts import PATIENCE, Facts, reported_by
from service.status.growth import growth
from service.storage.queue.askers import KEPT
from service.storage.queue.signs import Asked

LATE_AFTER = 3
"""Number of intervals after which an epoch is late, as in the alert `RecrawlEpochOld`."""
LEAST_LATE = timedelta(minutes=2)
"""Minimum time after which an epoch is late, however short the interval is."""
READER_PATIENCE = timedelta(days=1)
"""The same for crawlers that read the schedule and have never asked for leases."""
UNANSWERED = 20
"""Minimum number of failed crawls in a row that are shown."""
LONG_PAUSE = timedelta(hours=1)
LATE_REPORT = timedelta(minutes=1)
"""Maximum time from a crawl, from which its pause counts, to its report, which begins it."""
MANY_FAILURES = 5
"""Failures in a row from which a host is shown, however short its pause is."""
HIGH, GROWN, FEWEST = 0.2, 0.05, 5
"""Share of pages without content that is high, its growth in a day, and the least number."""
A_DAY = timedelta(days=1)
LOST_WITHIN = timedelta(hours=1)
"""Time between two lost leases of one run."""
LOSES = 10
"""Minimum number of leases that a worker loses within the last hour."""
MOST_LISTED = 3
"""Maximum number of needs of one kind; more become one."""


class Found(NamedTuple):
    """A condition that holds."""

    subject: str
    since: datetime
    values: Mapping[str, Any] = {}
    """Values of the words in braces of `NeedKind.sentence` and `NeedKind.remedy`."""


class NeedKind(NamedTuple):
    """A kind of needs."""

    name: str
    find: Callable[[Facts], Iterator[Found]]
    """Function that yields what holds, the worst first."""
    sentence: str
    """The act, then the condition."""
    remedy: str
    """A command, or a request with its body."""
    of_many: str = ""
    """Remedy for more than `MOST_LISTED`; "": the same."""


class Need(NamedTuple):
    """Something that needs somebody."""

    kind: str
    subject: str
    """Name of a host, a worker and so on; that of the worst of several."""
    since: datetime
    sentence: str
    remedy: str
    n: int = 1
    """Number of subjects."""


def epochs_failing(facts: Facts) -> Iterator[Found]:
    """Yield that the last epochs failed; one that died with its worker and runs again is none."""
    n, since, reason = facts.epochs.failures
    if since is not None and (n > 1 or not facts.epochs.runs):
        epochs = "the last epoch" if n == 1 else f"the last {n:,} epochs"
        yield Found("epochs", since, {"epochs": epochs, "reason": (reason or "").rstrip(".")})


def epochs_late(facts: Facts) -> Iterator[Found]:
    """Yield that no epoch has begun for several intervals, or that one does not end."""
    epochs = facts.epochs
    act = "See the log of the server" if epochs.in_server else "Start a worker"
    values = {"act": act, "interval": _span(epochs.interval)}
    remedy = "recrawl epochs --limit 5" if epochs.in_server else "recrawl worker"
    if epochs.began_at is None:
        since, what = epochs.first_page_at, "no epoch has ever begun"
        late = since is not None and facts.at - since >= first_epoch_late(epochs.interval)
    else:
        since, ago = epochs.began_at + epochs.interval, _span(facts.at - epochs.began_at)
        what = f"an epoch has run for {ago}" if epochs.runs else f"no epoch has begun for {ago}"
        late = facts.at - epochs.began_at > epoch_late(epochs.interval)
    if late and since is not None:
        yield Found("epochs", since, {**values, "what": what, "remedy": remedy})


def epoch_late(interval: timedelta) -> timedelta:
    """Return the time from the begin of an epoch after which the next one is late."""
    return max(LATE_AFTER * interval, LEAST_LATE)


def first_epoch_late(interval: timedelta) -> timedelta:
    """Return the time from the first page on after which the first epoch is late."""
    return min(epoch_late(interval), PATIENCE)


def no_crawler(facts: Facts) -> Iterator[Found]:
    """Yield that pages are due and open, and that no crawler comes for them.

    A crawler is not missed while it holds leases, or waits for a Retry-After. If nobody takes
    leases, crawlers may read the schedule, or report, once a day.
    """
    ready_since, leases, schedule, leases_end, reported_by = facts.crawlers
    if ready_since is None or (leases_end is not None and leases_end > facts.at):
        return
    asked = [each for each in (leases, schedule) if each is not None]
    comes_by = [each.until for each in asked] + ([] if leases_end is None else [leases_end])
    if leases is None and reported_by is not None:
        comes_by.append(reported_by)
    since = max([ready_since, *comes_by])
    patience = READER_PATIENCE if leases is None and comes_by else PATIENCE
    if facts.at - since >= patience:
        last = "no crawler has ever asked for leases"
        if leases is not None:
            last = f"no crawler has asked for leases for {_span(facts.at - leases.at)}"
        elif comes_by:
            ago = _span(facts.at - max(comes_by))
            last = f"no crawler has read the schedule or reported for {ago}"
        due = _span(facts.at - ready_since)
        yield Found("crawlers", since, {"due": due, "last": last})


def unasked_since(
    at: datetime, asked: Asked | None, known_since: datetime | None
) -> datetime | None:
    """Return since when no crawler has asked for a host; None: one has lately, or is not missed.

    `known_since` is the time from which requests are known; None: none is.
    """
    if known_since is None:
        return None
    last = Asked(known_since, known_since) if asked is None else asked
    return max(last.at, at - KEPT) if at - last.until >= PATIENCE else None


def host_unasked(facts: Facts) -> Iterator[Found]:
    """Yield hosts with due pages that no crawler asks for, while some ask for others."""
    leases, schedule = facts.crawlers.leases, facts.crawlers.schedule
    reads = schedule is not None and facts.at - schedule.at < READER_PATIENCE
    if reads or leases is None or facts.at - leases.until >= PATIENCE:
        return
    missed = [
        (unasked_since(facts.at, host.asked, facts.asked_since), host) for host in facts.unasked
    ]
    for since, host in sorted(missed, key=lambda pair: pair[0] or facts.at):
        if since is not None:
            name = f"the group {host.name}" if host.is_group else host.name
            remedy = f"recrawl leases explain --host {host.name}"
            values = {
                "host": name,
                "ago": _span(facts.at - since),
                "remedy": "recrawl leases workers" if host.is_group else remedy,
            }
            yield Found(host.name, since, values)


def crawls_failing(facts: Facts) -> Iterator[Found]:
    """Yield that all crawls of the last steps failed, of whatever host.

    Sites fail one by one. If all fail at once, the network of the crawlers is more likely away, or
    it leads to a page of its own.
    """
    n, since = 0, None
    for step in reversed(facts.steps):
        if step.n_reported > step.n_failed:
            break
        if step.n_reported:
            n, since = n + step.n_reported, step.at
    last = reported_by(facts.steps)
    if since is None or last is None or n < UNANSWERED:
        return
    if facts.at - last < A_DAY:
        values = {"crawls": counted(n, "crawl"), "since": in_words(since)}
        yield Found("crawlers", since, values)


def hosts_paused(facts: Facts) -> Iterator[Found]:
    """Yield hosts that pause for long or again and again after trouble, but for an incident."""
    in_incident = {host for host, _ in facts.incidents}
    for pause in facts.pauses:
        if pause.name in in_incident and not pause.is_group:
            continue
        length = pause.until - pause.since + LATE_REPORT
        if length >= LONG_PAUSE or pause.n_failures >= MANY_FAILURES:
            remedy = f"recrawl pages list host={pause.name} state=failing --limit 10"
            values = {
                "host": f"the group {pause.name}" if pause.is_group else pause.name,
                "until": in_words(pause.until),
                "failures": counted(pause.n_failures, "failure"),
                "remedy": f"GET /groups/{pause.name}" if pause.is_group else remedy,
            }
            yield Found(pause.name, pause.since, values)


def hosts_in_incident(facts: Facts) -> Iterator[Found]:
    """Yield hosts whose changes are held back, because most pages suddenly show the same."""
    for host, incident in facts.incidents:
        values = {
            "host": host,
            "pages": counted(incident.n_pages, "page"),
            "shown": SHOWN[incident.kind],
            "since": in_words(incident.since),
            "until": in_words(incident.until),
            "remedy": f"recrawl hosts show {host}",
        }
        yield Found(host, incident.since, values)


def windows_never_open(facts: Facts) -> Iterator[Found]:
    """Yield hosts and groups whose windows and blackouts leave no opening within a year."""
    for closed in facts.never_open:
        host = f"the group {closed.name}" if closed.is_group else closed.name
        place = "groups" if closed.is_group else "hosts"
        yield Found(
            closed.name, closed.since, {"host": host, "remedy": f"GET /{place}/{closed.name}"}
        )


def windows_too_narrow(facts: Facts) -> Iterator[Found]:
    """Yield hosts that lose many crawls to their windows, by the plan of the epoch in force."""
    for host, wanted, by_delay, by_closures, began in facts.window_losses:
        since = facts.planned_at if isnan(began) else datetime.fromtimestamp(began, UTC)
        if since is None:
            continue
        open_time = f"{by_delay:,.0f} because its delay leaves no time for more while it is open"
        closures = f"{by_closures:,.0f} because pages are wanted more often than it opens"
        causes = [open_time] * (by_delay >= 1) + [closures] * (by_closures >= 1)
        values = {
            "host": host,
            "lost": f"{by_delay + by_closures:,.0f}",
            "wanted": counted(round(wanted), "crawl"),
            "causes": ", and ".join(causes),
            "remedy": f"recrawl hosts show {host}",
        }
        yield Found(host, since, values)


def webhooks_held(facts: Facts) -> Iterator[Found]:
    """Yield that no webhook sends, because the database may be a copy."""
    if facts.webhooks_held is not None:
        yield Found("webhooks", facts.webhooks_held, {"at": in_words(facts.webhooks_held)})


def webhooks_failing(facts: Facts) -> Iterator[Found]:
    """Yield webhooks whose address takes nothing."""
    for webhook in sorted(facts.webhooks, key=lambda each: each.since):
        if webhook.reason is None and facts.at - webhook.since >= PATIENCE:
            ever = "" if webhook.has_confirmed else ", and it has never taken any"
            values = {"ago": _span(facts.at - webhook.since), "ever": ever, **_named(webhook)}
            yield Found(webhook.id, webhook.since, values)


def webhooks_disabled(facts: Facts) -> Iterator[Found]:
    """Yield webhooks that the service has stopped."""
    for webhook in sorted(facts.webhooks, key=lambda each: each.since):
        if webhook.reason is not None:
            yield Found(webhook.id, webhook.since, _named(webhook))


def _span(length: timedelta) -> str:
    return span(length.total_seconds())


def _named(webhook: TroubledWebhook) -> dict[str, str]:
    """Return id and host alone, because everybody who reads may see them.

    The path of an address is often a secret, and the reason may repeat the address.
    """
    return {"id": webhook.id, "host": urlsplit(webhook.url).hostname or "its address"}


def budget_unused(facts: Facts) -> Iterator[Found]:
    """Yield that yesterday left much of the budget over, while pages waited."""
    if facts.budget is not None and (
        day := unused(facts.steps, facts.budget, facts.at, facts.unit_since)
    ):
        yield Found("budget", day.since, day.words())


def budget_exceeded(facts: Facts) -> Iterator[Found]:
    """Yield that crawls took more than the budget and its loan, by yesterday or today."""
    if facts.budget is not None and (
        days := exceeded(facts.steps, facts.budget, facts.at, facts.unit_since)
    ):
        yield Found("budget", days.since, days.words())


def no_content(facts: Facts) -> Iterator[Found]:
    """Yield that the share of pages without content is high, or has grown since a day before."""
    since, n, share = None, 0, 0.0
    last_day: deque[tuple[datetime, float]] = deque()
    before = None
    for step in facts.steps:
        if step.measured_at is None or not step.n_pages or step.n_no_content is None:
            continue
        n, share = step.n_no_content, step.n_no_content / step.n_pages
        while last_day and step.at - last_day[0][0] >= A_DAY:
            before = last_day.popleft()[1]
        last_day.append((step.at, share))
        grown = before is not None and share - before >= GROWN
        holds = n >= FEWEST and (share >= HIGH or grown)
        since = (since or step.measured_at) if holds else None
    if since is not None:
        yield Found("pages", since, {"pages": counted(n, "page"), "share": f"{share:.0%}"})


def new_pages_grow(facts: Facts) -> Iterator[Found]:
    """Yield that most pages wait for their first crawl, and that they grow all day."""
    if (more := growth(facts.steps, facts.at)) is not None:
        values = {
            "waiting": f"{more.n_waiting:,} of {counted(more.n_pages, 'page')}",
            "more": f"{more.n_more:,}",
        }
        yield Found("pages", more.since, values)


def url_groups_stopped(facts: Facts) -> Iterator[Found]:
    """Yield URL groups whose first crawls brought too little."""
    for group in facts.stopped:
        name, of = group.name, f"of its {counted(group.n_first, 'first crawl')}"
        act, remedy = f"Admit {name} or stop it for good", "recrawl url-groups list --stopped"
        counts = f"{group.n_new:,} {of} brought something new"
        if group.n_forbidden:
            act, remedy = f"Stop {name} for good", f"recrawl url-groups stop {quote(name)}"
            counts = f"robots.txt forbids {group.n_forbidden:,} {of}"
        yield Found(name, group.since, {"act": act, "counts": counts, "remedy": remedy})


def workers_losing(facts: Facts) -> Iterator[Found]:
    """Yield workers that lose most of their leases.

    Nothing stored counts the leases of one worker. It had at least those that it holds or has
    lost, and an even share of those that all workers took.
    """
    at, within = instant(facts.at), np.timedelta64(LOST_WITHIN)
    for worker in facts.workers:
        gaps = np.append(at, worker.lost_at[:-1]) - worker.lost_at
        run = worker.lost_at[: np.argmax(np.append(gaps > within, True))]
        n, since = int(np.sum(at - run <= within)), moment(min(run, default=NO_TIME))
        taken = max(worker.n_running + n, facts.n_leased / max(facts.n_workers, 1))
        if since is not None and n >= LOSES and 2 * n > taken:
            yield Found(worker.name, since, {"worker": worker.name, "leases": counted(n, "lease")})


def leases_returned(facts: Facts) -> Iterator[Found]:
    """Yield workers that return the leases of some pages again and again."""
    for worker, n, since in facts.returned:
        yield Found(worker, since, {"worker": worker, "pages": counted(n, "page")})


def subscriptions_ending(facts: Facts) -> Iterator[Found]:
    """Yield subscriptions at hubs that end, or never begin, unless somebody acts."""
    for each in facts.subscriptions:
        hosts = {
            "topic": urlsplit(each.topic).hostname or "its topic",
            "hub": urlsplit(each.hub).hostname or "its hub",
        }
        yield Found(hosts["topic"], each.since, {**hosts, "what": _end_of(each, facts.at)})


def _end_of(subscription: TroubledSubscription, at: datetime) -> str:
    expires_at = subscription.expires_at
    if subscription.state is SubscriptionState.denied:
        return f"the hub denied it {_span(at - subscription.since)} ago"
    if expires_at is None:
        return f"the hub has not verified it for {_span(at - subscription.requested_at)}"
    if expires_at <= at:
        return f"its lease ended {_span(at - expires_at)} ago"
    return f"its lease ends in {_span(expires_at - at)}, and no renewal has succeeded"


KINDS = (
    NeedKind(
        "epoch_failing",
        epochs_failing,
        "Mend the cause, because {epochs} failed: {reason}. The old schedule stays in force.",
        "recrawl epochs --limit 5",
    ),
    NeedKind(
        "epoch_late",
        epochs_late,
        "{act}: {what}, and one is due every {interval}.",
        "{remedy}",
    ),
    NeedKind(
        "no_crawler",
        no_crawler,
        "Start a crawler: pages have been due for {due}, and {last}.",
        "recrawl leases workers",
    ),
    NeedKind(
        "host_without_crawler",
        host_unasked,
        "Start a crawler that asks for {host}: its pages are due, and no crawler has asked for it "
        "for {ago}.",
        "{remedy}",
        "recrawl leases workers",
    ),
    NeedKind(
        "crawls_failing",
        crawls_failing,
        "See whether your crawlers reach the web: all of their last {crawls}, since {since}, "
        "failed.",
        "recrawl pages list state=failing --limit 10",
    ),
    NeedKind(
        "host_paused",
        hosts_paused,
        "See what {host} answers: it pauses until {until}, after {failures} in a row.",
        "{remedy}",
        "recrawl hosts list --paused",
    ),
    NeedKind(
        "host_in_incident",
        hosts_in_incident,
        "See what {host} shows: {pages} {shown} since {since}. Their changes are held back until "
        "other content comes, and count from {until} on if none does.",
        "{remedy}",
        "recrawl hosts list --paused",
    ),
    NeedKind(
        "window_never_opens",
        windows_never_open,
        "Open a window for {host}: none opens within a year.",
        "{remedy}",
    ),
    NeedKind(
        "window_too_narrow",
        windows_too_narrow,
        "Widen the windows of {host}, or accept it: it loses {lost} of {wanted} a day, {causes}.",
        "{remedy}",
    ),
    NeedKind(
        "webhooks_held",
        webhooks_held,
        "Confirm that webhooks may send: this database was restored or copied at {at}, and none "
        "sends since. A copy for a test needs nothing.",
        "recrawl send-webhooks",
    ),
    NeedKind(
        "webhook_failing",
        webhooks_failing,
        "Mend the webhook at {host}: it has taken no change for {ago}{ever}.",
        "GET /webhooks/{id}/deliveries",
        "GET /webhooks",
    ),
    NeedKind(
        "webhook_disabled",
        webhooks_disabled,
        "Mend the webhook at {host} and start it again: the service stopped it.",
        'PATCH /webhooks/{id} {{"paused": false}}',
        "GET /webhooks",
    ),
    NeedKind(
        "subscription_ending",
        subscriptions_ending,
        "Renew the subscription to {topic} at the hub {hub}: {what}.",
        "recrawl websub list",
    ),
    NeedKind(
        "budget_unused",
        budget_unused,
        "Start more crawlers, or lower the budget: {day} used {used} of {allowed}, while pages "
        "waited.",
        "recrawl leases workers",
    ),
    NeedKind(
        "budget_exceeded",
        budget_exceeded,
        "Let all crawlers take leases: {day} took {used}, but {allowed} were allowed.",
        "recrawl leases workers",
    ),
    NeedKind(
        "no_content",
        no_content,
        "See why {pages}, {share} of all, got no content.",
        "recrawl pages list state=no_content --limit 10",
    ),
    NeedKind(
        "new_pages_grow",
        new_pages_grow,
        "Stop the URL group with most waiting pages if it is a trap, or raise the budget: "
        "{waiting} were never crawled, {more} more than a day ago.",
        "recrawl url-groups list --limit 10",
    ),
    NeedKind(
        "url_groups_stopped",
        url_groups_stopped,
        "{act}: {counts}, so its new pages wait.",
        "{remedy}",
        "recrawl url-groups list --stopped",
    ),
    NeedKind(
        "worker_losing",
        workers_losing,
        "See whether {worker} still runs: it lost {leases} in the last hour, most of its own.",
        "recrawl leases workers",
    ),
    NeedKind(
        "leases_returned",
        leases_returned,
        "Read the log of {worker}: it has returned the leases of {pages} again and again. It may "
        "not crawl them, or they are of another spider.",
        "recrawl pages list state=unfinished --limit 10",
    ),
)
"""Every kind, the most urgent first."""


def needs_of(facts: Facts) -> list[Need]:
    """Return what needs somebody, the most urgent kinds first."""
    return [need for kind in KINDS for need in _of_kind(kind, list(kind.find(facts)))]


def _of_kind(kind: NeedKind, conditions: list[Found]) -> list[Need]:
    needs = [
        Need(
            kind.name,
            each.subject,
            each.since,
            kind.sentence.format(**each.values),
            kind.remedy.format(**each.values),
        )
        for each in conditions
    ]
    if len(needs) <= MOST_LISTED:
        return needs
    worst, n, since = needs[0], len(needs), min(each.since for each in needs)
    sentence = f"{n:,} of this kind, the worst first. {worst.sentence}"
    return [Need(kind.name, worst.subject, since, sentence, kind.of_many or worst.remedy, n)]
