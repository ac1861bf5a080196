"""Rules for a campaign: pure functions over its history and the final database."""

from collections.abc import Iterable

from benchmarks.faults.feed_checks import followed, received
from benchmarks.faults.history import Answer, History
from benchmarks.faults.lease_checks import (
    crawled_again,
    leased_once,
    spaced_fetches,
    spaced_leases,
)
from benchmarks.faults.log_checks import counted_once, exactly_once, registered_once
from benchmarks.faults.schedule_checks import lasting_epochs, one_schedule, whole_epochs
from benchmarks.faults.verdicts import Final, Verdict

CRAWLS, PINGS = 0, 1
"""Kinds of entries in the log."""


def as_promised(history: History) -> Verdict:
    """Check that answers have a documented form and that none reports an internal error."""
    answers = history.of(Answer)
    wrong = [f"{one.client}: {one.request}: {one.complaint}" for one in answers if one.complaint]
    return Verdict("answers that were not as promised", wrong, len(answers))


def check(
    history: History, final: Final, pages: Iterable[int], delay_s: float, healed_at: float
) -> list[Verdict]:
    """Run every check and return the verdicts."""
    crawls = [(crawl.page_id, crawl.at) for crawl in final.crawls]
    return [
        exactly_once(history, CRAWLS, crawls, "observations not exactly once in the log"),
        exactly_once(history, PINGS, final.pings, "pings not exactly once in the log"),
        counted_once(history, final),
        leased_once(history),
        spaced_leases(history, delay_s),
        spaced_fetches(history, delay_s),
        whole_epochs(history, final),
        one_schedule(history),
        lasting_epochs(history),
        registered_once(history, final),
        crawled_again(history, pages, healed_at),
        followed(history, final),
        received(history, final),
        as_promised(history),
    ]
