"""What a comparison says, in sentences that follow from its numbers."""

from collections.abc import Iterator
from math import isnan

from service.sim.comparison import Comparison, Outcome
from service.sim.lineup import HINDSIGHT, RECRAWL, UNIFORM, Kind
from service.sim.measures import MASS, Interval

USED_UP = 0.97
"""A policy that spent less of the bandwidth is named."""


def findings(found: Comparison) -> list[str]:
    """Give the sentences, the most important first."""
    return list(_sentences(found))


def _sentences(found: Comparison) -> Iterator[str]:
    subject = RECRAWL if RECRAWL in found else found.best(Kind.learning)
    if subject is not None:
        yield from _against(found, subject)
        yield from _gap(found, subject)
        yield from _predictions(found, subject)
        yield from _never_crawled(found, subject)
    yield from _deaf(found)
    yield from _unused(found)


def _against(found: Comparison, subject: str) -> Iterator[str]:
    if UNIFORM in found:
        yield _saved(found, subject, UNIFORM, "uniform crawling")
    if (rival := found.best(Kind.today)) is not None:
        yield _saved(found, subject, rival, f"{rival}, the best here of what crawlers do today")
    better = found.best(Kind.learning)
    if better is not None and found.saving(better, subject)[1].low > 0:
        yield _saved(found, better, subject, named(subject))


def _saved(found: Comparison, name: str, than: str, described: str) -> str:
    saved, (low, high) = found.saving(name, than)
    amount = f"{abs(saved):.0%} {'less' if saved >= 0 else 'more'} staleness than {described}"
    bounds = _bounds(Interval(low, high) if saved >= 0 else Interval(-high, -low))
    if low <= 0 <= high:
        return (
            f"{named(name)} and {described} cannot be told apart here: {named(name)} leaves "
            f"{amount}, but the {bounds}, so it may be chance which pages the site has."
        )
    return f"{named(name)} leaves {amount} ({bounds}), with the same bandwidth."


def _gap(found: Comparison, subject: str) -> Iterator[str]:
    gap = found.gap_closed(subject)
    if gap is not None:
        share, bounds = gap
        yield (
            f"Of what knowing all change rates from the start would gain over uniform crawling, "
            f"{named(subject)} gains {share:.0%} ({_bounds(bounds)})."
        )


def _predictions(found: Comparison, subject: str) -> Iterator[str]:
    learnt = _outcome(found, subject).calibration_learnt
    if learnt is None:
        return
    skill = learnt.skill
    compared = (
        f"they save {skill:.0%} of the log loss of the best constant"
        if skill >= 0
        else f"their log loss is {-skill:.0%} above that of the best constant"
    )
    yield (
        f"After the first quarter of the window its predictions of whether a page has changed are "
        f"off by {100 * learnt.expected_error:.1f} percentage points on average; {compared}."
    )


def _never_crawled(found: Comparison, subject: str) -> Iterator[str]:
    share = found.measures[subject].never_crawled
    if share > 0:
        yield f"{named(subject)} never came back to {share:.1%} of the pages after it found them."
    else:
        yield f"{named(subject)} came back to every page after it found it."


def _deaf(found: Comparison) -> Iterator[str]:
    if HINDSIGHT in found and found.game.notices is not None:
        yield (
            "Hindsight does not hear these notices, which may be late or wrong: it bounds what "
            "knowing change rates is worth, and a policy that hears them may get ahead of it."
        )


def _unused(found: Comparison) -> Iterator[str]:
    idle = [o for o in found.outcomes if o.bandwidth_used < USED_UP and o.entrant.kind != "bound"]
    if idle:
        told = ", ".join(f"{o.name} {o.bandwidth_used:.0%}" for o in idle)
        yield f"Not all of the bandwidth was used by: {told}."


def named(policy: str) -> str:
    """Write a policy's name as in a sentence.

    >>> named("recrawl"), named("blc")
    ('Recrawl', 'blc')
    """
    return "Recrawl" if policy == RECRAWL else policy


def _bounds(bounds: Interval) -> str:
    if isnan(bounds.low):
        return "too few pages changed for an interval"
    return f"{MASS:.0%} interval {bounds.low:.0%} to {bounds.high:.0%}"


def _outcome(found: Comparison, name: str) -> Outcome:
    return next(outcome for outcome in found.outcomes if outcome.name == name)
