"""Recorded histories of real pages from any source, and worlds made from recordings."""

import re
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from recrawl_lab.errors import InvalidTrace
from recrawl_lab.worlds.world import Importance, World, draw_importance, in_order, offsets
from service.core.checks import InvalidInput
from service.model.arrays import Bools, Floats, Ints
from service.model.words import counted, number, span

SECONDS_PER_DAY = 86_400.0
BULK = 200
"""Maximum number of pages of a revision that is not a bulk revision."""

Weighting = Importance | Literal["column"]
"""Weights of pages: as in a synthetic world, or from the recording."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """(N,) pages of a site and their (M,) changes in any order; instants are seconds since 1970.

    Each change comes after its page's start and not after its end.
    """

    site: str
    url: tuple[str, ...]
    started: Floats
    ended: Floats
    """End of the page, or of its recorded history, seconds since 1970."""
    changed_page: Ints
    changed_at: Floats
    bulk: Bools
    """(M,) whether the change is part of a bulk revision."""
    importance: Floats | None = None
    """(N,) recorded importance; None if the recording has none."""
    notes: tuple[str, ...] = ()
    crawled_page: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    """(L,) pages of the crawls that were made, without the first of each; none: not recorded."""
    crawled_at: Floats = field(default_factory=lambda: np.zeros(0))


def recorded_world(
    recording: Recording,
    *,
    rng: np.random.Generator,
    days: float = np.inf,
    importance: Weighting = "equal",
    bulk: bool = False,
    complete_share: float = 0.0,
) -> World:
    """Return the world of the last days of a recording, without pages of zero duration.

    Parameters
    ----------
    days
        The window: the last `days` days, or all of the recording if that is shorter.
    importance
        The same for every page, drawn as in the synthetic world, or recorded.
    bulk
        Count revisions that touched more than 200 pages at once.
    complete_share
        Share of the pages, drawn at random, whose changes are announced.

    Raises
    ------
    InvalidTrace
        No page exists for any time, or `importance` is "column" and not recorded.
    """
    if not days > 0:
        raise InvalidInput("days", f"must be positive, not {days}")
    window = _last_days(recording, days)
    importances = _weights(recording, importance, window.alive, rng)
    n_pages = int(window.alive.sum())
    announced = rng.permutation(n_pages) < round(complete_share * n_pages)
    return _world(recording, window, importances, announced, bulk=bulk)


class LastDays(NamedTuple):
    """The last days of a recording, seconds, and a mask of (N,) pages that exist in them."""

    start: float
    end: float
    alive: Bools


def _last_days(recording: Recording, days: float) -> LastDays:
    lasting = recording.ended > recording.started
    if not lasting.any():
        raise InvalidTrace(f"{recording.site}: no page lasts for any time; use a longer recording")
    end = float(recording.ended[lasting].max())
    start = max(float(recording.started[lasting].min()), end - days * SECONDS_PER_DAY)
    return LastDays(start, end, lasting & (recording.ended > start))


def _world(
    recording: Recording, window: LastDays, importance: Floats, announced: Bools, *, bulk: bool
) -> World:
    start, end, alive = window
    within = (recording.changed_at > start) & alive[recording.changed_page]
    counted = within & (bulk | ~recording.bulk)
    place = np.cumsum(alive) - 1
    changed_page = place[recording.changed_page[counted]]
    made = (recording.crawled_at > start) & alive[recording.crawled_page]
    changed_at = (recording.changed_at[counted] - start) / SECONDS_PER_DAY
    counts = np.bincount(changed_page, minlength=len(announced))
    created = np.maximum(recording.started[alive] - start, 0.0) / SECONDS_PER_DAY
    ended = (recording.ended[alive] - start) / SECONDS_PER_DAY
    return World(
        name=recording.site,
        days=(end - start) / SECONDS_PER_DAY,
        url=tuple(recording.url[page] for page in np.flatnonzero(alive).tolist()),
        importance=importance,
        announced=announced,
        created=created,
        ended=ended,
        changed_at=in_order(changed_page, changed_at),
        first=offsets(counts),
        change_rate=counts / (ended - created),
        logged_page=place[recording.crawled_page[made]],
        logged_at=(recording.crawled_at[made] - start) / SECONDS_PER_DAY,
        notes=(
            _window(start, end),
            *_bulk_changes(int((within & recording.bulk).sum()), stay=bulk),
            _foresight(len(changed_at) / len(announced)),
            *recording.notes,
        ),
    )


def window(days: float) -> str:
    """Return the length of a window in words: in days, and below a day in hours or less.

    >>> [window(days) for days in (731.0, 1.2, 0.25, 0.01)]
    ['731 days', '1 day', '6 hours', '14.4 minutes']
    """
    return span(days * SECONDS_PER_DAY) if days < 1.0 else counted(round(days), "day")


def made_up_host(site: str) -> str:
    """Return a base URL for a site that has only paths.

    >>> made_up_host("My site_2")
    'https://my-site-2.example'
    """
    return f"https://{re.sub('[^a-z0-9]+', '-', site.lower()).strip('-') or 'site'}.example"


def _weights(
    recording: Recording, kind: Weighting, alive: Bools, rng: np.random.Generator
) -> Floats:
    if kind != "column":
        return draw_importance(kind, int(alive.sum()), rng)
    if recording.importance is None:
        raise InvalidTrace(
            f"{recording.site} has no importance of its pages; choose equal or lognormal importance"
        )
    return recording.importance[alive]


def _window(start: float, end: float) -> str:
    first, last = (np.datetime64(int(t), "s").astype("M8[D]") for t in (start, end))
    return f"window {first} to {last} ({window((end - start) / SECONDS_PER_DAY)})"


def _bulk_changes(n_changes: int, *, stay: bool) -> tuple[str, ...]:
    verb = "counted" if stay else "left out"
    note = f"{counted(n_changes, 'change')} by bulk revisions (> {BULK} pages at once) {verb}"
    return (note,) if n_changes else ()


def _foresight(per_page: float) -> str:
    changes = "1 change" if per_page == 1 else f"{number(per_page, 2)} changes"
    return (
        f"{changes} per page: hindsight rates include future changes, so the "
        "fewer changes there are, the more of hindsight's lead is impossible foresight"
    )
