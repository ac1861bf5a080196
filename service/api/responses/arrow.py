"""The schedule as an Arrow IPC stream, batch by batch, straight from the columns."""

from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from typing import Any

from service.leases.due import due_at
from service.model.columns import ScheduledPages

ARROW = "application/vnd.apache.arrow.stream"
INSTALLED = find_spec("pyarrow") is not None
END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"


def arrow_stream(epoch: int, parts: Iterable[ScheduledPages]) -> Iterator[bytes]:
    """Yield the schema with the number of the epoch, one record batch a part, and the end."""
    import pyarrow as pa

    schema = pa.schema(
        [
            ("page_id", pa.int64()),
            ("url", pa.string()),
            ("importance", pa.float64()),
            ("change_rate", pa.float64()),
            ("crawl_rate", pa.float64()),
            ("crawl_probability", pa.float64()),
            ("next_crawl_at", pa.timestamp("us", tz="UTC")),
        ],
        metadata={"epoch": str(epoch)},
    )

    def message(pages: ScheduledPages) -> Any:
        columns = [getattr(pages, name) for name in schema.names[:-1]]
        arrays = [
            pa.array(c, f.type) for c, f in zip([*columns, due_at(pages)], schema, strict=True)
        ]
        return pa.record_batch(arrays, schema=schema).serialize()

    yield schema.serialize().to_pybytes()
    for pages in parts:
        if len(pages):
            yield message(pages).to_pybytes()
    yield END_OF_STREAM
