"""Policies for comparison by name, all with the same bandwidth.

    LINEUP[name].play(game, progress) -> Replayed

A `Game` is the input of all policies. Heuristics and policies that know the future return crawls
only. Policies that learn run through the service's use cases, and also return their predictions.
`chosen("default")`, `chosen("all")`, `chosen("parts")` and `chosen("recrawl,uniform")` return
lists of names.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from enum import StrEnum
from functools import partial

from recrawl_lab.errors import UnknownPolicy
from recrawl_lab.policies import plain
from recrawl_lab.policies.clairvoyant import clairvoyant
from recrawl_lab.policies.peers import PEERS
from recrawl_lab.policies.plain import Policy
from recrawl_lab.replay.closures import within
from recrawl_lab.replay.gated import replay_gated
from recrawl_lab.replay.replay import NOTHING, Replayed
from recrawl_lab.replay.staleness import Crawls
from recrawl_lab.worlds.world import World
from service.core.estimators import ESTIMATORS, make_estimator
from service.core.estimators.gamma import Gamma
from service.epochs.plan import Plan
from service.model.calendars import HourRules
from service.model.domain import Timing

STEP_INTERVALS = 0.5
LONGEST_STEP, LONGEST_WITHOUT_URGENCY = 1.0, 7.0
"""Maximum time between epochs, days: with and without URL groups that shift crawls.

The time is half the mean interval between crawls of a page, up to this maximum.
"""

HALF_LIFE_DAYS = 180.0

LOAN_DAYS = 3.0
"""Loan of the service's default settings, days of the budget."""

DEFAULT_GAMMA = Gamma(half_life_days=HALF_LIFE_DAYS)

DEFAULT_PLAN = Plan(
    make_estimator("bursty", half_life_days=HALF_LIFE_DAYS),
    retention=timedelta(days=730),
    audit_retention=timedelta(days=730),
    history_retention=timedelta(days=90),
    host_delay_s=1.0,
)
"""Plan of the service's default settings; a test compares it with the settings."""


class PolicyKind(StrEnum):
    """Knowledge of a policy."""

    today = "today"
    """No knowledge of change rates: policies of today's crawlers, and uniform crawling."""
    learning = "learning"
    """Results of its own crawls and change notices, through the service's use cases."""
    bound = "bound"
    """More than crawls can show, such as true change rates or the future.

    Mean rates bound no policy that learns timing: see `HINDSIGHT_KNOWS`.
    """


@dataclass(frozen=True, slots=True)
class Game:
    """Input of all policies."""

    world: World
    bandwidth: float
    """Bandwidth over all pages, crawls a day."""
    step: float | None = None
    """Time between epochs for policies that learn, days; None: suitable for each policy."""
    notices: Crawls | None = None
    """Change notices of pages that are not `announced`; None: only pages that are send notices."""
    seed: int = 1
    """Seed of a policy's random numbers."""
    windows: tuple[str, ...] = ()
    """Windows of the site, in which all policies crawl; none: it is always open."""

    @property
    def hours(self) -> HourRules:
        """The rules of all hosts."""
        return HourRules(self.windows or None)


Progress = Callable[[float], None]
"""Function that receives each day reached, from policies that play day by day."""


@dataclass(frozen=True, slots=True)
class Entrant:
    """A policy with its description."""

    name: str
    kind: PolicyKind
    description: str
    play: Callable[[Game, Progress | None], Replayed]


def suitable_step(world: World, bandwidth: float, *, with_urgency: bool = True) -> float:
    """Return a time between epochs in which a schedule hardly ages, days."""
    longest = LONGEST_STEP if with_urgency else LONGEST_WITHOUT_URGENCY
    return min(longest, STEP_INTERVALS * world.mean_pages / bandwidth)


