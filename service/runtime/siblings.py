"""The processes of one server share metrics and the balances of keys, in a folder."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry, ProcessCollector, values
from prometheus_client.core import Metric
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector

PID = "pid-"
"""Start of the name of a file that has the number of a process."""


@dataclass(frozen=True, slots=True)
class Siblings:
    """The processes of a server, as one of them sees them."""

    folder: Path
    """Folder that all of them write to."""
    place: int
    """Place of this process: a process that replaces a dead one has its place."""

    def share_metrics(self) -> CollectorRegistry:
        """Return the metrics of all processes; metrics that are made later are shared.

        A counter goes on where the dead process of the same place left it.
        """
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(self.folder)
        values.ValueClass = values.MultiProcessValue(lambda: self.place)  # type: ignore[no-untyped-call]
        registry = CollectorRegistry()
        MultiProcessCollector(registry, str(self.folder))  # type: ignore[no-untyped-call]
        registry.register(ProcessesCollector(self.folder))
        return registry

    def begin(self, pid: int) -> None:
        """Note the number of the process at this place."""
        (self.folder / f"{PID}{self.place}").write_text(str(pid))

    def end(self) -> None:
        """Forget the process at this place, which is dead, and its gauges."""
        (self.folder / f"{PID}{self.place}").unlink(missing_ok=True)
        mark_process_dead(self.place, str(self.folder))  # type: ignore[no-untyped-call]


class ProcessesCollector(Collector):
    """Processor time, memory and files of each process of a server."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of `ProcessCollector`, with the place of each process as a label."""
        families: dict[str, Metric] = {}
        for path in sorted(self.folder.glob(f"{PID}*")):
            place = {"process": path.name.removeprefix(PID)}
            try:
                metrics = list(ProcessCollector(pid=path.read_text, registry=None).collect())
            except FileNotFoundError:  # the process has died meanwhile
                continue
            for metric in metrics:
                family = families.setdefault(
                    metric.name, Metric(metric.name, metric.documentation, metric.type)
                )
                for sample in metric.samples:
                    family.add_sample(sample.name, place, sample.value)
        yield from families.values()
