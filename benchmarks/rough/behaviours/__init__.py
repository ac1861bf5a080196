"""The table of behaviours: what each rough host does, by name."""

from benchmarks.rough.behaviours.answers import WELL_BEHAVED, Answer, Behaviour, Visit
from benchmarks.rough.behaviours.bodies import BODIES
from benchmarks.rough.behaviours.heads import HEADS
from benchmarks.rough.behaviours.outages import OUTAGES
from benchmarks.rough.behaviours.redirects import REDIRECTS
from benchmarks.rough.behaviours.robots import ROBOTS
from benchmarks.rough.behaviours.traps import TRAPS

__all__ = ["BEHAVIOURS", "WELL_BEHAVED", "Answer", "Behaviour", "Visit"]

BEHAVIOURS: dict[str, Behaviour] = {
    behaviour.name: behaviour
    for behaviour in (*OUTAGES, *REDIRECTS, *HEADS, *BODIES, *ROBOTS, *TRAPS)
}