def _crawled(policy: Policy, game: Game, progress: Progress | None) -> Replayed:
    crawls = within(policy(game.world, game.bandwidth), game.hours, game.world.days)
    if progress is not None:
        progress(game.world.days)
    return Replayed(crawls, NOTHING)


def _as_logged(game: Game, progress: Progress | None) -> Replayed:
    world = game.world
    if progress is not None:
        progress(world.days)
    return Replayed(Crawls(world.logged_page, world.logged_at), NOTHING)


def _learned(plan: Plan, game: Game, progress: Progress | None) -> Replayed:
    step = game.step or suitable_step(game.world, game.bandwidth, with_urgency=plan.with_urgency)
    return replay_gated(
        game.world,
        game.bandwidth,
        plan,
        step=step,
        loan_days=LOAN_DAYS,
        notices=game.notices,
        seed=game.seed,
        hours=game.hours,
        progress=progress,
    )


def _blind(
    name: str, policy: Policy, description: str, kind: PolicyKind = PolicyKind.today
) -> Entrant:
    return Entrant(name, kind, description, partial(_crawled, policy))


def _learner(name: str, plan: Plan, description: str) -> Entrant:
    return Entrant(name, PolicyKind.learning, description, partial(_learned, plan))


# -- the list

UNIFORM, RECRAWL, NOTIFIED, HINDSIGHT = "uniform", "recrawl", "told", "hindsight"
LOGGED = "as logged"

HINDSIGHT_KNOWS = (
    "the true mean change rate of every page but nothing of when changes come; policies that learn "
    "timing, from siblings or the hours of changes, may beat it, so it is no bound for them"
)
"""Knowledge of the policy `hindsight`, the object of a sentence whose verb is "knows"."""

WITHOUT_URGENCY = replace(
    DEFAULT_PLAN, estimator=DEFAULT_GAMMA, url_groups=False, change_hours=False
)
"""Plan of the papers' policies: only a page's own rate, estimated by Gamma, decides its crawls."""

OBJECTIVES = {
    "change-rate": ("change_rate", "ChangeRateCrawl: crawl rates in proportion to change rates"),
    "lambdacrawl-approx": ("approximate", "LambdaCrawlApprox: in proportion to importance"),
    "blc": ("binary", "BinaryLambdaCrawl: the binary optimum, which starves pages"),
    "blc-0.4": ("binary_floor", "the same with 40 % of the bandwidth shared out evenly"),
}
"""Objective and description by name; change rates are estimated by Gamma."""


PARTS: dict[str, tuple[Plan, str]] = {
    "recrawl-no-siblings": (
        replace(DEFAULT_PLAN, url_groups=False),
        "Recrawl without siblings: crawls of other pages of its URL group do not move a page",
    ),
    "recrawl-no-change-hours": (
        replace(DEFAULT_PLAN, change_hours=False),
        "Recrawl without change hours: the hours at which the pages of a host change do not count",
    ),
    "recrawl-no-group-hours": (
        replace(DEFAULT_PLAN, group_hours=False),
        "Recrawl without hours of URL groups: all pages of a host keep the hours of the host",
    ),
    "recrawl-no-ages": (
        replace(DEFAULT_PLAN, ages=False),
        "Recrawl without ages: new pages are expected to change as their siblings do",
    ),
    "recrawl-no-wide-revisions": (
        replace(DEFAULT_PLAN, wide_revisions=False),
        "Recrawl without wide revisions: a change of most pages of a host does not move the others",
    ),
}
"""Plan and description by name, of the default with one part left out."""


def plays_as_default(name: str, idle: Collection[str]) -> bool:
    """Return whether a policy plays the game of the default, in which some parts were idle.

    >>> plays_as_default("recrawl-no-ages", {"ages"}), plays_as_default("recrawl-no-ages", set())
    (True, False)
    """
    if name not in PARTS:
        return False
    plan, _ = PARTS[name]
    names = [field.name for field in fields(Plan)]
    without = {name for name in names if getattr(plan, name) != getattr(DEFAULT_PLAN, name)}
    return without <= set(idle)


