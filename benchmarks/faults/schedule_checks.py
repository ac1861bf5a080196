"""Checks of the answers that readers of the schedule and of epochs received."""

from itertools import pairwise

from benchmarks.faults.history import EpochList, History, Walk
from benchmarks.faults.verdicts import Final, Verdict, by


def whole_epochs(history: History, final: Final) -> Verdict:
    """Check that a whole pass sees each page of its epoch once, and all passes the same pages."""
    walks = [walk for walk in history.of(Walk) if walk.whole and len({*walk.epochs}) == 1]
    pages: dict[int, set[int]] = {}
    wrong = []
    for walk in walks:
        epoch, distinct = walk.epochs[0], {*walk.pages}
        if len(distinct) < len(walk.pages):
            wrong.append(f"epoch {epoch}: {len(walk.pages) - len(distinct)} pages twice")
        if len(distinct) != final.epochs.get(epoch):
            wrong.append(f"epoch {epoch}: {len(distinct)} pages of {final.epochs.get(epoch)}")
        if distinct != pages.setdefault(epoch, distinct):
            wrong.append(f"epoch {epoch}: two readers saw different pages")
    return Verdict("epochs that were not whole", wrong, len(walks))


def one_schedule(history: History) -> Verdict:
    """Check that all answers of a pass have one epoch, and no later pass an older epoch."""
    walks = history.of(Walk)
    wrong = [
        f"{walk.client}: epochs {walk.epochs} in one walk"
        for walk in walks
        if len({*walk.epochs}) > 1
    ]
    wrong += [
        f"{later.client}: epoch {later.epochs[0]} after {earlier.epochs[0]}"
        for of_client in by(walks, "client")
        for earlier, later in pairwise(of_client)
        if later.epochs[0] < earlier.epochs[0]
    ]
    return Verdict("readers between two schedules", wrong, len(walks))


def lasting_epochs(history: History) -> Verdict:
    """Check that a published epoch never changes or disappears."""
    lists, facts, wrong = history.of(EpochList), dict[int, tuple[int, str]](), []
    for one_list in lists:
        numbers = [number for number, _, _ in one_list.epochs]
        if numbers != sorted({*numbers}, reverse=True):
            wrong.append(f"{one_list.client}: epochs {numbers}")
        for number, n_pages, finished_at in one_list.epochs:
            fact = (n_pages, finished_at)
            if facts.setdefault(number, fact) != fact:
                wrong.append(f"epoch {number}: {facts[number]}, then {fact}")
    newest = dict.fromkeys({one_list.client for one_list in lists}, 0)
    for one_list in lists:
        number = max((number for number, _, _ in one_list.epochs), default=0)
        if number < newest[one_list.client]:
            wrong.append(f"{one_list.client}: newest {number} after {newest[one_list.client]}")
        newest[one_list.client] = max(number, newest[one_list.client])
    return Verdict("published epochs that changed or disappeared", wrong, len(lists))
