"""Notice that a SQLite file was restored: marks of the file, in a small file beside it.

The marks repeat values of the database: its incarnation, the number of its last opening, and the
last numbers that it handed out. A file that lags behind its marks is an older
copy. A file without its marks is a copy that came from elsewhere.

Each process writes the marks when it opens the file and when it closes it, and the service about
once a second in between. A folder that is restored as a whole has its marks too; it shows by the
file's inode and by the age of the marks.
"""

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path

from service.model.incarnations import REWOUND_AFTER, Numbers

AGAIN_S = 60.0
"""Maximum age of the marks of a running service, seconds."""


@dataclass(frozen=True, slots=True)
class Marks:
    """Values of a file that are kept outside of it."""

    incarnation: str
    opening: str
    """Number of the last opening."""
    last: Numbers
    inode: int
    at: datetime

    def contradict(self, present: "Marks") -> str:
        """Return why the file that was `present` is not the one with these marks; "" if it is."""
        if present.incarnation != self.incarnation:
            return "the file is another database than before"
        if present.opening != self.opening:
            return "the file is a copy from before its last opening"
        if any(now < before for now, before in zip(present.last, self.last, strict=True)):
            return "the file is an older copy"
        if present.inode != self.inode and present.at - self.at > REWOUND_AFTER:
            return "the folder is an older copy"
        return ""

    def are_new(self, written: "Marks | None") -> bool:
        """Return whether these marks differ from the stored ones, or are much younger."""
        if written is None:
            return True
        same = replace(written, at=self.at) == self
        return not same or (self.at - written.at).total_seconds() > AGAIN_S


def path_of(database: str) -> Path:
    """Return the path of the marks of a file."""
    return Path(f"{database}-marks")


def inode_of(database: str) -> int:
    """Return the inode of a file; 0 if there is none."""
    with suppress(OSError):
        return Path(database).stat().st_ino
    return 0


def read(database: str) -> Marks | None:
    """Return the marks of a file; None: there are none, or they cannot be read."""
    try:
        values = json.loads(path_of(database).read_text())
        values["last"] = Numbers(*values["last"])
        values["at"] = datetime.fromisoformat(values["at"])
        return Marks(**values)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write(database: str, marks: Marks) -> bool:
    """Replace the marks of a file in one step; return False if a full disk has the old ones."""
    path = path_of(database)
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        new.write_text(json.dumps({**asdict(marks), "at": marks.at.isoformat()}))
        new.replace(path)
    except OSError:
        with suppress(OSError):
            new.unlink()
        return False
    return True
