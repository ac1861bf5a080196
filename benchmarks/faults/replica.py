"""Run one process of the service with a clock that the campaign can step.

    python -m benchmarks.faults.replica CLOCK serve --port 8000

The file CLOCK contains one double: the offset from the machine's time of day, seconds.
"""

import mmap
import struct
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from service.storage import clock

FORMAT = "<d"


def step(path: Path, seconds: float) -> None:
    """Set the offset of a clock, seconds."""
    with path.open("r+b" if path.exists() else "w+b") as file:
        file.write(struct.pack(FORMAT, seconds))


def replace_clock(path: Path) -> None:
    """Make the service read the machine's clock plus the offset in a file.

    Modules of the service import `system_clock` by name, so this call must precede their import.
    """
    with path.open("rb") as file:
        ahead = mmap.mmap(file.fileno(), struct.calcsize(FORMAT), access=mmap.ACCESS_READ)

    def stepped() -> datetime:
        (seconds,) = struct.unpack(FORMAT, ahead[:])
        return datetime.now(UTC) + timedelta(seconds=seconds)

    clock.system_clock = stepped


if __name__ == "__main__":
    replace_clock(Path(sys.argv.pop(1)))
    from service.cli import main

    main()
