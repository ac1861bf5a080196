"""The policies that are compared, by name, all under the same bandwidth.

    LINEUP[name].play(game, progress) -> Replayed

A `Game` is what all of them play. Those that crawl by heuristics or know the future give crawls
alone; those that learn play through the service's use cases, and also what they predicted.
`chosen("default")`, `chosen("all")` and `chosen("recrawl,uniform")` give lists of names.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from functools import partial

from recrawl_lab.errors import UnknownPolicy
from recrawl_lab.policies import plain
from recrawl_lab.policies.clairvoyant import clairvoyant
from recrawl_lab.policies.peers import PEERS
from recrawl_lab.policies.plain import Policy
from recrawl_lab.replay.replay import NOTHING, Replayed, replay
from recrawl_lab.replay.staleness import Crawls
from recrawl_lab.worlds.world import World
from service.core.estimators import ESTIMATORS, make_estimator
from service.core.estimators.gamma import Gamma
from service.epochs.solve import Plan
from service.model.domain import Timing

STEP_INTERVALS = 0.5
LONGEST_STEP, LONGEST_UNPACED = 1.0, 7.0
"""Days between epochs: half the mean interval between crawls of a page, at most a day, or a week
where siblings do not move crawls."""

HALF_LIFE_DAYS = 180.0

DEFAULT_GAMMA = Gamma(half_life_days=HALF_LIFE_DAYS)

DEFAULT_PLAN = Plan(
    make_estimator("bursty", half_life_days=HALF_LIFE_DAYS), retention=timedelta(days=730)
)
"""What the service does unless told otherwise; a test holds it equal to the settings."""


class PolicyKind(StrEnum):
    """What a policy knows."""

    today = "today"
    """Nothing of change rates: what crawlers do today, and uniform crawling."""
    learning = "learning"
    """What its own crawls and notices have shown, through the service's use cases."""
    bound = "bound"
    """More than crawls can show, or the future."""


@dataclass(frozen=True, slots=True)
class Game:
    """What policies play."""

    world: World
    bandwidth: float
    """Crawls a day, over all pages."""
    step: float | None = None
    """Days from one epoch to the next, for policies that learn; None: as suits each."""
    notices: Crawls | None = None
    """Change notices of pages that are not `announced`; None: there are only theirs."""
    seed: int = 1
    """Of what is random in a policy."""


Progress = Callable[[float], None]
"""Told each day reached, by policies that play day by day."""


@dataclass(frozen=True, slots=True)
class Entrant:
    """A policy, and what to say of it."""

    name: str
    kind: PolicyKind
    description: str
    play: Callable[[Game, Progress | None], Replayed]


def suitable_step(world: World, bandwidth: float, *, paced: bool = True) -> float:
    """Return the days between epochs in which a schedule hardly ages."""
    longest = LONGEST_STEP if paced else LONGEST_UNPACED
    return min(longest, STEP_INTERVALS * world.mean_pages / bandwidth)


def _crawled(policy: Policy, game: Game, progress: Progress | None) -> Replayed:
    crawls = policy(game.world, game.bandwidth)
    if progress is not None:
        progress(game.world.days)
    return Replayed(crawls, NOTHING)


def _learned(plan: Plan, game: Game, progress: Progress | None) -> Replayed:
    step = game.step or suitable_step(game.world, game.bandwidth, paced=plan.with_urgency)
    return replay(
        game.world,
        game.bandwidth,
        plan,
        step=step,
        notices=game.notices,
        seed=game.seed,
        progress=progress,
    )


def _blind(
    name: str, policy: Policy, description: str, kind: PolicyKind = PolicyKind.today
) -> Entrant:
    return Entrant(name, kind, description, partial(_crawled, policy))


def _learner(name: str, plan: Plan, description: str) -> Entrant:
    return Entrant(name, PolicyKind.learning, description, partial(_learned, plan))


# -- the list

UNIFORM, RECRAWL, TOLD, HINDSIGHT = "uniform", "recrawl", "told", "hindsight"

UNPACED = replace(DEFAULT_PLAN, estimator=DEFAULT_GAMMA, url_groups=False)
"""As the papers' policies are: each page is crawled by its own rates alone, learnt by Gamma."""

