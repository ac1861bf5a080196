"""Lines of the evidence, made up with round numbers."""

from benchmarks.evidence.cells import Cell

OI_WIKI = Cell("oi-wiki", "plain", "equal", 0.1)
FEEDS = Cell("data-feeds", "plain", "equal", 1.0)


def lines_of(cell, *, seed=1, ece=None, live=None, **staleness):
    """Return a line for each policy, whose name has _ for -."""
    return [
        {
            **cell._asdict(),
            "seed": seed,
            "policy": name.replace("_", "-"),
            "commit": "0a1b2c3d",
            "cpu_seconds": 1.0,
            "harmonic": harmonic,
            "harmonic_live": live and live * harmonic,
            "ece_learnt": ece,
        }
        for name, harmonic in staleness.items()
    ]
