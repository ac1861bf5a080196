"""Traces by OpenTelemetry, added from outside: without tracing, no other code runs than before.

A trace has the request, its use cases and the statements of the database. Spans have no URL, key,
parameter or message of an error, because any of these may hold a secret. The reasons are in
docs/decisions/0024-traces-from-outside.md.
"""

import re
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import Context, copy_context
from functools import partial, wraps
from inspect import iscoroutinefunction
from typing import Any

import sqlalchemy as sa
import structlog
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import (
    Link,
    Span,
    SpanKind,
    StatusCode,
    format_span_id,
    format_trace_id,
    get_current_span,
)
from psycopg.pq import TransactionStatus
from structlog.typing import EventDict

from service import __version__
from service.batching.batcher import Batcher
from service.epochs import run
from service.epochs.what_if import WhatIf
from service.events.courier import Courier
from service.model.errors import RequestError
from service.storage.epochs import postgres_loading as loading
from service.storage.postgres import binary
from service.storage.postgres.dialect import PostgresDialect
from service.storage.postgres.statements import Statements

MAX_TEXT = 500
"""Maximum length of the text of one statement in a span, characters."""
LAST_S = 2.0
"""Maximum time to send the last spans at the end of a process, seconds."""
VERB = re.compile(r"\s*(\w+)")
"""First word of a statement."""

USE_CASES = (
    (run, "run_epoch", "epoch"),
    (WhatIf, "ask", "plan"),
    (Courier, "deliver", "deliver changes"),
)
"""Use cases outside of requests and batchers: owner, function, name of the span."""


def exporting() -> TracerProvider:
    """Return a provider that sends spans by OTLP, configured by the variables `OTEL_*`."""
    resource = Resource.create({SERVICE_VERSION: __version__})
    if str(resource.attributes[SERVICE_NAME]).startswith("unknown_service"):
        resource = resource.merge(Resource({SERVICE_NAME: "recrawl"}))
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