OBJECTIVES = {
    "change-rate": ("change_rate", "ChangeRateCrawl: crawl rates in proportion to change rates"),
    "lambdacrawl-approx": ("approximate", "LambdaCrawlApprox: in proportion to importance"),
    "blc": ("binary", "BinaryLambdaCrawl: the binary optimum, which starves pages"),
    "blc-0.4": ("binary_floor", "the same with 40 % of the bandwidth shared out evenly"),
}
"""Name -> objective and description; change rates are learnt by Gamma."""


def _variants() -> list[Entrant]:
    """LambdaCrawl with every estimator and timing that go together, without siblings."""
    entrants = []
    for estimator, timing in _combinations():
        if refusal(estimator, timing):
            continue
        name = estimator.replace("_", "-")
        made = make_estimator(estimator, half_life_days=HALF_LIFE_DAYS)
        plan = replace(UNPACED, estimator=made, timing=timing)
        if timing is Timing.poisson:
            clock, suffix = "on Poisson clocks", "-poisson"
        else:
            clock, suffix = "on time", ""
        text = f"LambdaCrawl with estimator {estimator}, crawls {clock}"
        entrants.append(_learner(f"lambdacrawl-{name}{suffix}", plan, text))
    return entrants


def _combinations() -> list[tuple[str, Timing]]:
    return [(estimator, timing) for timing in Timing for estimator in ESTIMATORS]


def refusal(estimator: str, timing: Timing) -> str:
    """Say why the service refuses an estimator under a timing; empty if it does not."""
    kind = ESTIMATORS[estimator]
    return "" if timing is Timing.poisson or kind.periodic_timing_ok else kind.refusal


LEFT_OUT: dict[str, str] = {
    f"lambdacrawl-{estimator.replace('_', '-')}": refusal(estimator, timing)
    for estimator, timing in _combinations()
    if refusal(estimator, timing)
}
"""Name -> why it cannot be played: the service refuses it."""

LINEUP: dict[str, Entrant] = {
    entrant.name: entrant
    for entrant in (
        _blind(UNIFORM, plain.uniform, "every page equally often"),
        *(_blind(name, peer.policy, peer.description) for name, peer in PEERS.items()),
        *(
            _learner(name, replace(UNPACED, objective=objective), text)
            for name, (objective, text) in OBJECTIVES.items()
        ),
        *_variants(),
        _learner(RECRAWL, DEFAULT_PLAN, "the service with its default settings"),
        _blind(
            HINDSIGHT,
            plain.hindsight,
            "LambdaCrawl that knows each page's true change rate from the start; of notices it "
            "hears only those of --pings true",
            PolicyKind.bound,
        ),
        _blind(
            TOLD,
            partial(plain.with_true_rates, gamma=DEFAULT_GAMMA),
            "LambdaCrawl on the estimator gamma, told of every change as soon as it is made: what "
            "it costs to find changes by crawling",
            PolicyKind.bound,
        ),
        _blind(
            "clairvoyant",
            clairvoyant,
            "knows the instant of every change: no policy can hope for it",
            PolicyKind.bound,
        ),
    )
}
"""By the name that commands and reports use, in the order of reports."""

DEFAULT = (
    UNIFORM,
    "fixed-tuned",
    "nutch-tuned",
    "stormcrawler-tuned",
    "change-rate",
    RECRAWL,
    HINDSIGHT,
    "clairvoyant",
)
"""What operators run today at its best, Recrawl, and the bounds."""

GROUPS: dict[str, tuple[str, ...]] = {"default": DEFAULT, "all": tuple(LINEUP)}


def chosen(names: str) -> tuple[str, ...]:
    """Return the policies that names and groups, separated by commas, stand for; each once.

    Raises
    ------
    UnknownPolicy
        None has this name, or the service refuses it; says which there are, or why.

    Examples
    --------
    >>> chosen("uniform, recrawl,uniform")
    ('uniform', 'recrawl')
    """
    names_by_order: dict[str, None] = {}
    for name in filter(None, map(str.strip, names.split(","))):
        if name in LEFT_OUT:
            raise UnknownPolicy(f"{name} is not played: the estimator {LEFT_OUT[name]}")
        if name not in GROUPS and name not in LINEUP:
            raise UnknownPolicy(
                f"there is no policy {name!r}; there are the groups {', '.join(GROUPS)} and "
                f"{', '.join(LINEUP)}"
            )
        names_by_order.update(dict.fromkeys(GROUPS.get(name, (name,))))
    if not names_by_order:
        raise UnknownPolicy(f"name at least one policy: {', '.join((*GROUPS, *LINEUP))}")
    return tuple(names_by_order)
