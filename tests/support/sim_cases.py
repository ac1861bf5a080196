"""Tiny worlds, and recordings in the format of the real ones."""

import gzip

import numpy as np

from recrawl_lab.replay.staleness import Crawls
from recrawl_lab.worlds.world import World

DAY = 86_400

PAGES = """\
page,created_at,deleted_at,obs_start,obs_end,n_changes,n_bulk
/old,0,,100000,10000000,3,1
/new,5000000,,5000000,10000000,2,0
/dead,0,6000000,100000,6000000,0,0
/gone-before,0,200000,100000,200000,0,0
/once,0,,100000,10000000,1,0
"""
CHANGES = """\
page,t,bulk,created_at,n_commit
/old,500000,0,0,1
/old,7000000,1,0,300
/old,8000000,0,0,1
/new,6000000,0,5000000,2
/new,10000000,0,5000000,2
"""


def write_trace(folder, pages=PAGES, changes=CHANGES, site="site"):
    """Write DIR/SITE and return it in the form of `--trace`."""
    (folder / "pages").mkdir(exist_ok=True)
    (folder / "pages" / f"{site}.pages.csv.gz").write_bytes(gzip.compress(pages.encode()))
    (folder / f"{site}.csv.gz").write_bytes(gzip.compress(changes.encode()))
    return folder / site


def world_of(changes, days=10.0, importance=None, created=None, ended=None):
    """Return a world from a list of change times per page."""
    n_pages = len(changes)
    return World(
        name="tiny",
        days=days,
        url=tuple(f"https://tiny.example/{i}" for i in range(n_pages)),
        importance=np.ones(n_pages) if importance is None else np.array(importance, float),
        announced=np.zeros(n_pages, np.bool_),
        created=np.zeros(n_pages) if created is None else np.array(created, float),
        ended=np.full(n_pages, days) if ended is None else np.array(ended, float),
        changed_at=np.array([t for times in changes for t in sorted(times)], float),
        first=np.cumsum([0, *map(len, changes)]),
        change_rate=np.array([len(times) / days for times in changes]),
    )


def crawls_of(*pairs):
    return Crawls(np.array([p for p, _ in pairs], np.int64), np.array([t for _, t in pairs], float))