def _variants() -> list[Entrant]:
    """Return LambdaCrawl with every valid pair of estimator and timing, without URL groups."""
    entrants = []
    for estimator, timing in _combinations():
        if refusal(estimator, timing):
            continue
        name = estimator.replace("_", "-")
        made = make_estimator(estimator, half_life_days=HALF_LIFE_DAYS)
        plan = replace(WITHOUT_URGENCY, estimator=made, timing=timing)
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
    """Return the service's reason to refuse an estimator under a timing, or "" if it is valid."""
    kind = ESTIMATORS[estimator]
    return "" if timing is Timing.poisson or kind.periodic_timing_ok else kind.refusal


LEFT_OUT: dict[str, str] = {
    f"lambdacrawl-{estimator.replace('_', '-')}": refusal(estimator, timing)
    for estimator, timing in _combinations()
    if refusal(estimator, timing)
}
"""Reasons why policies cannot be played, by name: the service refuses the plan."""

LINEUP: dict[str, Entrant] = {
    entrant.name: entrant
    for entrant in (
        Entrant(
            LOGGED, PolicyKind.today, "the crawls of the log, for --database alone", _as_logged
        ),
        _blind(UNIFORM, plain.uniform, "every page equally often"),
        *(_blind(name, peer.policy, peer.description) for name, peer in PEERS.items()),
        *(
            _learner(name, replace(WITHOUT_URGENCY, objective=objective), text)
            for name, (objective, text) in OBJECTIVES.items()
        ),
        *_variants(),
        _learner(RECRAWL, DEFAULT_PLAN, "the service with its default settings"),
        *(_learner(name, plan, text) for name, (plan, text) in PARTS.items()),
        _blind(
            HINDSIGHT,
            plain.hindsight,
            f"LambdaCrawl that knows {HINDSIGHT_KNOWS}; it receives change notices only with "
            "--pings true",
            PolicyKind.bound,
        ),
        _blind(
            NOTIFIED,
            partial(plain.with_true_rates, gamma=DEFAULT_GAMMA),
            "LambdaCrawl on the estimator gamma with a notice of every change at once: the "
            "cost of finding changes by crawling",
            PolicyKind.bound,
        ),
        _blind(
            "clairvoyant",
            clairvoyant,
            "knows the instant of every change, which no real policy can",
            PolicyKind.bound,
        ),
    )
}
"""Policies by the name in commands and reports, in the order of reports."""

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
"""Default policies: the best of today's practice, Recrawl, and the bounds."""

GROUPS: dict[str, tuple[str, ...]] = {
    "default": DEFAULT,
    "all": tuple(name for name in LINEUP if name != LOGGED),
    "parts": tuple(PARTS),
}
"""Names of policies by the name of a group."""


def chosen(names: str) -> tuple[str, ...]:
    """Return the policies of names and groups separated by commas, without duplicates.

    Raises
    ------
    UnknownPolicy
        No policy has this name, or the service refuses it; the message has all names or the reason.

    Examples
    --------
    >>> chosen("uniform, recrawl,uniform")
    ('uniform', 'recrawl')
    """
    names_by_order: dict[str, None] = {}
    for name in filter(None, map(str.strip, names.split(","))):
        if name in LEFT_OUT:
            raise UnknownPolicy(f"{name} cannot be played: the estimator {LEFT_OUT[name]}")
        if name not in GROUPS and name not in LINEUP:
            raise UnknownPolicy(
                f"no policy {name!r}; choose from the groups {', '.join(GROUPS)} and "
                f"{', '.join(LINEUP)}"
            )
        names_by_order.update(dict.fromkeys(GROUPS.get(name, (name,))))
    if not names_by_order:
        raise UnknownPolicy(f"name at least one policy: {', '.join((*GROUPS, *LINEUP))}")
    return tuple(names_by_order)
