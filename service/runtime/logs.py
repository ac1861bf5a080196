"""Logs: one JSON object a line; a full disk or a closed pipe fails no request."""

import logging
import sys
from contextlib import suppress
from typing import TextIO, cast

import structlog


class LossyStream:
    """A stream that drops what cannot be written, as on a full disk or a closed pipe."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> None:
        """Write what can be written."""
        with suppress(OSError, ValueError):
            self.stream.write(text)

    def flush(self) -> None:
        """Hand on what was written."""
        with suppress(OSError, ValueError):
            self.stream.flush()


def configure_logging(level: str) -> None:
    """Log one JSON object a line on standard error."""
    numeric = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(numeric),
        logger_factory=structlog.WriteLoggerFactory(file=cast("TextIO", LossyStream(sys.stderr))),
    )
