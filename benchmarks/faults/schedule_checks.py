"""Checks of what readers of the schedule and of epochs have seen."""

from itertools import pairwise

from benchmarks.faults.history import EpochList, History, Walk
from benchmarks.faults.verdicts import Final, Verdict, by


def whole_epochs(history: History, final: Final) -> Verdict:
    """Whoever reads an epoch to its end sees each of its pages once, and everybody the same."""
    walks = [walk for walk in history.of(Walk) if walk.whole and len({*walk.epochs}) == 1]
    pages: dict[int, set[int]] = {}
    wrong = []
    for walk in walks:
        epoch, seen = walk.epochs[0], {*walk.pages}
        if len(seen) < len(walk.pages):
            wrong.append(f"epoch {epoch}: {len(walk.pages) - len(seen)} pages twice")
        if len(seen) != final.epochs.get(epoch):
            wrong.append(f"epoch {epoch}: {len(seen)} pages of {final.epochs.get(epoch)}")
        if seen != pages.setdefault(epoch, seen):
            wrong.append(f"epoch {epoch}: two readers saw different pages")
    return Verdict("epochs that were not whole", wrong, len(walks))


def one_schedule(history: History) -> Verdict:
    """All answers of one walk belong to one epoch, and no reader sees an older one later."""
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
    """A published epoch stays as it was, and a reader never sees it go."""
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
    return Verdict("published epochs that changed or vanished", wrong, len(lists))
