"""The archive over several databases: each archives its own days, with its own lead and folder."""

from datetime import datetime

from typing_extensions import override

from recrawl_cluster.store.routing import Routing, by_part, on_all
from service.archive.log_archive import ArchivedFile


class ShardedLog(Routing):
    """The statements of the archive."""

    housekeep = on_all("housekeep")
    log_parts = by_part("log_parts")
    read_part = by_part("read_part")
    drop_part = by_part("drop_part")

    @override
    def log_files(
        self, first: int = 0, last: int = 2**62, before: datetime | None = None
    ) -> list[ArchivedFile]:
        """Return the files of all databases; a shard that has moved has files in two of them."""
        every = (file for tx in self.every() for file in tx.log_files(first, last, before))
        files = {file.name: file for file in every}.values()
        return sorted(files, key=lambda file: (-file.day.toordinal(), file.first))
