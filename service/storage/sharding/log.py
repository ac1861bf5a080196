"""The archive of the log over several databases; a part of the log names its database."""

from collections.abc import Generator, Sequence
from datetime import datetime

from typing_extensions import override

from service.archive.log_archive import ArchivedFile
from service.model.columns import LogColumns
from service.storage.archive import LogPart
from service.storage.sharding.database import ShardTransaction
from service.storage.sharding.routing import Routing, on_all


class ShardedLog(Routing):
    """The statements of the archive."""

    housekeep = on_all("housekeep")

    @override
    def log_files(
        self, first: int = 0, last: int = 2**62, before: datetime | None = None
    ) -> list[ArchivedFile]:
        files = [file for tx in self.every() for file in tx.log_files(first, last, before)]
        return sorted(files, key=lambda file: (-file.day.toordinal(), file.first_page))

    @override
    def log_parts(self, before: datetime) -> list[LogPart]:
        return [
            part._replace(name=f"{part.name}@{n}")
            for n, tx in enumerate(self.every())
            for part in tx.log_parts(before)
        ]

    @override
    def read_part(self, part: LogPart) -> Generator[LogColumns]:
        tx, own = self._own(part)
        return tx.read_part(own)

    @override
    def drop_part(self, part: LogPart, files: Sequence[ArchivedFile], now: datetime) -> None:
        tx, own = self._own(part)
        tx.drop_part(own, files, now)

    def _own(self, part: LogPart) -> tuple[ShardTransaction, LogPart]:
        name, _, position = part.name.rpartition("@")
        return self.on(int(position)), part._replace(name=name)
