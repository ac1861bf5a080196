"""Where an import stands: a small file beside what is imported, gone when it has ended."""

import json
from collections.abc import Iterable
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

from service.errors import UnreadableFile


class Checkpoint:
    """Remembers how far an import has come, for these files as they are and this receiver."""

    def __init__(self, source: Path, files: Iterable[Path], receiver: str) -> None:
        source = source.resolve()
        self.path = source.with_name(f"{source.name}.import-progress")
        stamps = [(file.stat().st_size, file.stat().st_mtime_ns) for file in files]
        told = json.dumps([stamps, receiver]).encode()
        self.of = blake2b(told, digest_size=16).hexdigest()

    def read(self) -> dict[str, Any]:
        """Give what was last written; nothing where nothing was.

        Raises
        ------
        UnreadableFile
            It is of other content or of another receiver.
        """
        if not self.path.is_file():
            return {}
        try:
            told: dict[str, Any] = json.loads(self.path.read_text())
        except ValueError:
            told = {}
        if told.pop("of", None) != self.of:
            raise UnreadableFile(
                f"{self.path} tells of other content or of another receiver; import without "
                "--resume (what is there already stays as it is)"
            )
        return told

    def write(self, **standing: Any) -> None:
        """Replace what was written, in one step; nothing is remembered in a read-only folder."""
        new = self.path.with_name(self.path.name + ".new")
        with suppress(OSError):
            new.write_text(json.dumps({"of": self.of, **standing}))
            new.replace(self.path)

    def clear(self) -> None:
        """Forget: the import has ended."""
        with suppress(OSError):
            self.path.unlink(missing_ok=True)
