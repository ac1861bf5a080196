"""Checks of acknowledged requests against the log, the states and the pages of the database."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from benchmarks.faults.history import History, Incident, Receipt, Registration, Report, Verdicts
from benchmarks.faults.nemeses import STEPS_S
from benchmarks.faults.verdicts import Entry, Final, State, Verdict

Sending = tuple[Entry, str]
"""An entry that was sent, and the lease under which it was sent ("" for none)."""
LONGEST_STEP_US = -int(min(STEPS_S) * 1e6)
"""Longest step of a clock into the past, microseconds."""
FOLLOWS_S = 1.5
"""Time after which a process follows a step of its clock, seconds."""


class Match(NamedTuple):
    """Assignment of the entries of the log to the entries that clients sent."""

    present: set[Sending]
    """Sent entries that are in the log, at their instant or at that of their lease."""
    strays: list[Entry]
    """Entries of the log that no client sent."""


def match(
    sendings: set[Sending], answered: set[Sending], stepped: set[Sending], log: Counter[Entry]
) -> Match:
    """Return which entries of the log belong to which entries that clients sent.

    The service dates a crawl no earlier than its lease, so the log may have a later instant than
    the crawler's report. Such an entry belongs to an earlier leased crawl of its page. Crawls among
    the `answered` come first, because any other crawl may have been refused.

    The service also dates a leased crawl no later than its own clock. The crawls among the
    `stepped`, which it may have taken while a clock was away, may be earlier by one step.
    """
    present = {sending for sending in sendings if sending[0] in log}
    free = sorted(log.keys() - {entry for entry, _ in sendings})
    owner: dict[Entry, Sending | None] = dict.fromkeys(free)
    unowned: dict[int, list[Entry]] = defaultdict(list)
    for entry in owner:
        unowned[entry[0]].append(entry)

    def finds(sending: Sending, tried: set[Entry]) -> bool:
        """Give an entry to a crawl; its owner finds another one (an augmenting path)."""
        for entry in unowned[sending[0][0]]:
            if entry not in tried and fits(sending, entry, is_stepped=sending in stepped):
                tried.add(entry)
                now = owner[entry]
                if now is None or finds(now, tried):
                    owner[entry] = sending
                    return True
        return False

    for sending in sorted(sendings - present, key=lambda s: (s not in answered, s)):
        if sending[1] and finds(sending, set()):
            present.add(sending)
    return Match(present, [entry for entry, sending in owner.items() if sending is None])


def fits(sending: Sending, entry: Entry, *, is_stepped: bool) -> bool:
    """Return whether a leased crawl of the page of an entry may have the instant of the entry."""
    stated = sending[0][1]
    return stated < entry[1] or (is_stepped and stated <= entry[1] + LONGEST_STEP_US)


def exactly_once(history: History, kind: int, entries: Sequence[Entry], name: str) -> Verdict:
    """Check that acknowledged reports are in the log exactly once, and nothing else is."""
    log = Counter(entries)
    operations = [
        (report, answer)
        for report, answer in history.operations(Report, Verdicts)
        if report.kind == kind
    ]
    answered = [(report, answer) for report, answer in operations if answer is not None]
    stepped = during_steps(history, operations)
    matched = match(
        {sending for report, _ in operations for sending in sendings(report)},
        {s for report, answer in answered if answer.n_logged for s in sendings(report)},
        stepped,
        log,
    )
    wrong = [f"{entry} is {n} times in the log" for entry, n in log.items() if n > 1]
    wrong += [f"{entry} is in the log but no client sent it" for entry in matched.strays]
    newest = latest(log)
    for report, answer in answered:
        n_present = sum(sending in matched.present for sending in sendings(report))
        if n_present < answer.n_logged:
            wrong.append(f"{n_present} of {report} are in the log, the answer was {answer}")
        n_overtaken = sum(
            newest.get(entry[0], -1) >= entry[1] - LONGEST_STEP_US * ((entry, lease) in stepped)
            for entry, lease in sendings(report)
        )
        if n_overtaken < answer.n_logged + answer.late:
            wrong.append(f"nothing newer than {report} is in the log, the answer was {answer}")
    return Verdict(name, wrong + accepted_twice(answered), len(answered))


def during_steps(
    history: History, operations: Iterable[tuple[Report, Verdicts | None]]
) -> set[Sending]:
    """Return the leased entries that the service may have taken while a clock was away."""
    steps = [one for one in history.of(Incident) if one.nemesis == "step-clock"]
    return {
        sending
        for report, answer in operations
        if report.lease
        and any(
            report.at <= step.at + FOLLOWS_S and (answer is None or step.since <= answer.at)
            for step in steps
        )
        for sending in sendings(report)
    }


def sendings(report: Report) -> list[Sending]:
    """Return the entries of a report with its lease."""
    return [(entry, report.lease) for entry in report.items]


def accepted_twice(answered: Iterable[tuple[Report, Verdicts]]) -> list[str]:
    """Return a message for each entry that more than one answer reports as accepted."""
    accepted = Counter(
        entry
        for report, answer in answered
        if answer.accepted == len(report.items)
        for entry in report.items
    )
    return [f"{entry} was accepted {n} times" for entry, n in accepted.items() if n > 1]


def latest(log: Iterable[Entry]) -> dict[int, int]:
    """Return the newest instant of each page."""
    newest: dict[int, int] = {}
    for page, at in log:
        newest[page] = max(at, newest.get(page, at))
    return newest


def counted_once(history: History, final: Final) -> Verdict:
    """Check that the state of each page is the sum of its log.

    After a backward step of its only clock, the service dates no state later than the new time. So
    after steps of clocks a state may be older than its log.
    """
    stepped = any(incident.nemesis == "step-clock" for incident in history.of(Incident))
    observed, changed = Counter[int](), Counter[int]()
    for crawl in final.crawls:
        observed[crawl.page_id] += crawl.evidence
        changed[crawl.page_id] += crawl.evidence and crawl.changed
    newest = latest((crawl.page_id, crawl.at) for crawl in final.crawls)
    wrong = []
    for page, state in final.states.items():
        log = State(observed[page], changed[page], newest.get(page))
        older = stepped and (state.last_crawl_at or 0) < (log.last_crawl_at or 0)
        if (state._replace(last_crawl_at=log.last_crawl_at) if older else state) != log:
            wrong.append(f"page {page}: {state}, its log: {log}")
    return Verdict("states that differ from the sum of the log", wrong, len(final.states))


def registered_once(history: History, final: Final) -> Verdict:
    """Check that acknowledged pages exist under the acknowledged number, even if sent often.

    A page of a database that was away has no number, and may have been committed.
    """
    operations = history.operations(Registration, Receipt)
    wrong = [
        f"{url}: page {page}, in the database {final.pages.get(url)}"
        for sent, answer in operations
        if answer is not None
        for url, page in zip(sent.urls, answer.page_ids, strict=True)
        if page is not None and final.pages.get(url) != page
    ]
    return Verdict("acknowledged pages that are missing", wrong, len(operations))
