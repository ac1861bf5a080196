"""Verdicts about copies against fixed maximum ages, on the past of a site.

Recrawl crawls the site. Once in every step, a consumer asks about copies of random pages: of the
last crawls, and of any time in the last `OLDEST` days. A rule fetches a copy that is older than a
maximum age; a verdict fetches a copy that is stale with a probability above a tolerance. Answers
are stale where a copy had changed and was not fetched. At equal stale answers, the rule that
fetches less is better.

Two verdicts that know more bound what estimates can reach. Both know whether the copy had changed
by the page's last crawl, with the exact instants of its changes. For the time after that crawl, one
knows the page's mean change rate over the whole window, which contains the future. The other has
the posterior of all changes that the page had before that crawl.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from typing_extensions import override

from recrawl_lab.replay.calibration import PredictionGroups, calibration
from recrawl_lab.replay.playing import announcements, crawl
from recrawl_lab.replay.replay import LocalFleet, Predicted, instants_of
from recrawl_lab.replay.staleness import Crawls
from recrawl_lab.worlds.simulated_time import START, Clock, day_of, instant_of
from recrawl_lab.worlds.world import World
from service.core.checks import Bools, Floats
from service.core.estimators.gamma import Gamma, GammaState, gamma_unchanged
from service.core.prior import fit_gamma_prior
from service.epochs.plan import Plan
from service.estimation.freshness import read_freshness
from service.estimation.rules import rules_in_force
from service.model.arrays import Ints, days, instant

AGES = {
    "1 hour": 1.0 / 24.0,
    "6 hours": 0.25,
    "1 day": 1.0,
    "3 days": 3.0,
    "7 days": 7.0,
    "14 days": 14.0,
    "30 days": 30.0,
}
"""Maximum ages by name, days."""
OLDEST = 60.0
"""Maximum age of a copy of any time, days."""
N_TUNED = 200
"""Number of maximum ages in the search for the tuned one, which does best."""
LEAST_STALE = 0.05
"""Share of the stale copies that a maximum age must leave and avoid to be the tuned one. Beyond, it
fetches nearly everything or nothing."""
COPIES = 300_000
"""Maximum number of copies of each kind."""
BOUNDS = ("rate known", "past known")
"""Verdicts that know more than crawls show."""
LEARNT_AFTER = 0.25
"""Share of the window after which copies are judged."""


class Judged(NamedTuple):
    """(K,) copies with their verdicts and the truth."""

    page: Ints
    at: Floats
    """Day of the question."""
    age: Floats
    """Age of the copy, days."""
    stale: Floats
    """Probability that the copy is stale, by the verdict."""
    was_stale: Bools
    bounds: Floats
    """(K, len(BOUNDS)) the same probability by the verdicts that know more."""


class Line(NamedTuple):
    """A maximum age, and the verdict with as many stale answers."""

    age: str
    fetched: float
    """Share of the copies that the maximum age fetches."""
    stale: float
    """Share of the answers that are stale."""
    max_stale: float
    """Tolerance of the verdict with as many stale answers."""
    fetched_by_verdict: float
    saved: float
    """Share of the fetches that the verdict saves."""
    bounds: tuple[float, ...]
    """Shares of the fetches that the `BOUNDS` save."""


@dataclass(frozen=True, slots=True)
class Study:
    """Verdicts against maximum ages on one site, for copies of one kind."""

    n_copies: int
    share_stale: float
    """Share of the copies that are stale."""
    calibration: PredictionGroups | None
    lines: list[Line]


class QuestionedFleet(LocalFleet):
    """A fleet whose service is asked about copies after epochs, at most once in `every` days."""

    def __init__(
        self, world: World, clock: Clock, plan: Plan, seed: int, n_questions: int, every: float
    ) -> None:
        super().__init__(world, clock, plan, seed)
        self.plan = replace(self.plan, retention=None)  # verdicts read the log
        self._rng = np.random.default_rng([seed, 7])
        self._n_questions, self._every = n_questions, every
        self._next = LEARNT_AFTER * world.days
        self._judged: dict[str, list[Judged]] = {"last crawl": [], "any time": []}

    @property
    def judged(self) -> dict[str, Judged]:
        """All verdicts by the kind of copies."""
        return {
            kind: Judged(*map(np.concatenate, zip(*parts, strict=True)))
            for kind, parts in self._judged.items()
            if parts
        }

    @override
    def new_epoch(self) -> None:
        super().new_epoch()
        day = day_of(self.clock())
        if day >= self._next:
            self._next = day + 0.999 * self._every  # epochs with change hours are more frequent
            self._ask(day)

    def _ask(self, day: float) -> None:
        """Judge copies of random pages, chosen by importance."""
        world, rng = self.world, self._rng
        alive = np.flatnonzero((world.created < day) & (world.ended > day) & (self._page_id > 0))
        with self.store.begin(write=False) as tx:
            there = tx.freshness_columns(self._page_id[alive])
            alive = np.sort(self._page[there.page_id])
            if not len(alive):
                return
            weight = world.importance[alive] / world.importance[alive].sum()
            page = rng.choice(alive, self._n_questions, p=weight)
            pages = there.take(np.searchsorted(there.page_id, self._page_id[page]))
            any_time = np.maximum(day - rng.uniform(0.0, OLDEST, len(page)), world.created[page])
            last_crawl = days(pages.last_observed_at - instant(START))
            estimator = rules_in_force(tx, self.rules).estimator
            now_version = self._versions.at(page, np.full(len(page), day))
            for kind, at in (("last crawl", last_crawl), ("any time", any_time)):
                now = instant(instant_of(day))
                stale = read_freshness(tx, pages, instants_of(at), estimator, now).stale
                was_stale = now_version > self._versions.at(page, at)
                bounds = self._bounds(page, at, last_crawl, day)
                asked = np.full(len(page), day)
                self._judged[kind].append(Judged(page, asked, day - at, stale, was_stale, bounds))

    def _bounds(self, page: Ints, at: Floats, last_crawl: Floats, day: float) -> Floats:
        """Return the probabilities of the verdicts that know more."""
        world = self.world
        start = np.maximum(at, last_crawl)
        changed = self._versions.at(page, start) > self._versions.at(page, at)
        every = np.flatnonzero(world.created < day)
        until = np.minimum(day, world.ended[every])
        prior = fit_gamma_prior(self._versions.at(every, until), until - world.created[every])
        n_changes, watched = self._versions.at(page, start), start - world.created[page]
        by_rate = np.exp(-world.change_rate[page] * (day - start))
        posterior = Gamma(prior).posterior(GammaState(n_changes, watched))
        by_past = gamma_unchanged(*posterior, np.asarray(day - start))
        return np.where(changed[:, None], 1.0, 1.0 - np.column_stack([by_rate, by_past]))


def study(
    world: World,
    bandwidth: float,
    plan: Plan,
    *,
    step: float = 1.0,
    notices: Crawls | None = None,
    seed: int = 1,
) -> dict[str, Study]:
    """Crawl a world by Recrawl's schedule and judge copies of its pages, by their kind."""
    clock = Clock()
    n_epochs = max(1, round((1 - LEARNT_AFTER) * world.days / step))
    n_questions = max(1, min(COPIES // n_epochs, 4 * len(world)))
    with_bandwidth = replace(plan, bandwidth=bandwidth)
    fleet = QuestionedFleet(world, clock, with_bandwidth, seed, n_questions, step)
    pings = announcements(world) if notices is None else notices
    for _ in crawl(fleet, clock, pings, bandwidth, step):
        pass
    return {kind: compared(judged) for kind, judged in fleet.judged.items()}


def compared(judged: Judged) -> Study:
    """Compare maximum ages with verdicts at equal stale answers."""
    predicted = Predicted(judged.page, judged.at, judged.stale, judged.was_stale)
    verdict, *bounds = (
        Ranking.of(each, judged.was_stale) for each in (judged.stale, *judged.bounds.T)
    )
    rankings = verdict, bounds
    lines = [_line(judged, *rankings, name, age) for name, age in AGES.items()]
    tuned = [
        _line(judged, *rankings, f"{age:.3g} days (tuned)", age) for age in _ages_between(judged)
    ]
    lines += sorted(tuned, key=lambda line: line.saved)[:1]
    share = float(judged.was_stale.mean())
    return Study(len(judged.age), share, calibration(predicted), lines)


def _ages_between(judged: Judged) -> list[float]:
    """Return maximum ages that fetch some of the stale copies and leave some."""
    shares = np.linspace(LEAST_STALE, 1.0 - LEAST_STALE, N_TUNED)
    stale = judged.age[judged.was_stale]
    return np.quantile(stale, shares).tolist() if len(stale) else []


class Ranking(NamedTuple):
    """Copies in the order of doubt."""

    probability: Floats
    """(K,) probabilities that the copies are stale, descending."""
    left: Ints
    """(K + 1,) stale copies that remain after the most doubtful ones were fetched."""

    @classmethod
    def of(cls, probability: Floats, was_stale: Bools) -> "Ranking":
        """Return the ranking by a verdict."""
        order = np.argsort(-probability, kind="stable")
        return cls(probability[order], was_stale.sum() - np.append(0, np.cumsum(was_stale[order])))

    def fetches(self, n_stale: int) -> int:
        """Return the number of fetches that leave `n_stale` answers stale."""
        return int(np.searchsorted(-self.left, -n_stale))


def _line(
    judged: Judged, verdict: Ranking, bounds: Sequence[Ranking], name: str, age: float
) -> Line:
    """Return a maximum age, and the verdicts that leave no more answers stale."""
    n, fetched = len(judged.age), judged.age > age
    n_stale, n_fetched = int((judged.was_stale & ~fetched).sum()), int(fetched.sum())
    k = verdict.fetches(n_stale)
    fetches = (k, *(bound.fetches(n_stale) for bound in bounds))
    saved, *by_bounds = (1.0 - each / n_fetched if n_fetched else 0.0 for each in fetches)
    return Line(
        age=name,
        fetched=n_fetched / n,
        stale=n_stale / n,
        max_stale=float(verdict.probability[k]) if k < n else 0.0,
        fetched_by_verdict=k / n,
        saved=saved,
        bounds=tuple(by_bounds),
    )


def summary(studies: dict[str, Study]) -> dict[str, Any]:
    """Return the figures of studies as values of JSON."""
    return {
        kind: {
            "n_copies": one.n_copies,
            "share_stale": one.share_stale,
            "calibration_error": one.calibration and one.calibration.expected_error,
            "ages": [
                {**line._asdict(), "bounds": dict(zip(BOUNDS, line.bounds, strict=True))}
                for line in one.lines
            ],
        }
        for kind, one in studies.items()
    }


def table(studies: dict[str, Study]) -> Iterator[str]:
    """Yield the lines of a table for people."""
    for kind, one in studies.items():
        error = one.calibration.expected_error if one.calibration else float("nan")
        yield (
            f"copies of {kind}: {one.n_copies:,}, {one.share_stale:.1%} stale, "
            f"calibration error {error:.4f}"
        )
        bounds = " ".join(f"{name:>10}" for name in BOUNDS)
        yield f"{'maximum age':20} {'fetched':>8} {'stale':>7} {'verdict':>8} {'saved':>6} {bounds}"
        for line in one.lines:
            yield (
                f"{line.age:20} {line.fetched:8.1%} {line.stale:7.2%} "
                f"{line.fetched_by_verdict:8.1%} {line.saved:6.0%} "
                + " ".join(f"{saved:10.0%}" for saved in line.bounds)
            )