class Tracing:
    """The spans of one process, from `start` to `stop`."""

    def __init__(self, provider: "TracerProvider") -> None:
        self.provider = provider
        self.tracer = provider.get_tracer("recrawl", __version__)
        self._added = ExitStack()

    def start(self) -> None:
        """Add spans to use cases and statements; open the store afterwards."""
        for owner, name, title in USE_CASES:
            self._wrap(owner, name, partial(self._use_case, title))
        self._wrap(run, "stopwatch", self._stage)
        self._wrap(Statements, "send", self._round_trip)
        self._wrap(binary, "copy_out", self._copy)
        self._wrap(loading, "read_packed", self._copy)
        self._wrap(PostgresDialect, "copy", self._copy)
        self._trace_sqlite()
        before = structlog.get_config()["processors"]
        structlog.configure(processors=[_add_ids, *before])
        self._added.callback(structlog.configure, processors=before)

    def stop(self) -> None:
        """Remove what was added, and send the last spans within `LAST_S`."""
        self._added.close()
        # a collector that is away would delay the end by its own time limit
        sending = threading.Thread(target=self.provider.shutdown, name="last-spans", daemon=True)
        sending.start()
        sending.join(LAST_S)

    def _wrap(self, owner: Any, name: str, wrapper: Callable[[Any], Any]) -> None:
        original = getattr(owner, name)
        setattr(owner, name, wraps(original)(wrapper(original)))
        self._added.callback(setattr, owner, name, original)

    @contextmanager
    def span(self, title: str, **options: Any) -> Iterator[Span]:
        """Open a span; an error leaves its type there, because messages may hold secrets.

        A `RequestError` is a fault of the caller, and the span counts as successful.
        """
        with self.tracer.start_as_current_span(
            title, record_exception=False, set_status_on_exception=False, **options
        ) as span:
            try:
                yield span
            except BaseException as error:
                span.set_attribute("error.type", type(error).__name__)
                if not isinstance(error, RequestError):
                    span.set_status(StatusCode.ERROR)
                raise

    # -- use cases

    def _use_case(self, title: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def traced(*args: Any, **kwargs: Any) -> Any:
            with self.span(title):
                return original(*args, **kwargs)

        return traced

    def _stage(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @contextmanager
        def traced(seconds: dict[str, float], stage: str) -> Iterator[None]:
            with self.span(f"epoch: {stage}"), original(seconds, stage):
                yield

        return traced

    def enter(self, route: Any, operation: str) -> None:
        """Put the endpoint of a route into a span of its operation."""
        is_async = iscoroutinefunction(route.endpoint)
        wrapper = self._async_use_case if is_async else self._use_case
        self._wrap(route, "endpoint", partial(wrapper, operation))

    def _async_use_case(self, title: str, original: Callable[..., Any]) -> Callable[..., Any]:
        async def traced(*args: Any, **kwargs: Any) -> Any:
            with self.span(title):
                return await original(*args, **kwargs)

        return traced

    def follow(self, batcher: Batcher[Any, Any], title: str) -> None:
        """Put the flushes of a batcher into the trace of their first job, linked to the others."""
        submit, flush = batcher.submit, batcher.flush
        contexts: dict[int, Context] = {}

        def traced_submit(job: Any) -> Future[Any]:
            contexts[id(job)] = copy_context()
            try:
                future = submit(job)
            except BaseException:
                del contexts[id(job)]
                raise
            future.add_done_callback(lambda _: contexts.pop(id(job), None))
            return future

        def traced_flush(jobs: list[Any]) -> Any:
            first, *others = (contexts[id(job)] for job in jobs)
            callers = [context.run(get_current_span) for context in others]
            return first.run(self._flush, flush, jobs, title, callers)

        batcher.submit, batcher.flush = traced_submit, traced_flush  # type: ignore[method-assign]

    def _flush(
        self, flush: Callable[..., Any], jobs: list[Any], title: str, callers: list[Span]
    ) -> Any:
        links = [Link(caller.get_span_context()) for caller in callers]
        size = {"recrawl.batch.jobs": len(jobs), "recrawl.batch.items": sum(j.size for j in jobs)}
        with self.span(title, links=links, attributes=size) as span:
            for caller in callers:
                caller.add_link(span.get_span_context())
            return flush(jobs)

    # -- statements

    def statements(self, system: str, texts: list[str]) -> AbstractContextManager[Span]:
        """Open a span of statements that are sent together; values are not in their texts."""
        verbs = [match[1].upper() if (match := VERB.match(text)) else "" for text in texts]
        attributes: dict[str, str | int] = {
            "db.system.name": system,
            "db.operation.name": " ".join(verbs),
            "db.query.text": ";\n".join(" ".join(text.split())[:MAX_TEXT] for text in texts),
        }
        if len(texts) > 1:
            attributes["db.operation.batch.size"] = len(texts)
        return self.span(
            f"SQL {' '.join(dict.fromkeys(verbs))}", kind=SpanKind.CLIENT, attributes=attributes
        )

    def _round_trip(self, send: Callable[[Statements], None]) -> Callable[[Statements], None]:
        def traced(statements: Statements) -> None:
            texts = [message.statement for message in statements.put_off]
            idle = statements.driver.pgconn.transaction_status == TransactionStatus.IDLE
            if statements.opening and idle:
                texts = [statements.opening, *texts]
            if not texts:
                return send(statements)
            with self.statements("postgresql", texts):
                return send(statements)

        return traced

    def _copy(self, copy: Callable[..., Any]) -> Callable[..., Any]:
        def traced(owner: Any, statement: str, *args: Any, **kwargs: Any) -> Any:
            with self.statements("postgresql", [statement]):
                return copy(owner, statement, *args, **kwargs)

        return traced

    def _trace_sqlite(self) -> None:
        """Open connections of SQLite with a class whose statements have spans."""
        spans = partial(self.statements, "sqlite")

        class TracedConnection(sqlite3.Connection):
            def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
                with spans([statement]):
                    return super().execute(statement, *values)

            def executemany(self, statement: str, rows: Any) -> sqlite3.Cursor:
                with spans([statement]):
                    return super().executemany(statement, rows)

            def commit(self) -> None:
                with spans(["COMMIT"]):
                    super().commit()

        def connecting(dialect: Any, _: Any, __: Any, options: dict[str, Any]) -> None:
            if dialect.name == "sqlite":
                options["factory"] = TracedConnection

        sa.event.listen(sa.Engine, "do_connect", connecting)
        self._added.callback(sa.event.remove, sa.Engine, "do_connect", connecting)


def _add_ids(_: object, __: str, event: EventDict) -> EventDict:
    """Add the ids of the current trace and span to a line of the log."""
    span = get_current_span().get_span_context()
    if span.is_valid:
        event["trace_id"] = format_trace_id(span.trace_id)
        event["span_id"] = format_span_id(span.span_id)
    return event
