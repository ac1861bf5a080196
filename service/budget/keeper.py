"""The keeper of a server's allotment: grants to leases, and the way back of what is not used.

**Guarantee.** The crawls of all servers are at most what the pace allows. Each lease takes its part
of the server's row in its own transaction. So a minute after the death of a server, the rest goes
back. An allotment that is lost by an outage in the middle of a commit counts as used. With several
databases, a lost allotment always does. A crawl without
a lease counts if its report is accepted and its request lies in the running UTC day. Its amount is
written within `HELD_S` seconds, and lost if the server dies before.

The coordinator of several databases has the pace. While the coordinator is away, each server leases
at the rate of the budget, so that the other databases go on. Several servers may then exceed the
budget together.

**Costs.** A lease takes what its page is expected to cost. The report of the same day, at the same
server, corrects it by what the crawl took. Money that a lease takes is the most that its crawl may
pay, so a budget of money is never exceeded. Under a budget of bytes or seconds, a wrong guess of
the cost would spend days at once. So one transaction leases at most as many pages of unknown cost
as this server has seen costs (`budget.seen_costs`), and some at first.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Literal

import numpy as np
import structlog

from service.budget.allotments import (
    GRAIN,
    HELD_S,
    NO_CRAWLS,
    UNLIMITED,
    Allotment,
    Terms,
    Wish,
    draw,
    usable,
)
from service.budget.grants import NOTHING, Grant
from service.budget.seen_costs import HELD, SeenCosts
from service.core.pace import TakenAmounts
from service.model.amounts import BYTES, CRAWLS, SECONDS
from service.model.arrays import Floats, Ints
from service.model.errors import (
    OUTAGES,
    AllotmentOver,
    OtherUnit,
    RowLocked,
    StoreFull,
    TablesChanged,
)
from service.storage import Store
from service.storage.budget.pace import days_since_1970
from service.storage.clock import elapsed

DAY_S = 86_400.0
FOLLOWS = timedelta(seconds=1)
"""Time between two draws while the pace has another unit."""
LOOK_S = 60.0
"""Time between two looks for urgent pages where the day's own budget is spent, seconds."""
ROLLED_BACK = (RowLocked, TablesChanged, StoreFull)
"""Outages after which a transaction has certainly written nothing."""

log = structlog.get_logger()


