"""The worth of new pages over several databases: a host and all its levels live in one database."""

from typing_extensions import override

from recrawl_cluster.store.routing import Routing, by_ids, by_part, nothing, on_all
from service.model.arrays import Ints
from service.storage.budget.worth import HeldImportance, ShownLevel


class ShardedWorth(Routing):
    """The statements on levels of URLs."""

    add_levels = by_part("add_levels")
    lock_levels = by_part("lock_levels")
    save_levels = by_part("save_levels")
    unopened = by_part("unopened")
    fullest = by_part("fullest")
    waiting_below = by_part("waiting_below")
    hold_again = by_part("hold_again")
    waiting_pages = by_part("waiting_pages")
    waiting_levels = by_part("waiting_levels")
    urls_of_levels = by_part("urls_of_levels")
    add_digests = by_part("add_digests")
    held_pages = by_part("held_pages")
    n_sampled = by_part("n_sampled")
    due_samples = by_part("due_samples")
    mark_sampled = by_part("mark_sampled")
    date_samples = by_part("date_samples")
    admit_pages = by_ids("admit_pages", nothing)
    hold_pages = by_ids("hold_pages", nothing)
    hand_on = by_ids("hand_on", nothing)
    end_holds = by_ids("end_holds", nothing)
    drop_digests = by_ids("drop_digests", nothing)
    set_rule = on_all("set_rule")

    @override
    def shown_levels(
        self, after: str, limit: int, prefix: str, *, only_stopped: bool
    ) -> list[ShownLevel]:
        parts = (
            tx.shown_levels(after, limit, prefix, only_stopped=only_stopped) for tx in self.every()
        )
        return sorted((each for part in parts for each in part), key=by_name)[:limit]

    @override
    def stopped_levels(self, limit: int) -> list[ShownLevel]:
        every = [each for tx in self.every() for each in tx.stopped_levels(limit)]
        return sorted(every, key=lambda each: (each.n_new - each.n_first, each.level))[:limit]

    @override
    def levels_above(self, level: Ints) -> list[ShownLevel]:
        return sorted((each for tx in self.every() for each in tx.levels_above(level)), key=by_name)

    @override
    def n_waiting(self, level: Ints) -> dict[int, int]:
        return {key: n for tx in self.every() for key, n in tx.n_waiting(level).items()}

    @override
    def n_in_flight(self, level: Ints) -> dict[int, int]:
        return {key: n for tx in self.every() for key, n in tx.n_in_flight(level).items()}

    @override
    def importance_held(self) -> HeldImportance:
        return HeldImportance.concatenate([tx.importance_held() for tx in self.every()])


def by_name(level: ShownLevel) -> str:
    """Return the name of a level."""
    return level.name
