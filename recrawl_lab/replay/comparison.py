"""Policies side by side in one world: the measures of each, and their differences."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from recrawl_lab.policies.lineup import (
    HINDSIGHT,
    LINEUP,
    UNIFORM,
    Entrant,
    Game,
    PolicyKind,
    Progress,
)
from recrawl_lab.replay.calibration import PredictionGroups, calibration, later
from recrawl_lab.replay.measures import (
    ConfidenceInterval,
    Measures,
    Terms,
    interval,
    measured,
    resampled,
    terms,
)
from recrawl_lab.replay.staleness import averaged, uncrawled
from service.model.arrays import Floats

LEARNT_AFTER = 0.25
"""Share of the window after which predictions should be calibrated."""
NO_GAP = 0.01
"""Least gain of hindsight over uniform that counts as a gap, share of uniform's staleness."""
CURVE_BINS = 40
MIN_CRAWLS = 200
"""Minimum crawls of a policy for a verdict; below, each crawl moves the outcome by over 0.5 %."""
MIN_CHANGES = 100
"""Minimum changes of the site for a verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyMeasures:
    """Measures of one policy."""

    name: str
    n_crawls: int
    """Number of crawls without the first crawl of each page, the same for all policies."""
    bandwidth_used: float
    """Share of the bandwidth that was used."""
    terms: Terms
    curve: Floats
    """(B,) harmonic staleness within each bin of time."""
    calibration: PredictionGroups | None
    """Calibration of all predictions; None for a policy without predictions."""
    calibration_learnt: PredictionGroups | None
    """Calibration of the predictions after the first quarter of the window."""
    idle: frozenset[str] = frozenset()
    """As in `Replayed`."""

    @property
    def entrant(self) -> Entrant:
        """The policy."""
        return LINEUP[self.name]


def play(name: str, game: Game, progress: Progress | None = None) -> PolicyMeasures:
    """Play one policy of the lineup and return its measures."""
    world = game.world
    played = LINEUP[name].play(game, progress)
    crawls, predicted = played.crawls, played.predicted
    n_crawls, steps = len(crawls.at), uncrawled(world, crawls)
    return PolicyMeasures(
        name=name,
        n_crawls=n_crawls,
        bandwidth_used=n_crawls / (game.bandwidth * world.days),
        terms=terms(world, steps),
        curve=averaged(world, steps, CURVE_BINS).harmonic_curve,
        calibration=calibration(predicted),
        calibration_learnt=calibration(later(predicted, LEARNT_AFTER * world.days)),
        idle=played.idle,
    )


@dataclass(frozen=True)
class Comparison:
    """Outcomes of policies in one game, in the order of the table."""

    game: Game
    outcomes: Sequence[PolicyMeasures]

    def __contains__(self, name: str) -> bool:
        """Return whether a policy has played."""
        return name in self.measures

    @property
    def n_crawls(self) -> int:
        """Number of crawls that the bandwidth pays for."""
        return round(self.game.bandwidth * self.game.world.days)

    @property
    def n_changes(self) -> int:
        """Number of changes of the site."""
        return len(self.game.world.changed_at)

    @property
    def allows_verdict(self) -> bool:
        """True for enough crawls and changes to call one policy better than another."""
        return self.n_crawls >= MIN_CRAWLS and self.n_changes >= MIN_CHANGES

    @cached_property
    def measures(self) -> dict[str, Measures]:
        """Measures of the policies by name."""
        return {outcome.name: measured(outcome.terms) for outcome in self.outcomes}

    def interval(self, name: str, measure: str) -> ConfidenceInterval:
        """Return the bootstrap interval of one measure of a policy."""
        return interval(getattr(self._resamples, measure)[:, self._column[name]])

    def saving(self, name: str, than: str) -> tuple[float, ConfidenceInterval]:
        """Return the reduction of a policy's harmonic staleness, as a share of another's."""
        own, other = self.measures[name].harmonic, self.measures[than].harmonic
        saved = 1.0 - _ratio(self._harmonic(name), self._harmonic(than))
        return 1.0 - float(_ratio(own, other)), interval(saved)

    def gap_closed(self, name: str) -> tuple[float, ConfidenceInterval] | None:
        """Return a policy's gain over uniform as a share of hindsight's gain.

        Return None if one of the two has not played, or if hindsight gains nearly nothing.
        """
        if not {UNIFORM, HINDSIGHT} <= self.measures.keys():
            return None
        own, worst, best = (self.measures[n].harmonic for n in (name, UNIFORM, HINDSIGHT))
        if worst - best <= NO_GAP * worst:
            return None
        drawn, high, low = (self._harmonic(n) for n in (name, UNIFORM, HINDSIGHT))
        gap = np.where(high - low > NO_GAP * high, high - low, np.nan)
        return (worst - own) / (worst - best), interval((high - drawn) / gap)

    def best(self, kind: PolicyKind) -> str | None:
        """Return the policy of a kind with the least harmonic staleness, except uniform."""
        names = [o.name for o in self.outcomes if o.entrant.kind is kind and o.name != UNIFORM]
        return min(names, key=lambda name: float(self.measures[name].harmonic), default=None)

    @cached_property
    def _resamples(self) -> Measures:
        rng = np.random.default_rng(self.game.seed)
        return resampled([outcome.terms for outcome in self.outcomes], rng=rng)

    @cached_property
    def _column(self) -> dict[str, int]:
        return {outcome.name: column for column, outcome in enumerate(self.outcomes)}

    def _harmonic(self, name: str) -> Floats:
        return np.asarray(self._resamples.harmonic[:, self._column[name]])


def _ratio(value: float | Floats, base: float | Floats) -> Floats:
    """Return value over base, or 1 where the base is 0."""
    above, below = np.asarray(value, np.float64), np.asarray(base, np.float64)
    ratio: Floats = np.divide(above, below, out=np.ones(below.shape), where=below > 0)
    return ratio
