"""Conclusions of a comparison, in sentences that follow from its numbers."""

from collections.abc import Iterator
from math import isnan

from recrawl_lab.policies.lineup import (
    HINDSIGHT,
    HINDSIGHT_KNOWS,
    RECRAWL,
    UNIFORM,
    PolicyKind,
)
from recrawl_lab.replay.comparison import MIN_CHANGES, MIN_CRAWLS, Comparison, PolicyMeasures
from recrawl_lab.replay.measures import MASS, ConfidenceInterval
from service.model.words import counted

USED_UP = 0.97
"""Share of the bandwidth below which a finding names the policy."""

SAME = 0.01
"""Difference in crawls up to which two policies have the same bandwidth, share."""


def findings(comparison: Comparison) -> list[str]:
    """Return the sentences, the most important first."""
    return list(_sentences(comparison))


def _sentences(comparison: Comparison) -> Iterator[str]:
    if not comparison.allows_verdict:
        yield from _too_little(comparison)
        return
    subject = RECRAWL if RECRAWL in comparison else comparison.best(PolicyKind.learning)
    if subject is not None:
        yield from _against(comparison, subject)
        yield from _gap(comparison, subject)
        yield from _predictions(comparison, subject)
        yield from _never_crawled(comparison, subject)
    yield from _deaf(comparison)
    yield from _unused(comparison)


def _too_little(comparison: Comparison) -> Iterator[str]:
    crawls, changes = counted(comparison.n_crawls, "crawl"), counted(comparison.n_changes, "change")
    yield f"No verdict: {crawls} and {changes} are too few to compare policies."
    yield (
        f"A verdict needs at least {MIN_CRAWLS} crawls and {MIN_CHANGES} changes: play a longer "
        "history, more pages or more bandwidth."
    )


def _against(comparison: Comparison, subject: str) -> Iterator[str]:
    if UNIFORM in comparison:
        yield _saved(comparison, subject, UNIFORM, "uniform crawling")
    if (rival := comparison.best(PolicyKind.today)) is not None:
        yield _saved(
            comparison, subject, rival, f"{rival}, the best here of what crawlers do today"
        )
    better = comparison.best(PolicyKind.learning)
    if better is not None and comparison.saving(better, subject)[1].low > 0:
        yield _saved(comparison, better, subject, named(subject))


def _saved(comparison: Comparison, name: str, than: str, described: str) -> str:
    saved, (low, high) = comparison.saving(name, than)
    amount = f"{abs(saved):.0%} {'less' if saved >= 0 else 'more'} staleness than {described}"
    bounds = _bounds(
        ConfidenceInterval(low, high) if saved >= 0 else ConfidenceInterval(-high, -low)
    )
    if low <= 0 <= high:
        return (
            f"{named(name)} and {described} cannot be distinguished here: {named(name)} leaves "
            f"{amount}, but the {bounds}, so the difference may be due to chance."
        )
    return f"{named(name)} leaves {amount} ({bounds}), {_spent(comparison, name, than)}."


def _spent(comparison: Comparison, name: str, than: str) -> str:
    """Return how the crawls of two policies compare; a percentage is of the bandwidth."""
    own, other = (_outcome(comparison, policy) for policy in (name, than))
    if abs(own.n_crawls - other.n_crawls) <= SAME * other.n_crawls:
        return "with the same bandwidth"
    shares = f"{own.bandwidth_used:.0%} of the bandwidth against {other.bandwidth_used:.0%}"
    return f"with {own.n_crawls:,} crawls against {other.n_crawls:,}: {shares}"


def _gap(comparison: Comparison, subject: str) -> Iterator[str]:
    gap = comparison.gap_closed(subject)
    if gap is not None:
        share, bounds = gap
        yield (
            f"{named(subject)} gains {share:.0%} ({_bounds(bounds)}) of the saving of hindsight "
            f"over uniform crawling. Hindsight knows {HINDSIGHT_KNOWS}."
        )


def _predictions(comparison: Comparison, subject: str) -> Iterator[str]:
    learnt = _outcome(comparison, subject).calibration_learnt
    if learnt is None:
        return
    skill = learnt.skill
    compared = (
        f"they save {skill:.0%} of the log loss of the best constant"
        if skill >= 0
        else f"their log loss is {-skill:.0%} above that of the best constant"
    )
    yield (
        f"After the first quarter of the window the predicted probabilities of a change are off "
        f"by {100 * learnt.expected_error:.1f} percentage points on average; {compared}."
    )


def _never_crawled(comparison: Comparison, subject: str) -> Iterator[str]:
    share = comparison.measures[subject].never_crawled
    if share > 0:
        yield f"{named(subject)} never crawled {share:.1%} of the pages after their discovery."
    else:
        yield f"{named(subject)} crawled every page again after its discovery."


def _deaf(comparison: Comparison) -> Iterator[str]:
    if HINDSIGHT in comparison and comparison.game.notices is not None:
        yield (
            "Hindsight receives no such notices, which may be late or wrong: a policy that "
            "receives notices may exceed it too."
        )


def _unused(comparison: Comparison) -> Iterator[str]:
    idle = [
        o for o in comparison.outcomes if o.bandwidth_used < USED_UP and o.entrant.kind != "bound"
    ]
    if idle:
        shares = ", ".join(f"{o.name} {o.bandwidth_used:.0%}" for o in idle)
        yield f"Not all of the bandwidth was used by: {shares}."


def named(policy: str) -> str:
    """Return a policy's name as in a sentence.

    >>> named("recrawl"), named("blc")
    ('Recrawl', 'blc')
    """
    return "Recrawl" if policy == RECRAWL else policy


def _bounds(bounds: ConfidenceInterval) -> str:
    if isnan(bounds.low):
        return "too few pages changed for an interval"
    return f"{MASS:.0%} interval {bounds.low:.0%} to {bounds.high:.0%}"


def _outcome(comparison: Comparison, name: str) -> PolicyMeasures:
    return next(outcome for outcome in comparison.outcomes if outcome.name == name)
