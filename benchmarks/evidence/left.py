"""What is left to play, and how long it takes: by the games that have been played."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from statistics import fmean
from typing import NamedTuple

from benchmarks.evidence.cells import (
    FIRST_SEED,
    OUTDATED,
    WEIGHTINGS,
    Cell,
    Choice,
    Line,
    cell_of,
    grid,
)
from recrawl_lab.policies.lineup import (
    HINDSIGHT,
    LINEUP,
    PARTS,
    RECRAWL,
    UNIFORM,
    PolicyKind,
)
from service.model.words import counted

COMPARED = (
    UNIFORM,
    "fixed-tuned",
    "nutch-tuned",
    "stormcrawler-tuned",
    "stormcrawler-news-tuned",
    "change-rate",
    "lambdacrawl-gamma",
    "lambdacrawl-bursty",
    RECRAWL,
    *PARTS,
    HINDSIGHT,
)
"""Policies that play in every cell."""
USUAL_SECONDS = {PolicyKind.learning: 30.0, PolicyKind.today: 2.0, PolicyKind.bound: 2.0}
"""CPU time of a game before any was played, seconds."""


class Task(NamedTuple):
    """A policy to play in a cell with a seed."""

    cell: Cell
    seed: int
    policy: str


def tasks(choice: Choice, policies: Collection[str] = COMPARED) -> list[Task]:
    """Return the games of a choice, the most important first.

    With equal importance the world has no seed. A policy without random numbers plays once there.
    """
    return [
        Task(cell, seed, policy)
        for cell, seed in grid(choice)
        for policy in policies
        if seed == FIRST_SEED or has_seeds(cell, policy)
    ]


def has_seeds(cell: Cell, policy: str) -> bool:
    """Return whether the games of a policy in a cell depend on the seed."""
    return cell.importance != WEIGHTINGS[0] or LINEUP[policy].kind is PolicyKind.learning


def left(every: list[Task], lines: list[Line]) -> list[Task]:
    """Return the games that have no line, or an outdated one."""
    done = {task_of(line) for line in lines if OUTDATED not in line}
    return [task for task in every if task not in done]


def task_of(line: Line) -> Task:
    """Return the game of a line."""
    return Task(cell_of(line), line["seed"], line["policy"])


def seconds(todo: Iterable[Task], lines: list[Line]) -> float:
    """Return the CPU time that games will take, by those of the same site and policy.

    A site or policy without a game is taken as the mean of what is known.
    """
    known: dict[tuple[str, str], list[float]] = defaultdict(list)
    for line in lines:
        known[line["site"], line["policy"]].append(line["cpu_seconds"])
    each = {pair: fmean(values) for pair, values in known.items()}
    by_policy: dict[str, list[float]] = defaultdict(list)
    for (_, policy), value in each.items():
        by_policy[policy].append(value)

    def usual(policy: str) -> float:
        if policy in by_policy:
            return fmean(by_policy[policy])
        return USUAL_SECONDS[LINEUP[policy].kind]

    return sum(each.get((task.cell.site, task.policy), usual(task.policy)) for task in todo)


def sentences(todo: list[Task]) -> Iterator[str]:
    """Yield what is not played, a sentence without a full stop for each setting."""
    seeds: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for task in todo:
        if task.policy == RECRAWL:
            seeds[task.cell.setting][task.cell.site].append(task.seed)
    every = defaultdict(set)
    for cell, _ in grid():
        every[cell.setting].add(cell.site)
    for setting, of_sites in seeds.items():
        sites: dict[str, list[str]] = defaultdict(list)
        for site, numbers in of_sites.items():
            sites[_listed(sorted(numbers))].append(site)
        parts = (
            f"{numbers} of {'every site' if {*names} == every[setting] else ', '.join(names)}"
            for numbers, names in sites.items()
        )
        yield f"{setting}: {'; '.join(parts)}"
    n_others = sum(task.policy != RECRAWL for task in todo)
    if n_others:
        yield f"{counted(n_others, 'game')} of other policies"


def _listed(seeds: list[int]) -> str:
    """Return seeds in words.

    >>> _listed([1, 2, 3]), _listed([4]), _listed([1, 3])
    ('seeds 1 to 3', 'seed 4', 'seeds 1, 3')
    """
    if len(seeds) == 1:
        return f"seed {seeds[0]}"
    if seeds == list(range(seeds[0], seeds[-1] + 1)):
        return f"seeds {seeds[0]} to {seeds[-1]}"
    return f"seeds {', '.join(map(str, seeds))}"


def duration(amount: float) -> str:
    """Return seconds as hours and minutes.

    >>> duration(59.0), duration(3_700.0)
    ('1 min', '1 h 2 min')
    """
    hours, minutes = divmod(round(amount / 60.0), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
