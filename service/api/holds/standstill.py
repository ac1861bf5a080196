"""Holds of pages while nothing runs epochs or fills the queue. Pure."""

from dataclasses import replace

from service.api.holds.facts import PageNow, Standstill, Turn
from service.api.holds.hold import Hold
from service.model.words import moment, span

SCHEDULED_NEXT = Hold(kind="unscheduled", cause="the next epoch schedules it")
"""Hold of a page that waits for an epoch."""


def not_queued(page: PageNow, turn: Turn) -> Hold | None:
    """Return the hold of a due page that came due after the end of the queue."""
    still = turn.standstill
    if still is None or not still.queue_ended or page.in_queue or page.page.feed:
        return None
    return Hold(kind="no_worker", cause=f"it is due, and {cause(turn)}", remedy=remedy(still))


def with_remedy(hold: Hold, turn: Turn) -> Hold:
    """Return a hold that asks for nothing with the act that ends a standstill, if it needs that."""
    still = turn.standstill
    if still is None or hold.remedy or not _waits(hold, still):
        return hold
    return replace(hold, cause=f"{hold.cause}; {cause(turn)}", remedy=remedy(still))


def _waits(hold: Hold, still: Standstill) -> bool:
    """Return whether a page waits for an epoch, or for a place in a queue that has ended."""
    if hold.kind == "not_due":
        return still.queue_ended
    return hold == SCHEDULED_NEXT or hold.kind == "waits_for_group"


def cause(turn: Turn) -> str:
    """Return the standstill as a clause; "" if there is none."""
    still = turn.standstill
    if still is None:
        return ""
    ago = f"{span((turn.now - still.since).total_seconds())} ago"
    if still.queue_ended:
        return f"the queue of due pages ended {ago}, at {moment(still.since)}"
    return f"an epoch was due {ago}, at {moment(still.since)}, and none has been published since"


def remedy(still: Standstill) -> str:
    """Return the act that ends a standstill."""
    if still.in_server:
        return "see the log of `recrawl serve`, which runs epochs"
    return "start `recrawl worker`, or see its log if it runs"
