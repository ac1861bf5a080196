"""Kinds of change notices in a replay, from none to a sitemap with false dates."""

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from recrawl_lab.replay.staleness import Crawls
from recrawl_lab.worlds.notices import (
    Notices,
    delayed,
    imperfect_notices,
    lying_sitemap_notices,
    sitemap_notices,
    true_notices,
)
from recrawl_lab.worlds.world import World
from service.model.arrays import Ints

Pings = Literal["none", "true", "delayed", "noisy", "sitemap", "lying-sitemap"]


@dataclass(frozen=True, slots=True)
class PingSource:
    """Parameters of change notices."""

    kind: Pings = "none"
    share: float = 1.0
    """Share of pages that send notices, drawn at random."""
    delay: float = 1.0
    """Mean of the exponential delay of delayed notices, days."""
    recall: float = 0.8
    """Share of changes with a notice, for noisy notices."""
    precision: float = 0.8
    """Share of true notices, for noisy notices."""
    every: float = 1.0
    """Time from one fetch of the sitemap to the next, days."""


class PingTimes(NamedTuple):
    """A world and the change notices that Recrawl receives."""

    world: World
    notices: Crawls | None
    """Notices; None: those of the announced pages, without delay."""
    description: str


def announced(world: World, source: PingSource, rng: np.random.Generator) -> PingTimes:
    """Return the world with pages drawn to send notices, and their notices.

    True notices are trusted, like pages that an operator registers with complete observability.
    Recrawl must learn the precision of all other notices.
    """
    n_pages = len(world)
    if source.kind == "none":
        return PingTimes(world, None, "none")
    member = rng.permutation(n_pages) < round(source.share * n_pages)
    who = "all pages" if member.all() else f"{source.share:.0%} of the pages"
    if source.kind == "true":
        return PingTimes(
            replace(world, announced=member), None, f"every change of {who}, at once, trusted"
        )
    notices, what = _notices(world, np.flatnonzero(member), source, rng)
    return PingTimes(world, Crawls(notices.page, notices.told_at), f"{what} of {who}")


def _notices(
    world: World, pages: Ints, source: PingSource, rng: np.random.Generator
) -> tuple[Notices, str]:
    if source.kind == "delayed":
        late = delayed(true_notices(world, pages), world, source.delay, rng=rng)
        return late, f"every change, {source.delay:g} days late on average,"
    if source.kind == "noisy":
        noisy = imperfect_notices(
            world, pages, recall=source.recall, precision=source.precision, rng=rng
        )
        return noisy, f"{source.recall:.0%} of the changes, {source.precision:.0%} of them true,"
    if source.kind == "sitemap":
        honest = sitemap_notices(world, pages, source.every)
        return honest, f"an honest sitemap, fetched every {source.every:g} days,"
    lying = lying_sitemap_notices(world, pages, source.every)
    return lying, f"a sitemap that calls all pages changed, fetched every {source.every:g} days,"