class Keeper:
    """The allotment of one server; `terms` None: no budget is set, and every lease is granted."""

    def __init__(
        self,
        store: Store,
        terms: Terms | None,
        seconds: Callable[[], float] = elapsed,
        *,
        server: int = 0,
    ) -> None:
        self.store = store
        self.server = server
        """Number under which the database has what this server holds; 0: it does not have it."""
        self.terms = terms
        self.paused_until: datetime | None = None
        """End of the pause of all hosts; None: none was ordered."""
        self.seconds = seconds
        self.next_at: datetime | None = None
        """Earliest time of the next room as of the last draw; None: never."""
        self._held = Allotment(day=0, due=0.0)
        self._costs = SeenCosts.none(terms)
        self._lends = False
        self._ask_at: datetime | None = None
        """Time before which the pace has no room, as far as this server knows; None: it may."""
        self._drawn_at: datetime | None = None
        self._used_at = 0.0
        """Time of the last use of the allotment, seconds of `seconds`."""
        self._unleased: dict[int, TakenAmounts] = {}
        """Crawls without a lease by day, not written yet."""
        self._other_since: datetime | None = None
        """Time since which the pace has another unit; None: it has this one."""
        self._has_warned = False
        self._turn = threading.RLock()
        self._counting = threading.Lock()
        self._timer: threading.Timer | None = None
        self._closed = False

    @contextmanager
    def grant(self, count: float, on_loan: float = 0.0, *, ahead: bool = False) -> Iterator[Grant]:
        """Grant a number of crawls to the transaction of a block, which sets `taken` in its course.

        `on_loan` is the amount that urgent pages want. With `ahead` the crawls are of pages that
        are not due yet. The grant may be smaller than `count`. An outage of the commit forfeits the
        allotment, because the commit may have succeeded.
        """
        if (ordered := self._ordered()) is not None:
            yield Grant(ordered, ahead=ahead)
            return
        with self._turn:
            # an order may have come while other leases had the turn
            ordered, terms = self._ordered(), self.terms
            if ordered is not None or terms is None:
                yield Grant(ordered or UNLIMITED, ahead=ahead)
                return
            self._prepare(terms, count, on_loan)
            held = self._held
            if ahead and (short := self._costs.short) is not None:
                # pages that are due wait for this amount
                held = replace(
                    held,
                    ahead=max(held.ahead - short.total, 0.0),
                    in_windows=max(held.in_windows - short.total, 0.0),
                )
            if terms.unit in (BYTES, SECONDS):  # a price is known before it is paid
                held = replace(held, trials=self._costs.trials)
            grant = Grant(held, self._lends, ahead)
            try:
                yield grant
            except AllotmentOver:
                self._know_nothing()
                raise
            except ROLLED_BACK:
                raise
            except OUTAGES:
                self._held = Allotment(day=self._held.day, due=0.0)
                raise
            if grant.taken.total > 0:
                self._held = self._held.less(grant.taken)
                self._used_at = self.seconds()
            if terms.unit != CRAWLS:
                self._learn(grant)

    def _ordered(self) -> Allotment | None:
        """Return the allotment that needs no pace, of a pause or without a budget; None: it does.

        Orders change `terms` and the pause in other threads, so each is read once.
        """
        if self.pause_in_force() is not None:
            return NO_CRAWLS
        return UNLIMITED if self.terms is None else None

    def pause_in_force(self) -> datetime | None:
        """Return the end of the pause of all hosts; None: no pause is in force."""
        until = self.paused_until
        return until if until is not None and until > self.store.clock() else None

    def adopt(self, terms: Terms | None) -> None:
        """Keep another budget from now on; the server's allotment goes back to the pace.

        An allotment in another unit is lost, and counts as used.
        """
        if self.terms == terms:
            return
        with self._turn, suppress(*OUTAGES):
            before = self.terms
            same = before is not None and terms is not None and before.unit == terms.unit
            if same:
                self.terms = terms  # the allotment goes back into the pace of the new budget
            try:
                if same or terms is None:
                    self.give_back()
                self._ask_at = self._drawn_at = self.next_at = None  # true of the budget before
            finally:
                if not same:
                    self._begin(terms)

    def forget(self) -> None:
        """Forget the allotment and all counts, because the database and its pace were restored."""
        with self._turn:
            self._begin(self.terms)

    def _begin(self, terms: Terms | None) -> None:
        """Begin without an allotment and without what was learnt of costs."""
        with self._counting:
            self.terms, self._unleased = terms, {}
            self._costs = SeenCosts.none(terms)
        self._know_nothing()
        self._other_since, self._has_warned = None, False

    def _know_nothing(self) -> None:
        """Hold nothing, and draw before the next lease."""
        self._held, self._lends = Allotment(day=0, due=0.0), False
        self._ask_at = self._drawn_at = self.next_at = None

    def spent_until(self) -> datetime | None:
        """Return the earliest time of the next lease; None: the server knows of room now.

        It is also None where pages that cost nothing may be leased.

        The time is at most `LOOK_S` seconds ahead where urgent pages may have a loan, or where
        cheaper pages may be due by then.
        """
        with self._turn:
            if (paused_until := self.pause_in_force()) is not None:
                return paused_until
            held = self._held
            if self.terms is None or held.has_room() or held.is_spent or self.next_at is None:
                return None
            look_at = self.store.clock() + timedelta(seconds=LOOK_S)
            looks = self._lends or self._costs.short is not None
            return min(self.next_at, look_at) if looks else self.next_at

    def held_by(self) -> Literal["budget", "income"] | None:
        """Return what keeps pages that cost something from a lease; None: not the budget."""
        next_at, waits = self.next_at, self._held.is_spent or self.spent_until() is not None
        if not waits or next_at is None or self.pause_in_force() is not None:
            return None
        return "income" if next_at.date() == self.store.clock().date() else "budget"

    def has_room(self, *, first: bool = False) -> bool:
        """Return whether the allotment of this server has room for a crawl, or a first one, now."""
        held = self._held  # read without the turn, which a lease holds to its commit
        today = held.day == int(days_since_1970(self.store.clock()))
        return today and held.has_room() and (not first or held.first_crawls(1) > 0)

    def in_hand(self) -> float:
        """Return the amount of this day that this server took from the pace, and no lease has."""
        held = self._held
        today = held.day == int(days_since_1970(self.store.clock()))
        return held.due + held.on_loan if today else 0.0

    def unwritten(self) -> float:
        """Return the amount of this day's crawls that the pace does not have yet."""
        with self._counting:
            day = int(days_since_1970(self.store.clock()))
            return self._unleased.get(day, NOTHING).total

    def count_unleased(self, day: int, crawls: TakenAmounts) -> None:
        """Count accepted crawls of a day that had no lease."""
        if (terms := self.terms) is not None:
            self._count_in(terms.unit, day, crawls)

    def _count_in(self, unit: str, day: int, crawls: TakenAmounts) -> None:
        """Count amounts in a unit; the budget of an order that has just come may have another."""
        with self._counting:
            if not self._counts_in(unit):
                return
            self._add(day, crawls)
        self._start_timer()

    def _counts_in(self, unit: str) -> bool:
        """Return whether the budget has this unit; under `_counting` it does not change."""
        terms = self.terms
        return terms is not None and terms.unit == unit

    def count_returned(self, token: int, leased_at: np.datetime64, *, first: bool) -> None:
        """Return to the budget what a lease took that was returned on its own UTC day."""
        day = int(leased_at.astype("M8[D]").astype(np.int64))
        terms = self.terms
        if terms is None or day != int(days_since_1970(self.store.clock())):
            return
        if terms.unit == CRAWLS:
            self._count_in(CRAWLS, day, TakenAmounts(-GRAIN, first=-1.0 if first else 0.0))
        else:
            self.count_reports(day, np.array([token]), np.zeros(1))

    def counts(self, token: Ints) -> bool:
        """Return whether reports change the budget; a crawl under a lease was counted with it."""
        terms = self.terms
        return terms is not None and (terms.unit != CRAWLS or not token.all())

    def count_reports(self, day: int, token: Ints, amount: Floats) -> None:
        """Count what accepted crawls of a day took, NaN where none is known; token 0: no lease.

        A crawl under a lease counts with the difference to what the lease took.
        """
        terms = self.terms
        if terms is None or not self.counts(token):
            return
        if terms.unit == CRAWLS:
            self._count_in(CRAWLS, day, TakenAmounts(float(np.count_nonzero(token == 0))))
            return
        with self._counting:
            if not self._counts_in(terms.unit):
                return
            difference = self._costs.report(day, token, amount)
            if difference:
                self._add(day, TakenAmounts(difference))
        if difference:
            self._start_timer()

    def _add(self, day: int, crawls: TakenAmounts) -> None:
        before = self._unleased.get(day, NOTHING)
        self._unleased[day] = TakenAmounts(
            before.total + crawls.total, first=before.first + crawls.first
        )

    def _learn(self, grant: Grant) -> None:
        """Learn what crawls take, and what the next one does; remember what leases took."""
        charges = grant.charges
        if charges is None:
            return
        with self._counting:
            self._costs.charge(grant.allotment.day or 0, charges)
        if not grant.ahead and not grant.allotment.is_spent:
            self._costs.short, self._costs.short_at = grant.short, self.store.clock()
            self._held = replace(self._held, least=self._least())
            fits_none = grant.short is not None and not len(charges.token)
            if fits_none and (ask_at := self._ask_at) is not None:
                # the parts of several servers may be enough together
                with suppress(*OUTAGES):
                    self.give_back()
                self._ask_at = ask_at

    def _least(self) -> float:
        return self._costs.least(self.store.clock())

    def close(self) -> None:
        """Return the allotment to the pace, because the server ends."""
        with self._turn:
            self._closed = True
            if self._timer is not None:
                self._timer.cancel()
            with suppress(*OUTAGES):
                self.give_back()

    def give_back(self) -> None:
        """Return the allotment to the pace, and write the crawls without a lease."""
        with self._turn:
            if self.terms is not None and (self._unleased or self._is_holding()):
                self._draw(self.terms, Wish(0.0, each=self._costs.each, least=self._least()))

    def _is_holding(self) -> bool:
        return self._held.due > 0 or self._held.on_loan > 0

    def _prepare(self, terms: Terms, count: float, on_loan: float) -> None:
        """Draw unless the allotment is new and suffices, or the pace is known to have no room."""
        costs = self._costs
        amount = count * costs.each
        if costs.short is not None:
            amount = max(amount, costs.short.total)
        now = self.store.clock()
        same_day = self._held.day == int(days_since_1970(now))
        knows = self._knows_at(now)
        is_new = self._drawn_at is not None and abs(now - self._drawn_at) < HELD
        if (
            same_day
            and (is_new or knows)
            and on_loan <= self._held.on_loan
            and (amount <= self._held.due or knows)
        ):
            return
        self._draw(terms, self._wish(terms, amount, on_loan))

    def _wish(self, terms: Terms, amount: float, on_loan: float) -> Wish:
        amount = max(amount, terms.budget * HELD_S / DAY_S)
        return Wish(amount, on_loan, self._costs.each, self._least())

    def _knows_at(self, now: datetime) -> bool:
        """Return whether the last draw shows that the pace has no more room."""
        if self._ask_at is None or self._drawn_at is None:
            return False
        # a clock that was set back shows nothing
        return self._drawn_at <= now < self._ask_at

    def _draw(self, terms: Terms, wish: Wish) -> None:
        back, self._held = self._held, Allotment(day=self._held.day, due=0.0)
        with self._counting:
            unleased, self._unleased = self._unleased, {}
        try:
            with self.store.begin() as tx:
                today = int(days_since_1970(tx.now()))
                drawn = draw(tx, terms, wish, back, unleased.get(today), self.server)
        except OtherUnit as error:
            self._wait_for_order(error)
            return
        except OUTAGES:
            for day, crawls in unleased.items():
                self.count_unleased(day, crawls)
            if len(self.store.parts) <= 1:
                raise
            self._go_on_alone(terms)
            return
        now, self._other_since = self.store.clock(), None
        self._held, self._lends, self.next_at = drawn
        self._drawn_at, short = now, drawn.allotment.due < wish.due
        again = now + timedelta(seconds=HELD_S)  # another server may return some
        self._ask_at = None
        if short:
            self._ask_at = again if drawn.next_at is None else min(drawn.next_at, again)
        self._used_at = self.seconds()
        if self._is_holding():
            self._start_timer()

    def _wait_for_order(self, error: OtherUnit) -> None:
        """Lease nothing until this server follows the budget that the pace has."""
        now = self.store.clock()
        self._lends, self._drawn_at = False, now
        self._ask_at = self.next_at = now + FOLLOWS
        self._other_since = since = self._other_since or now
        if now - since >= HELD and not self._has_warned:
            self._has_warned = True
            log.warning(
                "no page is leased; set the same unit of RECRAWL_BUDGET for all servers and "
                "workers, or set a budget for all with `recrawl budget set`",
                reason=str(error),
            )

    def _go_on_alone(self, terms: Terms) -> None:
        """Hold the income since the last draw, because the database of the pace is away.

        Other databases may answer. The amount counts as taken when the pace is back.
        """
        now = self.store.clock()
        since = now if self._drawn_at is None else self._drawn_at
        passed = min(max((now - since).total_seconds(), 0.0), DAY_S)
        day, due = (
            int(days_since_1970(now)),
            usable(terms, Wish(0.0), terms.budget * passed / DAY_S),
        )
        self._held, self._lends = Allotment(day=day, due=due), False
        self._ask_at = self.next_at = None
        self._drawn_at, self._used_at = now, self.seconds()
        if due > 0:
            self.count_unleased(day, TakenAmounts(due))

    def _start_timer(self) -> None:
        with self._counting:
            if self._timer is None and not self._closed:
                self._timer = threading.Timer(HELD_S, self._give_back_unused)
                self._timer.daemon = True
                self._timer.start()

    def _give_back_unused(self) -> None:
        """Return the allotment if it was not used for `HELD_S` seconds, or its day is over."""
        with self._counting:
            self._timer = None
        with self._turn:
            if self._closed:
                return
            idle = self.seconds() - self._used_at >= HELD_S
            over = self._held.day != int(days_since_1970(self.store.clock()))
            try:
                if idle or over or self._unleased:
                    self.give_back()
            except OUTAGES:
                pass  # the next draw, or the loss of the allotment
            except Exception:
                log.exception("an allotment of the budget could not be given back")
            if self._is_holding():
                self._start_timer()
