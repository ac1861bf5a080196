"""Parts of a plan without any effect so far: a game without them is the same game."""

from service.core.age_evidence import profile
from service.epochs.ages import evidence_in_force
from service.model.domain import Epoch
from service.storage import Store

PARTS_THAT_LEARN = frozenset({"ages", "change_hours", "group_hours", "wide_revisions"})
"""Fields of `Plan` whose parts have no effect before they have learnt something."""


def in_use(store: Store, epoch: Epoch) -> set[str]:
    """Return the parts that may have moved a crawl in an epoch, or may in a later one.

    Extra crawls count as change hours. A URL group with evidence may take crawls from the lesson of
    its host, so that both kinds of hours are in use. All parts count as in use on a database, which
    lists no groups without their hosts.
    """
    groups = getattr(store, "group_hours", None)
    if groups is None:
        return set(PARTS_THAT_LEARN)
    with store.begin(write=False) as tx:
        revisions = tx.wide_revisions(epoch.epoch)
        n_shifted, n_hosts = len(tx.shifts(epoch.epoch)), len(tx.host_hours())
    n_groups = len(groups)
    used = {
        "ages": profile(evidence_in_force(epoch)) is not None,
        "change_hours": n_shifted + n_hosts + n_groups > 0,
        "group_hours": n_groups > 0,
        "wide_revisions": revisions is not None and revisions.at.size > 0,
    }
    return {part for part, counts in used.items() if counts}
