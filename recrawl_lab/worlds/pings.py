"""Which change notices there are in a replay: from none to a sitemap that lies."""

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
    """Who sends change notices, and how good they are."""

    kind: Pings = "none"
    share: float = 1.0
    """Of the pages, drawn at random, that send them."""
    delay: float = 1.0
    """Days in the mean, exponential; where they are delayed."""
    recall: float = 0.8
    """Share of the changes that are told; where they are noisy."""
    precision: float = 0.8
    """Share of the notices that are true; where they are noisy."""
    every: float = 1.0
    """Days from one fetch of the sitemap to the next."""


class PingTimes(NamedTuple):
    """A world and the change notices that Recrawl hears of it."""

    world: World
    notices: Crawls | None
    """None: those of the announced pages, at once."""
    description: str


def announced(world: World, source: PingSource, rng: np.random.Generator) -> PingTimes:
    """Draw the pages that send notices, and their notices.

    True ones are trusted, as if the operator had said so (observability complete); what the others
    are worth must be learnt.
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
