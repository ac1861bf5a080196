"""The schedule as an Arrow IPC stream, batch by batch, straight from the columns."""

from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from typing import Any

from service.columns import ScheduledPages

ARROW = "application/vnd.apache.arrow.stream"
INSTALLED = find_spec("pyarrow") is not None
END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"


def arrow_stream(epoch: int, parts: Iterable[ScheduledPages]) -> Iterator[bytes]:
    """Give the schema, one record batch a part, and the end; the schema names the epoch."""
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
        arrays = [pa.array(getattr(pages, f.name), f.type) for f in schema]
        return pa.record_batch(arrays, schema=schema).serialize()

    yield schema.serialize().to_pybytes()
    for pages in parts:
        if len(pages):
            yield message(pages).to_pybytes()
    yield END_OF_STREAM
