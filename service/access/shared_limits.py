"""The balance of a key that several processes of one server share."""

import fcntl
import mmap
import os
import struct
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from typing_extensions import override

from service.access.limits import TokenBucket

BALANCE = struct.Struct("=dd")
"""Balance, and its instant in seconds of the monotonic clock, which all processes share."""


class SharedBucket(TokenBucket):
    """A bucket whose balance is in a file that the processes map into their memory.

    A process that dies releases the lock, and leaves the balance as it last wrote it.
    """

    def __init__(self, path: Path, per_s: float, now: float) -> None:
        super().__init__(per_s, 0.0, now)
        self.file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        weakref.finalize(self, os.close, self.file)
        with self._held():
            if not os.fstat(self.file).st_size:
                os.write(self.file, BALANCE.pack(self.capacity, now))
            self.memory = mmap.mmap(self.file, BALANCE.size)

    @contextmanager
    def _held(self) -> Iterator[None]:
        with self.lock:  # the lock of the file is one for all threads of a process
            fcntl.flock(self.file, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(self.file, fcntl.LOCK_UN)

    @override
    def balance(self, now: float) -> float:
        with self._held():
            left, at = self._read()
            # another process may have written a later instant
            left = min(left + max(now - at, 0.0) * self.per_s, self.capacity)
            self.memory[:] = BALANCE.pack(left, max(now, at))
            return left

    @override
    def charge(self, n_items: int) -> None:
        with self._held():
            left, at = self._read()
            self.memory[:] = BALANCE.pack(left - n_items, at)

    def _read(self) -> tuple[float, float]:
        left, at = BALANCE.unpack(self.memory[:])
        return left, at


def bucket_in(folder: Path, name: str, per_s: float, now: float) -> TokenBucket:
    """Return the bucket of a key that all processes with this folder share."""
    return SharedBucket(folder / f"bucket-{name}-{per_s!r}", per_s, now)
