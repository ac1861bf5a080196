"""The position of an import: a small file beside the source, removed at the end."""

import json
from collections.abc import Iterable
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

from service.model.errors import UnreadableFile


class Checkpoint:
    """Position of an import of these files, as they are now, into this receiver."""

    def __init__(self, source: Path, files: Iterable[Path], receiver: str) -> None:
        source = source.resolve()
        self.path = source.with_name(f"{source.name}.import-progress")
        stamps = [(file.stat().st_size, file.stat().st_mtime_ns) for file in files]
        identity = json.dumps([stamps, receiver]).encode()
        self.of = blake2b(identity, digest_size=16).hexdigest()

    def read(self) -> dict[str, Any]:
        """Return the position that was written last, empty if there is none.

        Raises
        ------
        UnreadableFile
            The file belongs to other content or to another receiver.
        """
        if not self.path.is_file():
            return {}
        try:
            standing: dict[str, Any] = json.loads(self.path.read_text())
        except ValueError:
            standing = {}
        if standing.pop("of", None) != self.of:
            raise UnreadableFile(
                f"{self.path} tells of other content or of another receiver; import without "
                "--resume (what is there already stays as it is)"
            )
        return standing

    def write(self, **standing: Any) -> None:
        """Replace the position in one step; in a read-only folder, write nothing."""
        new = self.path.with_name(self.path.name + ".new")
        with suppress(OSError):
            new.write_text(json.dumps({"of": self.of, **standing}))
            new.replace(self.path)

    def clear(self) -> None:
        """Remove the file: the import has ended."""
        with suppress(OSError):
            self.path.unlink(missing_ok=True)
