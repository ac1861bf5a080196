"""Bodies that would cost a thousand times their size: limits come before the cost."""

import gzip
import json
import time
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path

import httpx
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from support.live_server import START, Live, running, until
from support.processes import serving

from service.api.encodings import MAX_RATIO, RATIO_FROM
from service.api.requests import blocks, bodies, items
from service.api.requests.meter import (
    BODIES_AT_ONCE,
    MOST_VALUES,
    SMALL,
    BodiesInWork,
    BodyLimits,
    Meter,
)
from service.model.errors import Overloaded

AT = START.isoformat()
JSON, NDJSON = "application/json", "application/x-ndjson"
COMPRESS = {"gzip": partial(gzip.compress, compresslevel=1, mtime=0), "zstd": zstandard.compress}
N = 31_000_000
MB = 1_000_000


def noted(note: bytes) -> bytes:
    """Return an observation with a note."""
    head = json.dumps({"url": "https://costly.example/1", "observed_at": AT, "status": 304})
    return head[:-1].encode() + b', "note": ' + note + b"}"


def listed(note: bytes) -> bytes:
    return b"[" + noted(note) + b"]"


def many(value: bytes, size: int) -> bytes:
    """Return about `size` bytes of a list of equal values."""
    return b"[" + value * (size // len(value)) + b"0]"


EMOJI = "😀".encode()
COSTLY = {
    "lists": lambda n: listed(many(b"[],", n)),
    "objects": lambda n: listed(many(b"{},", n)),
    "numbers": lambda n: listed(many(b"1.5,", n)),
    "texts": lambda n: listed(many(b'"ab",', n)),
    "items": lambda n: many(b"{},", n),
    "unknown field": lambda n: b'[{"zz":' + many(b"[],", n) + b"}]",
    "levels": lambda n: b"[" * n,
    "levels of objects": lambda n: b'{"a":' * (n // 5),
    "levels of a note": lambda n: listed(b"[" * (n // 2) + b"]" * (n // 2)),
    "digits": lambda n: b"[" + b"1" * n + b"]",
    "exponent": lambda n: listed(b"1e" + b"9" * n),
    "one text": lambda n: listed(b'"' + b"a" * n + b'"'),
    "one wide text": lambda n: listed(b'"' + EMOJI + b"a" * n + b'"'),
    "one wide text beside a fault": lambda n: b"[1," + listed(b'"' + EMOJI + b"a" * n + b'"')[1:],
    "one key": lambda n: b'[{"' + EMOJI + b"a" * n + b'": 1}]',
    "escapes": lambda n: listed(b'"' + b"\\\\" * (n // 2) + b'"'),
    "points": lambda n: listed(b'"' + b"\\ud83d\\ude00" * (n // 12) + b'"'),
    "repeated keys": lambda n: b"[{" + b'"url":"x",' * (n // 10) + b'"url":"y"}]',
    "blanks": lambda n: b" " * n + b"[]",
    "line ends": lambda n: b"\n" * n,
    "an open text": lambda n: b'["' + b"[]," * (n // 3),
    "UTF-16": lambda n: many(b"[],", n // 2).decode().encode("utf-16"),
    "UTF-16 behind a mark": lambda n: ("[\u2222" + "[]," * (n // 6)).encode("utf-16"),
    "a form": lambda n: b"a=1&" * (n // 4),
}
"""Bodies of about so many bytes, by what is costly in them."""


# -- one request


@cache
def bomb(name: str, size: int, coding: str = "gzip") -> bytes:
    """Return a costly body, of 4 to 200 kilobytes once it is compressed."""
    compressed = COMPRESS[coding](COSTLY[name](size))
    assert len(compressed) < 200_000
    return compressed


@pytest.mark.sampled(24)
@pytest.mark.parametrize(
    ("path", "media_type", "size"),
    [
        ("/observations", JSON, RATIO_FROM - 1_000),
        ("/observations", NDJSON, N),
        ("/freshness", JSON, N),
        ("/freshness", NDJSON, RATIO_FROM - 1_000),
    ],
)
@pytest.mark.parametrize("name", COSTLY)
def test_thirty_kilobytes_take_little_memory(shared_small: Live, path, name, size, media_type):
    content = bomb(name, size)
    headers = {"Content-Type": media_type, "Content-Encoding": "gzip"}
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        response = shared_small.client.post(path, content=content, headers=headers)
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    # infinity is a null note, and blanks around an empty list are no fault
    harmless = name in ("exponent", "blanks", "line ends")
    assert response.status_code in ({200, 400, 413, 422} if harmless else {400, 413, 422})
    assert peak < 64 * MB
    assert len(response.content) < 10_000
    until(lambda: shared_small.service.bodies.held == 0, "the memory is free")


@pytest.fixture(scope="module")
def shared_small(sqlite_template, tmp_path_factory) -> Iterator[Live]:
    """Yield one service for all bodies; it takes none of them."""
    path = tmp_path_factory.mktemp("costly") / "recrawl.db"
    path.write_bytes(Path(sqlite_template).read_bytes())
    with running(f"sqlite:///{path}") as live:
        yield live


def operations(api: Live) -> Iterator[tuple[str, str, str]]:
    """Yield method, path and media type of each operation with a body."""
    for path, methods in api.get("/openapi.json").json()["paths"].items():
        for method, operation in methods.items():
            for media_type in operation.get("requestBody", {}).get("content", {}):
                yield method.upper(), path, media_type


@pytest.mark.dear
@pytest.mark.parametrize("coding", [pytest.param("gzip", marks=pytest.mark.dear), "zstd"])
def test_each_operation_with_a_body_reads_it_by_the_one_function(
    sqlite_api: Live, monkeypatch, coding
):
    subscribed = {
        "topic": "https://topic.example/feed",
        "hub": "https://hub.example/",
        "callback_base": "https://me.example",
    }
    sqlite_api.client.post("/websub", json=subscribed)
    arrived, decoded = [], []
    arriving, strict = bodies.arriving, items._strict

    def spy(request, *args):
        arrived.append(request.url.path)
        return arriving(request, *args)

    def counting(decode, content):
        decoded.append(len(content))
        return strict(decode, content)

    monkeypatch.setattr(bodies, "arriving", spy)
    monkeypatch.setattr(blocks, "arriving", spy)
    monkeypatch.setattr(items, "_strict", counting)
    seen = set()
    for method, path, media_type in operations(sqlite_api):
        address = path.replace("{page_id}", "1")
        while "{" in address:
            head, _, rest = address.partition("{")
            address = head + "1" + rest.partition("}")[2]
        query = {"url": "https://costly.example/sitemap.xml"} if path == "/sitemaps" else {}
        for name in ("items",) if coding == "gzip" else ("lists",):
            n_before = len(arrived)
            response = sqlite_api.client.request(
                method,
                address,
                params=query,
                content=bomb(name, N, coding),
                headers={"Content-Type": media_type, "Content-Encoding": coding},
            )
            assert 400 <= response.status_code < 500, (method, path, response.status_code)
            if response.status_code in (404, 410, 422) and len(arrived) == n_before:
                continue  # refused before its body: no such key, webhook or subscription
            assert len(arrived) == n_before + 1, (method, path, response.text[:200])
            seen.add((method, path))
    assert {path for _, path in seen} >= {
        "/observations",
        "/pings",
        "/pages",
        "/leases",
        "/freshness",
        "/sitemaps",
        "/indexnow",
        "/webhooks",
        "/keys",
    }
    assert not decoded
    assert sqlite_api.alive()


def test_no_other_module_reads_bodies():
    root = Path(bodies.__file__).parents[3]
    reads = tuple(f"request.{read}(" for read in ("receive", "stream", "body", "json", "form"))
    readers = {
        path.name
        for path in (root / "service").rglob("*.py")
        if any(read in path.read_text() for read in reads)
    }
    assert readers == {"bodies.py"}


@pytest.mark.parametrize("coding", COMPRESS)
@pytest.mark.parametrize(
    ("media_type", "content"), [(JSON, b" " * 20 * MB), (NDJSON, b"\n" * 20 * MB)]
)
def test_a_bomb_is_refused_with_the_remedy(shared_small: Live, coding, media_type, content):
    headers = {"Content-Type": media_type, "Content-Encoding": coding}
    response = shared_small.client.post(
        "/observations", content=COMPRESS[coding](content), headers=headers
    )
    assert response.status_code == 413
    assert f"inflates over {MAX_RATIO} times" in response.json()["detail"]
    assert "send it plain" in response.json()["detail"]


def test_bodies_that_compress_well_are_taken(sqlite_api: Live):
    """Four megabytes of equal crawls inflate two hundred times."""
    crawl = json.dumps({"page_id": 1, "observed_at": AT, "digest": "x" * 200, "etag": "y" * 130})
    content = b"[" + b",".join([crawl.encode()] * 9_000) + b"]"
    sqlite_api.register("https://repeated.example/")
    zipped = zstandard.compress(content)
    assert len(content) > MAX_RATIO * len(zipped)
    headers = {"Content-Type": JSON, "Content-Encoding": "zstd"}
    response = sqlite_api.client.post("/observations", content=zipped, headers=headers)
    assert (response.json()["accepted"], response.json()["duplicate"]) == (1, 8_999)


@pytest.mark.dear
def test_a_full_batch_of_rich_items_is_taken(sqlite_api: Live):
    """10,000 pages with all fields are within the limit of values."""
    pages = [
        {
            "url": f"https://rich.example/{i}?a=1,2,3&b=[{{}}]",
            "importance": 1.5,
            "min_crawl_rate": 0.1,
            "max_crawl_rate": 2,
            "tags": ["one", "two", "three"],
        }
        for i in range(10_000)
    ]
    response = sqlite_api.post("/pages", pages)
    assert response.json()["accepted"] == 10_000


# -- streams


@pytest.mark.dear
def test_a_stream_of_refused_lines_ends(sqlite_api: Live, monkeypatch):
    n_decoded = 0
    decode = blocks.decode_batch

    def counting(*args):
        nonlocal n_decoded
        batch = decode(*args)
        n_decoded += batch.n_items
        return batch

    monkeypatch.setattr(blocks, "decode_batch", counting)
    content = b"{}\n" * 1_300_000
    headers = {"Content-Type": NDJSON, "Content-Encoding": "gzip"}
    response = sqlite_api.client.post(
        "/observations", content=gzip.compress(content), headers=headers
    )
    problem = response.json()
    assert response.status_code == 422
    assert problem["type"].endswith("#stream-refused")
    assert problem["lines_taken"] == n_decoded <= blocks.MOST_REFUSED + 10_000
    assert "lines were refused" in problem["detail"]
    assert len(response.content) < 2_000


def test_refused_lines_among_good_ones_do_not_end_a_stream(sqlite_api: Live, monkeypatch):
    monkeypatch.setattr(blocks, "MOST_REFUSED", 100)
    good = [
        json.dumps({"url": f"https://mixed.example/{i}", "observed_at": AT, "changed": True})
        for i in range(1_000)
    ]
    lines = [line for one in good for line in (one, "{}")]
    for content, status in ((lines, 200), ([*lines, *["{}"] * 101], 422)):
        response = sqlite_api.client.post(
            "/observations",
            params={"register": "true"},
            content="\n".join(content),
            headers={"Content-Type": NDJSON},
        )
        assert response.status_code == status, response.text[:300]


@pytest.mark.dear
def test_a_sitemap_of_rejected_entries_ends(sqlite_api: Live):
    content = b"<urlset>" + b"<url/>" * 500_000 + b"</urlset>"
    response = sqlite_api.client.post(
        "/sitemaps",
        params={"url": "https://costly.example/s.xml"},
        content=gzip.compress(content),
        headers={"Content-Type": "application/xml", "Content-Encoding": "gzip"},
    )
    assert response.status_code == 422
    assert response.json()["n_rejected"] <= 60_000
    assert len(response.json()["rejected"]) == 1_000


# -- all requests


def test_the_memory_of_all_bodies_is_bounded_and_small_ones_pass():
    bodies_in_work, scopes = BodiesInWork(1_000), [{}, {}, {}]
    bodies_in_work.hold(scopes[0], 600)
    bodies_in_work.hold(scopes[1], 400)
    with pytest.raises(Overloaded, match="large bodies"):
        bodies_in_work.hold(scopes[2], 1)
    scopes[0]["body"].release()
    bodies_in_work.hold(scopes[2], 600)
    scopes[1]["body"].release()
    scopes[1]["body"].release()
    bodies_in_work.hold(scopes[2], 5_000)
    assert bodies_in_work.held == 5_000


def test_a_body_beyond_the_memory_of_all_is_answered_503(sqlite_api: Live):
    service = sqlite_api.service
    large = json.dumps([{"url": f"https://large.example/{i}"} for i in range(8_000)])
    assert len(large) > SMALL
    scope = {}
    service.bodies.hold(scope, BODIES_AT_ONCE * service.max_body_bytes)
    headers = {"Content-Type": JSON}
    for content in (large, gzip.compress(large.encode())):
        coding = {} if content is large else {"Content-Encoding": "gzip"}
        response = sqlite_api.client.post("/pages", content=content, headers=headers | coding)
        assert (response.status_code, response.headers["Retry-After"]) == (503, "1")
        assert "large bodies" in response.json()["detail"]
    assert sqlite_api.post("/pages", [{"url": "https://small.example/"}]).status_code == 200
    assert "recrawl_body_bytes 1.92e+08" in sqlite_api.get("/metrics").text
    scope["body"].release()
    response = sqlite_api.client.post("/pages", content=large, headers=headers)
    assert response.json()["accepted"] == 8_000
    until(lambda: service.bodies.held == 0, "the memory is free")


# -- the meter

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet='a,:[]{}"\\\n\u2222😀'),
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(st.text(alphabet='k,"\\[', max_size=3), inner, max_size=4)
    ),
    max_leaves=30,
)
LIMITS = BodyLimits(10**9, 10**9, 10**12)


def counted(content: bytes, size: int, *, lines: bool) -> Meter:
    meter = Meter(LIMITS, lines=lines)
    for start in range(0, len(content), size):
        meter.feed(content[start : start + size])
    return meter


def levels(value) -> int:
    if isinstance(value, dict):
        return 1 + max(map(levels, value.values()), default=0)
    return 1 + max(map(levels, value), default=0) if isinstance(value, list) else 0


def containers(value) -> int:
    if isinstance(value, dict):
        return 1 + sum(map(containers, value.values())) + len(value) + max(len(value) - 1, 0)
    if isinstance(value, list):
        return 1 + sum(map(containers, value)) + max(len(value) - 1, 0)
    return 0


@pytest.mark.dear
@given(st.lists(JSON_VALUES, min_size=1), st.integers(1, 9), st.booleans())
def test_the_counts_are_those_of_the_decoded_json(values, size, ascii_only):
    content = json.dumps(values, ensure_ascii=ascii_only).encode(errors="surrogatepass")
    meter = counted(content, size, lines=False)
    assert (meter.n_items, meter.levels) == (len(values), levels(values))
    assert meter.n_values == containers(values)


@pytest.mark.dear
@given(st.lists(JSON_VALUES), st.integers(1, 9), st.sampled_from([b"\n", b"\n \n", b"\r\n"]))
def test_the_counts_of_lines_are_those_of_the_decoded_lines(values, size, end):
    content = end.join(json.dumps(value).encode() for value in values)
    meter = counted(content, size, lines=True)
    assert (meter.n_items, meter.n_values) == (len(values), sum(map(containers, values)))


@pytest.mark.dear
@given(st.lists(JSON_VALUES, min_size=1))
def test_an_open_text_in_a_line_hides_none_of_the_next_lines(values):
    line = json.dumps(values).encode()
    meter = counted(b'"open\n' + line, 7, lines=True)
    assert meter.n_values == containers(values)


def test_a_text_of_json_in_utf_16_is_not_taken(shared_small: Live):
    content = json.dumps([{"url": "https://wide.example/"}]).encode("utf-16-le")
    response = shared_small.client.post("/pages", content=content, headers={"Content-Type": JSON})
    assert response.status_code == 400


def test_the_limit_of_values_grows_with_the_items_of_a_batch():
    assert BodyLimits.of(10_000, 32 * MB).max_values == MOST_VALUES
    assert BodyLimits.of(100_000, 320 * MB).max_values == 10 * MOST_VALUES
    assert BodyLimits.of(1_000_000, 32 * MB).max_values == 2 * MB


# -- a server


def resident_mb(pid: int, row: str) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition(f"{row}:")[2].split()[0]) / 1_000


BOMBS = {
    "/observations": ("lists", "one wide text", "texts"),
    "/freshness": ("items", "numbers", "repeated keys"),
    "/pages": ("unknown field", "objects"),
    "/leases": ("lists", "levels of objects"),
}


@pytest.mark.slow
@pytest.mark.parametrize("path", BOMBS)
def test_eight_bombs_at_once_take_little_memory_and_health_answers(tmp_path, sqlite_url, path):
    sizes = (RATIO_FROM - 1_000, N)
    bombs = [bomb(name, size) for name in BOMBS[path] for size in sizes]
    if path == "/leases":
        bombs += [gzip.compress(b'{"report":' + COSTLY["lists"](size) + b"}") for size in sizes]
    headers = {"Content-Type": JSON, "Content-Encoding": "gzip"}
    with serving(tmp_path, database_url=sqlite_url) as server:
        server.post("/pages", [{"url": f"https://warm.example/{i}"} for i in range(8_000)])
        base, pid = str(server.client.base_url), server.popen.pid
        before = resident_mb(pid, "VmRSS")
        Path(f"/proc/{pid}/clear_refs").write_text("5")

        def send(content: bytes) -> int:
            url = f"{base}{path}"
            return httpx.post(url, content=content, headers=headers, timeout=60).status_code

        with ThreadPoolExecutor(8) as pool, httpx.Client(base_url=base, timeout=60) as health:
            for each_bomb in bombs:
                sent, slowest = [pool.submit(send, each_bomb) for _ in range(8)], 0.0
                while not all(each.done() for each in sent):
                    began = time.monotonic()
                    assert health.get("/healthz").status_code == 200
                    slowest = max(slowest, time.monotonic() - began)
                assert {each.result() for each in sent} <= {400, 413, 422, 503}
                assert slowest < 1
        assert resident_mb(pid, "VmHWM") - before < 200
