"""Traces: a request, its use cases and its statements; linked batches; nothing secret."""

import json
import os
import re
import subprocess
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import structlog
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from structlog.testing import CapturingLogger
from support.live_server import Live, running, until
from support.processes import serving, started

from service.batching.batcher import Batcher, Limits
from service.epochs import run
from service.model.errors import StoreUnavailable
from service.runtime import tracing
from service.storage.postgres.statements import Statements

SECRET = "hunter2hunter2hunter2hunter2hunter2"
TRACE, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = {"traceparent": f"00-{TRACE}-{CALLER}-01"}
URL = "https://a.example/page?token=sekret5678"
WITH_PASSWORD = "https://user:pass1234@a.example/"


@pytest.fixture
def spans(monkeypatch):
    """The exporter of every process that is started with tracing."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(tracing, "exporting", lambda: provider)
    return exporter


@contextmanager
def traced(url, spans, **settings):
    with running(url, tracing=True, **settings) as live:
        spans.clear()
        yield live


def trace_of(spans, trace_id):
    """Return the spans of a trace, after its request has ended."""
    found = lambda: [s for s in spans.get_finished_spans() if s.context.trace_id == trace_id]  # noqa: E731
    until(lambda: any(s.kind is SpanKind.SERVER for s in found()), "the request has ended")
    return found()


def report(live: Live, **headers):
    crawl = {"url": URL, "observed_at": "2026-05-01T11:00:00Z", "digest": "1f"}
    return live.client.post("/observations", json=[crawl], headers={**TRACEPARENT, **headers})


def test_one_report_is_one_trace_of_request_use_case_and_statements(database_url, spans):
    with traced(database_url, spans, api_keys=SECRET) as live:
        live.client.headers["Authorization"] = f"Bearer {SECRET}"
        assert report(live, **{"X-Request-ID": "job-7"}).status_code == 200
        trace = trace_of(spans, int(TRACE, 16))
    by_id = {span.context.span_id: span for span in trace}
    (server,) = (span for span in trace if span.kind is SpanKind.SERVER)
    assert server.name == "POST /observations"
    assert server.parent.span_id == int(CALLER, 16)
    assert server.attributes == {
        "http.request.method": "POST",
        "url.scheme": "http",
        "http.route": "/observations",
        "http.response.status_code": 200,
        "recrawl.request_id": "job-7",
    }
    names = [span.name for span in trace]
    assert "post_observations" in names
    (flush,) = (span for span in trace if span.name == "record posts")
    assert flush.attributes["recrawl.batch.items"] == 1
    statements = [span for span in trace if span.kind is SpanKind.CLIENT]
    assert statements
    recorded = [span for span in statements if span.parent.span_id == flush.context.span_id]
    texts = " ".join(span.attributes["db.query.text"] for span in recorded)
    for part in ("page_states", "observations", "COMMIT"):
        assert part in texts, part
    system = "sqlite" if database_url.startswith("sqlite") else "postgresql"
    assert {span.attributes["db.system.name"] for span in statements} == {system}

    def root(span):
        while span.context.span_id != server.context.span_id:
            span = by_id[span.parent.span_id]
        return span

    assert {root(span).name for span in trace} == {"POST /observations"}


def test_spans_hold_no_url_key_or_parameter(database_url, spans):
    with traced(database_url, spans, api_keys=SECRET) as live:
        live.client.headers["Authorization"] = f"Bearer {SECRET}"
        report(live)
        live.get("/pages", url=URL)
        live.get("/pages", url=WITH_PASSWORD)
        live.post("/pings", [{"url": WITH_PASSWORD}])
        live.get("/pages/7777")
        live.epoch()
        live.client.get("/indexnow", params={"url": URL, "key": "sitekey99"})
        live.client.delete("/leases/1-tok3nvalue")
        live.post("/leases", {"count": 1, "worker": "w0rker"})
        live.client.patch("/pages/1", json={"importance": 9876512345.5})
        until(lambda: len(spans.get_finished_spans()) > 30, "the spans are there")
        text = "\n".join(span.to_json() for span in spans.get_finished_spans())
    for secret in (
        SECRET,
        "pass1234",
        "sekret5678",
        "sitekey99",
        "tok3nvalue",
        "w0rker",
        "9876512345",
    ):
        assert secret not in text, secret
    assert "a.example" not in text
    assert "/leases/{lease}" in text


def test_an_error_marks_its_spans_without_its_message(sqlite_url, spans, monkeypatch):
    with traced(sqlite_url, spans) as live:

        def fail(*_, **__):
            raise StoreUnavailable("the password is " + SECRET)

        monkeypatch.setattr(live.service.watch.store, "begin", fail)
        assert live.client.get("/epochs/latest", headers=TRACEPARENT).status_code == 503
        trace = trace_of(spans, int(TRACE, 16))
        monkeypatch.undo()
    server = next(span for span in trace if span.kind is SpanKind.SERVER)
    endpoint = next(span for span in trace if span.name == "get_latest_epoch")
    assert server.status.status_code is endpoint.status.status_code is StatusCode.ERROR
    assert endpoint.attributes["error.type"] == "StoreUnavailable"
    assert not any(SECRET in span.to_json() for span in trace)


def test_a_fault_of_the_caller_is_no_error_of_the_service(sqlite_url, spans):
    with traced(sqlite_url, spans) as live:
        assert live.client.get("/pages/7777", headers=TRACEPARENT).status_code == 404
        trace = trace_of(spans, int(TRACE, 16))
    assert {span.name for span in trace} >= {"GET /pages/{page_id}", "get_page"}
    assert not any(span.status.status_code is StatusCode.ERROR for span in trace)
    endpoint = next(span for span in trace if span.name == "get_page")
    assert endpoint.attributes["error.type"] == "PageNotFound"


def test_requests_that_share_a_commit_are_linked(spans):
    traces = tracing.Tracing(tracing.exporting())
    held, flushed = threading.Event(), []

    class Item:
        size, kind = 3, None

    def flush(jobs):
        held.wait()
        flushed.append(len(jobs))
        if len(jobs) == 2:
            raise ValueError(SECRET)
        return [None] * len(jobs)

    limits = Limits(max_batch=100, max_waiting=1_000, min_batch=1_000)
    batcher = Batcher("test", flush, limits)
    traces.follow(batcher, "flush")
    futures = []
    for i in range(4):
        with traces.span(f"caller {i}"):
            futures.append(batcher.submit(Item()))
    with traces.span("caller 4"):
        cancelled = batcher.submit(Item())
        cancelled.cancel()
    held.set()
    batcher.start()
    for future in futures:
        future.result()
    batcher.stop()
    done = {span.name: span for span in spans.get_finished_spans() if span.name != "flush"}
    (together,) = (span for span in spans.get_finished_spans() if span.name == "flush")
    assert flushed == [4]
    assert together.parent.span_id == done["caller 0"].context.span_id
    linked = {link.context.span_id for link in together.links}
    assert linked == {done[f"caller {i}"].context.span_id for i in (1, 2, 3)}
    assert together.attributes == {"recrawl.batch.jobs": 4, "recrawl.batch.items": 12}
    traces.stop()


@pytest.mark.dear
def test_an_epoch_is_a_trace_of_its_stages(database_url, spans):
    with traced(database_url, spans) as live:
        live.register("https://a.example/")
        live.epoch()
    epochs = [span for span in spans.get_finished_spans() if span.name == "epoch"]
    (epoch,) = epochs
    stages = {s.name for s in spans.get_finished_spans() if s.name.startswith("epoch: ")}
    assert stages == {f"epoch: {stage}" for stage in ("load", "estimate", "allocate", "publish")}
    texts = [
        span.attributes["db.query.text"]
        for span in spans.get_finished_spans()
        if span.context.trace_id == epoch.context.trace_id and span.kind is SpanKind.CLIENT
    ]
    assert any("page_states" in text for text in texts)
    assert any(text.startswith(("COPY schedule", "INSERT INTO schedule")) for text in texts)


def test_lines_of_the_log_have_the_ids_of_trace_and_request(sqlite_url, spans):
    lines = CapturingLogger()
    before = structlog.get_config()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=lambda *_: lines,
    )
    try:
        with traced(sqlite_url, spans, slow_request_s=0.0) as live:
            report(live, **{"X-Request-ID": "job-7"})
            trace_of(spans, int(TRACE, 16))
        structlog.get_logger().info("after the end")
    finally:
        structlog.configure(**before)
    events = [json.loads(call.args[0]) for call in lines.calls]
    slow = next(e for e in events if e["event"] == "slow request" and e["request_id"] == "job-7")
    assert slow["trace_id"] == TRACE
    assert re.fullmatch("[0-9a-f]{16}", slow["span_id"])
    assert "trace_id" not in events[-1]


def test_nothing_stays_after_the_end(sqlite_url, spans):
    before = (run.run_epoch, run.stopwatch, Statements.send, Statements._message)
    with traced(sqlite_url, spans):
        assert run.run_epoch is not before[0]
    assert (run.run_epoch, run.stopwatch, Statements.send, Statements._message) == before
    with running(sqlite_url) as live:
        spans.clear()
        assert live.get("/epochs").status_code == 200
    assert spans.get_finished_spans() == ()


@contextmanager
def receiver():
    """A receiver of OTLP over HTTP; yields its address and the requests that arrived."""
    arrived = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            arrived.append((self.path, dict(self.headers), body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", arrived
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def spans_of(body):
    """Return the spans of one request to a receiver."""
    groups = ExportTraceServiceRequest.FromString(body).resource_spans
    return [span for group in groups for scope in group.scope_spans for span in scope.spans]


@pytest.mark.dear
def test_a_receiver_of_otlp_gets_the_trace_as_the_variables_say(sqlite_url, monkeypatch):
    with receiver() as (address, arrived):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=blue")
        monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
        with running(sqlite_url, tracing=True) as live:
            assert report(live).status_code == 200
        spans, resources = [], set()
        for path, headers, body in arrived:
            assert path == "/v1/traces"
            assert {k.lower(): v for k, v in headers.items()}["x-tenant"] == "blue"
            for group in ExportTraceServiceRequest.FromString(body).resource_spans:
                resources |= {(a.key, a.value.string_value) for a in group.resource.attributes}
            spans += spans_of(body)
    assert ("service.name", "recrawl") in resources
    assert ("deployment.environment.name", "test") in resources
    trace = {span.name for span in spans if span.trace_id.hex() == TRACE}
    assert {"POST /observations", "post_observations", "record posts"} <= trace
    assert any(name.startswith("SQL ") for name in trace)


@pytest.mark.slow
def test_the_processes_of_a_fleet_send_requests_epochs_and_the_last_spans(
    postgres_url, tmp_path, monkeypatch
):
    settings = {"database_url": postgres_url, "tracing": "true", "epoch_interval_s": 1}
    with receiver() as (address, arrived):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "600000")  # so that only the end sends
        with (
            serving(tmp_path, **settings) as server,
            started(tmp_path, "worker", **settings) as worker,
        ):
            server.post("/pages", [{"url": URL}])
            ready = lambda: server.client.get("/epochs/latest").status_code == 200  # noqa: E731
            until(ready, "an epoch is in force")
            worker.terminate()
            server.terminate()
        names = {span.name for _, _, body in arrived for span in spans_of(body)}
    assert {"POST /pages", "register pages", "epoch", "epoch: publish"} <= names
    assert any(name.startswith("SQL ") for name in names)


def test_a_receiver_that_is_away_neither_fails_requests_nor_delays_the_end(sqlite_url, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    monkeypatch.setattr(tracing, "LAST_S", 0.2)
    with running(sqlite_url, tracing=True) as live:
        assert report(live).status_code == 200
    # its waits are random numbers, which would make properties of later tests unreliable
    until(lambda: "last-spans" not in [t.name for t in threading.enumerate()], "the export ended")


@pytest.mark.dear
def test_without_the_extra_the_refusal_names_it(sqlite_url):
    program = (
        "import sys; sys.modules['opentelemetry.sdk.trace'] = None\n"
        "from service.cli import main; main()"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, "serve", "--port", "0"],
        env={**os.environ, "RECRAWL_DATABASE_URL": sqlite_url, "RECRAWL_TRACING": "true"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 2
    assert "pip install 'recrawl[otel]'" in ended.stderr
