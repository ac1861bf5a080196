"""Needs of a service: each kind is a small pure function of plain values. Pure.

To add a kind takes five lines or so. Write a function from `Facts` to conditions and a `NeedKind`,
both in the module of their subject, and put the kind into `KINDS`. A fact that is not read yet is a
field of `facts.Facts`. The metrics, the console, the command and `GET /status` show the kind by
themselves:

    def windows_never_open(facts: Facts) -> Iterator[Found]:
        for host in facts.closed_hosts:
            yield Found(host.name, host.closed_since, {"host": host.name})

    WINDOW_NEVER_OPENS = NeedKind("window_never_opens", windows_never_open,
         "Open a window for {host}: none opens within a week.", "recrawl hosts list")

`since` is the instant at which the condition began, by what is stored. It is never the time of the
question.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from service.model.acceptances import Acceptance
from service.status import (
    budget_needs,
    crawler_needs,
    epoch_needs,
    host_needs,
    page_needs,
    webhook_needs,
)
from service.status.facts import Facts
from service.status.kinds import Found, NeedKind

MOST_LISTED = 3
"""Maximum number of needs of one kind; more become one."""

KINDS = (
    epoch_needs.EPOCH_FAILING,
    epoch_needs.EPOCH_LATE,
    crawler_needs.NO_CRAWLER,
    crawler_needs.HOST_WITHOUT_CRAWLER,
    crawler_needs.CRAWLS_FAILING,
    host_needs.HOST_PAUSED,
    host_needs.HOST_IN_INCIDENT,
    host_needs.WINDOW_NEVER_OPENS,
    host_needs.WINDOW_TOO_NARROW,
    host_needs.DELAY_TOO_LONG,
    webhook_needs.WEBHOOKS_HELD,
    webhook_needs.WEBHOOK_FAILING,
    webhook_needs.WEBHOOK_DISABLED,
    webhook_needs.SUBSCRIPTION_ENDING,
    budget_needs.MINIMA_EXCEED_BUDGET,
    budget_needs.BUDGET_UNUSED,
    budget_needs.BUDGET_EXCEEDED,
    page_needs.NO_CONTENT,
    page_needs.NEW_PAGES_GROW,
    page_needs.URL_GROUPS_STOPPED,
    crawler_needs.WORKER_LOSING,
    crawler_needs.LEASES_RETURNED,
)
"""Every kind, the most urgent first."""


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


class AcceptedNeed(NamedTuple):
    """An acceptance in force, and what it accepts."""

    acceptance: Acceptance
    need: Need | None
    """None: the condition does not hold now."""


class Judged(NamedTuple):
    """The needs by the facts."""

    needs: list[Need]
    """Needs that nobody has accepted, the most urgent kinds first."""
    accepted: list[AcceptedNeed]
    """Acceptances in force, in the order of the kinds."""


def judged(facts: Facts) -> Judged:
    """Return what needs somebody, and what an operator has accepted.

    A condition that began after its acceptance is another one, which nobody has accepted.
    """
    needs, accepted = list[Need](), list[AcceptedNeed]()
    for kind in KINDS:
        own = {each.subject: each for each in facts.acceptances if each.kind == kind.name}
        others, covered = list[Found](), dict[str, Found]()
        for condition in kind.find(facts):
            acceptance = own.get(condition.subject)
            if acceptance is None or _is_later(kind, condition, acceptance):
                others.append(condition)
            else:
                covered.setdefault(condition.subject, condition)
        needs += _listed(kind, others)
        again = {each.subject for each in others} - covered.keys()
        for subject, acceptance in own.items():
            if subject not in again:
                one = covered.get(subject)
                accepted.append(AcceptedNeed(acceptance, None if one is None else _need(kind, one)))
    return Judged(needs, accepted)


def needs_of(facts: Facts) -> list[Need]:
    """Return what needs somebody, the most urgent kinds first."""
    return judged(facts).needs


def _is_later(kind: NeedKind, condition: Found, acceptance: Acceptance) -> bool:
    return kind.since_stays and condition.since > acceptance.accepted_at


def _need(kind: NeedKind, condition: Found) -> Need:
    sentence, remedy = (text.format(**condition.values) for text in (kind.sentence, kind.remedy))
    return Need(kind.name, condition.subject, condition.since, sentence, remedy)


def _listed(kind: NeedKind, conditions: Sequence[Found]) -> list[Need]:
    needs = [_need(kind, each) for each in conditions]
    if len(needs) <= MOST_LISTED:
        return needs
    worst, n, since = needs[0], len(needs), min(each.since for each in needs)
    sentence = f"{n:,} of this kind, the worst first. {worst.sentence}"
    return [Need(kind.name, worst.subject, since, sentence, kind.of_many or worst.remedy, n)]
