"""Checks of acknowledged requests against the log, the states and the pages of the database."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from benchmarks.faults.history import History, Incident, Receipt, Registration, Report, Verdicts
from benchmarks.faults.verdicts import Entry, Final, State, Verdict

Sending = tuple[Entry, str]
"""An entry that was sent, and the lease under which it was sent ("" for none)."""


class Match(NamedTuple):
    """Assignment of the entries of the log to the entries that clients sent."""

    present: set[Sending]
    """Sent entries that are in the log, at their instant or at that of their lease."""
    strays: list[Entry]
    """Entries of the log that no client sent."""


def match(sendings: set[Sending], answered: set[Sending], log: Counter[Entry]) -> Match:
    """Return which entries of the log belong to which entries that clients sent.

    The service dates a crawl no earlier than its lease, so the log may have a later instant than
    the crawler's report. Such an entry belongs to an earlier leased crawl of its page. Crawls among
    the `answered` come first, because any other crawl may have been refused.
    """
    present = {sending for sending in sendings if sending[0] in log}
    moved: dict[int, list[Sending]] = defaultdict(list)
    for sending in sorted(sendings - present, key=lambda s: (s not in answered, s)):
        if sending[1]:
            moved[sending[0][0]].append(sending)
    strays = []
    for entry in sorted(log.keys() - {entry for entry, _ in sendings}):
        candidates = moved[entry[0]]
        earlier = [sending for sending in candidates if sending[0] < entry]
        if earlier:
            candidates.remove(earlier[0])
            present.add(earlier[0])
        else:
            strays.append(entry)
    return Match(present, strays)


def exactly_once(history: History, kind: int, entries: Sequence[Entry], name: str) -> Verdict:
    """Check that acknowledged reports are in the log exactly once, and nothing else is."""
    log = Counter(entries)
    operations = [
        (report, answer)
        for report, answer in history.operations(Report, Verdicts)
        if report.kind == kind
    ]
    answered = [(report, answer) for report, answer in operations if answer is not None]
    matched = match(
        {sending for report, _ in operations for sending in sendings(report)},
        {s for report, answer in answered if answer.n_logged for s in sendings(report)},
        log,
    )
    wrong = [f"{entry} is {n} times in the log" for entry, n in log.items() if n > 1]
    wrong += [f"{entry} is in the log but no client sent it" for entry in matched.strays]
    newest = latest(log)
    for report, answer in answered:
        n_present = sum(sending in matched.present for sending in sendings(report))
        if n_present < answer.n_logged:
            wrong.append(f"{n_present} of {report} are in the log, the answer was {answer}")
        n_overtaken = sum(newest.get(page, -1) >= at for page, at in report.items)
        if n_overtaken < answer.n_logged + answer.late:
            wrong.append(f"nothing newer than {report} is in the log, the answer was {answer}")
    return Verdict(name, wrong + accepted_twice(answered), len(answered))


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
