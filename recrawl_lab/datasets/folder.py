"""The folder of the PoliteCrawling data set, for `recrawl import`."""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from recrawl_lab.datasets.polite import TABLES, find_table
from recrawl_lab.datasets.polite_import import import_polite
from recrawl_lab.datasets.polite_learning import Learning
from service.model.arrays import instant
from service.runtime.bootstrap import Opened
from service.transfer.importing import ImportStep


class Folder:
    """A folder with the five tables of the data set.

    Raises
    ------
    UnreadableFile
        A table is missing, or several files have its name.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.files = [find_table(path, name) for name in TABLES]

    def steps(
        self, base: Opened, began: datetime, standing: dict[str, Any]
    ) -> Iterator[ImportStep]:
        """Yield the steps of an import of the folder whose crawls began at `began`.

        `standing` is the standing of an interrupted import, or empty for a new one.

        Raises
        ------
        UnreadableFile, NotExportable
            See `import_polite`.
        """
        rules = base.rules
        now = base.store.clock()
        learning = Learning(rules.estimator, rules.timing, rules.rng, instant(began), now)
        return import_polite(self.path, base.store, learning, standing)
