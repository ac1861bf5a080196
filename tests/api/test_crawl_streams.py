"""NDJSON of any length to POST /observations: blocks, borders, ends half-way, memory."""

import asyncio
import gzip
import json
import re
import socket
import threading
import time
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import httpx
import pytest
import zstandard
from support.live_server import PATIENCE_S, START, Live, running, until
from support.processes import serving

from service.api.requests.blocks import cut
from service.api.responses.problems import TYPES
from service.model.errors import BodyTooLarge, Overloaded, StoreFull, StoreUnavailable

NDJSON = {"Content-Type": "application/x-ndjson"}
AT = START.isoformat()
BLOCK = 10


@pytest.fixture
def small(database_url) -> Iterator[Live]:
    """A service on each database with blocks of a few lines."""
    with running(database_url, max_items=BLOCK, max_body_bytes=5_000) as live:
        yield live


def crawl(name: str, k: int, **said) -> dict:
    """Describe a crawl of a page of its own."""
    return {"url": f"https://{name}.example/{k}", "observed_at": AT, "changed": True, **said}


def lines(name: str, numbers, **said) -> list[bytes]:
    return [json.dumps(crawl(name, k, **said)).encode() for k in numbers]


def send(api: Live, content, client: httpx.Client | None = None, **headers: str) -> httpx.Response:
    return (client or api.client).post(
        "/observations", content=content, headers=NDJSON | headers, params={"register": "true"}
    )


def counts(response: httpx.Response) -> tuple[int, int, int]:
    """Give how many were accepted, known before, and rejected."""
    answer = response.json()
    assert response.status_code == 200, answer
    assert answer["late"] == 0
    return answer["accepted"], answer["duplicate"], answer["n_rejected"]


def failing(api: Live, after: int, error: Exception):
    """Commit so many blocks, then fail once."""
    flush, n_commits = api.service.crawl_reports.flush, 0

    def tried(jobs):
        nonlocal n_commits
        n_commits += 1
        if n_commits == after + 1:
            raise error
        return flush(jobs)

    return tried


# -- where the blocks end


def blocks_of(*chunks: bytes, max_items: int = 3, max_bytes: int = 100) -> list[bytes]:
    async def arriving():
        for chunk in chunks:
            yield chunk

    async def collected():
        return [block async for block in cut(arriving(), max_items, max_bytes)]

    return asyncio.run(collected())


@pytest.mark.parametrize(
    ("chunks", "blocks"),
    [
        ([], [b""]),
        ([b"", b"\n \r\n\n"], [b""]),
        ([b"a"], [b"a"]),
        ([b"a\n"], [b"a"]),
        ([b"a\nb\nc\n"], [b"a\nb\nc"]),
        ([b"a\nb\nc\nd"], [b"a\nb\nc", b"d"]),
        ([b"\na\n\n\nb\n \n\t\nc\r\n\r\n"], [b"a\nb\nc\r"]),
        ([b"one", b"two\nth", b"", b"ree", b"\n"], [b"onetwo\nthree"]),
        ([b"x" * 50, b"y" * 50], [b"x" * 50 + b"y" * 50]),
        ([b"x" * 60 + b"\n" + b"y" * 60], [b"x" * 60, b"y" * 60]),
        ([b"x" * 49 + b"\n" + b"y" * 49 + b"\nz"], [b"x" * 49 + b"\n" + b"y" * 49, b"z"]),
    ],
)
def test_blocks_hold_whole_lines_within_both_bounds(chunks, blocks):
    assert blocks_of(*chunks) == blocks


def test_blocks_do_not_depend_on_how_the_bytes_arrive():
    content = b"".join(b"%d\n" % 7**k for k in range(40))
    whole = blocks_of(content)
    assert b"\n".join(whole) + b"\n" == content
    assert all(block.count(b"\n") < 3 for block in whole)
    for size in (1, 2, 7, 64):
        chunks = [content[at : at + size] for at in range(0, len(content), size)]
        assert blocks_of(*chunks) == whole


def test_a_line_over_the_limit_is_found_wherever_it_is():
    for chunks in ([b"a\n\nb\n" + b"x" * 101 + b"\nc"], [b"a\nb\n", b"x" * 99, b"x" * 99]):
        with pytest.raises(BodyTooLarge, match="line of index 2 has over 100 bytes"):
            blocks_of(*chunks)


def test_a_block_ends_at_a_megabyte():
    line = b"x" * 99_999 + b"\n"
    sizes = [len(block) for block in blocks_of(line * 25, max_items=100, max_bytes=10**7)]
    assert sizes == [999_999, 999_999, 499_999]


# -- what is answered


def test_a_stream_of_many_blocks_is_summed_up(small: Live):
    content = b"\r\n".join([*lines("sum", range(35)), b""]) + b"\r\n\r\n"
    assert counts(send(small, content)) == (35, 0, 0)
    assert counts(send(small, content[:-5])) == (0, 35, 0)
    metrics = small.get("/metrics").text
    assert 'recrawl_items_total{kind="observation",outcome="accepted"} 35.0' in metrics
    assert 'recrawl_items_total{kind="observation",outcome="duplicate"} 35.0' in metrics


def test_lines_cut_anywhere_by_chunks_are_taken_whole(small: Live):
    content = b"\n".join(lines("cut", range(3 * BLOCK)))
    for at, size in enumerate((1, 17, 1_000)):
        chunks = (content[start : start + size] for start in range(0, len(content), size))
        assert counts(send(small, chunks)) == ((0, 30, 0) if at else (30, 0, 0))


def test_bad_lines_at_the_borders_keep_their_index(small: Live):
    given = lines("bad", range(32))
    bad = {0: b"{", 9: b'{"url": 5}', 10: b"\xff", 19: b"[]", 20: b"NaN", 31: b'{"url": "x"}'}
    for k, line in bad.items():
        given[k] = line
    given[15] = b"\n  \n" + given[15]
    answer = send(small, b"\n".join(given)).json()
    assert [rejection["index"] for rejection in answer["rejected"]] == list(bad)
    assert (answer["accepted"], answer["n_rejected"]) == (26, 6)


def test_a_page_unknown_in_a_later_block_keeps_its_index(small: Live):
    (page_id,) = small.register("https://known.example/")
    given = [{"page_id": page_id, "observed_at": AT, "changed": True}] * 14
    given[12] = given[12] | {"page_id": 10**6}
    (rejection,) = send(small, b"\n".join(json.dumps(item).encode() for item in given)).json()[
        "rejected"
    ]
    assert (rejection["index"], rejection["code"]) == (12, "page_not_found")


def test_a_page_crawled_in_several_blocks_is_learnt_in_their_order(small: Live):
    given = [
        json.dumps(crawl("often", 0, observed_at=f"2026-04-01T{k // 60:02}:{k % 60:02}:00Z"))
        for k in range(6 * BLOCK)
    ]
    assert counts(send(small, "\n".join(given).encode())) == (60, 0, 0)
    page = small.get("/pages", url="https://often.example/0").json()
    assert page["estimate"]["n_observations"] == 59


@pytest.mark.dear
def test_the_first_thousand_rejected_are_listed_and_all_are_counted(sqlite_api: Live):
    good = lines("good", range(1))
    of_one_block = send(sqlite_api, b"\n".join([b"1"] * 3_000 + good)).json()
    assert len(of_one_block["rejected"]) == of_one_block["n_rejected"] == 3_000
    of_several = send(sqlite_api, b"\n".join([b"1"] * 25_000 + good)).json()
    assert of_several["n_rejected"] == 25_000
    assert [rejection["index"] for rejection in of_several["rejected"]] == list(range(1_000))
    none = send(sqlite_api, b"\n".join([b"1"] * 25_000))
    assert none.status_code == 422
    assert none.json()["n_rejected"] == 25_000
    assert len(none.json()["rejected"]) == 1_000
    assert "all 25000 items were rejected" in none.json()["detail"]
    assert "lines_taken" not in none.json()


def test_a_name_made_up_by_the_caller_is_told_in_short(sqlite_api: Live):
    (rejection,) = send(sqlite_api, json.dumps({"y" * 900_000: 1}).encode()).json()["rejected"]
    assert rejection["code"] == "unknown_field"
    assert rejection["field"] == "y" * 300
    assert len(rejection["detail"]) < 500


@pytest.mark.parametrize("content", [b"", b"\n \r\n"])
def test_a_stream_without_lines_is_an_empty_batch(small: Live, content):
    assert counts(send(small, content)) == (0, 0, 0)


@pytest.mark.parametrize("path", ["/pages", "/pings"])
def test_pages_and_pings_keep_their_limit(small: Live, path):
    content = b"\n".join([b"1"] * (BLOCK + 1))
    response = small.client.post(path, content=content, headers=NDJSON)
    assert (response.status_code, response.json()["type"]) == (
        413,
        f"{TYPES}too-many-items",
    )


# -- what ends a stream half-way


def test_a_huge_line_is_named_and_the_blocks_before_stay(small: Live):
    given = lines("huge", range(25))
    given[23] = json.dumps(crawl("huge", 23, digest="x" * 5_000)).encode()
    response = send(small, b"\n".join(given))
    problem = response.json()
    assert (response.status_code, problem["type"]) == (413, f"{TYPES}body-too-large")
    assert problem["detail"].startswith("the line of index 23 has over 5000 bytes; the 20 lines")
    assert problem["lines_taken"] == 20
    del given[23]
    assert counts(send(small, b"\n".join(given))) == (4, 20, 0)


def test_blanks_without_end_are_a_line_too_long(sqlite_api: Live):
    bomb = zstandard.compress(b" " * 10**6) * 2_000
    response = send(sqlite_api, bomb, **{"Content-Encoding": "zstd"})
    assert response.status_code == 413
    assert response.json()["lines_taken"] == 0
    assert "index 0" in response.json()["detail"]


@pytest.mark.parametrize("wound", ["cut off", "overwritten"])
def test_a_broken_gzip_leaves_the_blocks_before(small: Live, wound):
    whole = b"\n".join(lines(f"gz{wound[:3]}", range(45)))
    packed = gzip.compress(whole)
    half = zlib.compressobj(wbits=31)
    begun = half.compress(whole[: whole.index(b"/25")]) + half.flush(zlib.Z_SYNC_FLUSH)
    broken = begun if wound == "cut off" else begun + b"\xff" * 100
    response = send(small, broken, **{"Content-Encoding": "gzip"})
    taken = response.json()["lines_taken"]
    assert (response.status_code, taken) == (400, 20 if wound == "cut off" else 0)
    fault = "ends too early" if wound == "cut off" else "is damaged"
    assert response.json()["detail"].startswith(f"the gzip of the body {fault}; ")
    assert ("20 lines before were accepted" in response.json()["detail"]) is (taken == 20)
    assert counts(send(small, packed, **{"Content-Encoding": "gzip"})) == (45 - taken, taken, 0)


@pytest.mark.parametrize(
    ("error", "status", "retry_after"), [(StoreUnavailable, 503, "5"), (StoreFull, 507, "60")]
)
@pytest.mark.parametrize("after", [0, 2])
def test_a_store_in_trouble_half_way_tells_how_far_it_came(
    small: Live, monkeypatch, error, status, retry_after, after
):
    monkeypatch.setattr(small.service.crawl_reports, "flush", failing(small, after, error()))
    content = b"\n".join(lines("away", range(45)))
    response = send(small, content)
    assert (response.status_code, response.headers["Retry-After"]) == (status, retry_after)
    problem = response.json()
    assert problem["lines_taken"] == after * BLOCK
    assert (problem["detail"] == error.__doc__) is (after == 0)
    assert ("20 lines before were accepted" in problem["detail"]) is (after == 2)
    assert counts(send(small, content)) == (45 - after * BLOCK, after * BLOCK, 0)


@pytest.mark.dear
def test_a_fault_of_the_service_claims_nothing_of_a_stream(small: Live, monkeypatch):
    error = ValueError("no such thing")
    monkeypatch.setattr(small.service.crawl_reports, "flush", failing(small, 2, error))
    response = send(small, b"\n".join(lines("fault", range(45))))
    assert response.status_code == 500
    assert "the first blocks of a stream" in response.json()["detail"]


@pytest.mark.dear
def test_a_caller_who_leaves_half_way_leaves_whole_blocks(small: Live):
    content = b"\n".join(lines("gone", range(45)))
    head = b"POST /observations HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-ndjson\r\n"
    with socket.create_connection(("127.0.0.1", small.port), timeout=PATIENCE_S) as connection:
        connection.sendall(head + b"Content-Length: %d\r\n\r\n" % len(content))
        connection.sendall(content[: content.index(b"/35")])
        url = {"url": "https://gone.example/19"}
        until(lambda: small.get("/pages", **url).status_code == 200, "the second block is written")
    accepted = 'recrawl_items_total{kind="observation",outcome="accepted"} 30.0'
    until(lambda: accepted in small.get("/metrics").text, "the third block is counted")
    assert counts(send(small, content)) == (15, 30, 0)


# -- the line of what is to be written


@pytest.fixture
def slow(small: Live, monkeypatch):
    """Let a block be written only when the test says so, and see what waits."""
    let_go, seen = threading.Semaphore(0), []
    line = small.service.crawl_reports
    flush = line.flush

    def held(jobs):
        seen.append(sum(len(job.columns) for job in jobs))
        assert let_go.acquire(timeout=PATIENCE_S)
        return flush(jobs)

    monkeypatch.setattr(line, "flush", held)
    return let_go, seen


@pytest.mark.dear
def test_one_block_is_written_while_no_more_than_the_next_is_read(small: Live, slow, monkeypatch):
    let_go, seen = slow
    done, n_sent = threading.Event(), 0
    part = b"".join(line + b"\n" for line in lines("held", range(100), digest="x" * 200))

    def content():
        nonlocal n_sent
        while not done.is_set():
            n_sent += 1
            yield part

    sender = threading.Thread(target=send, args=(small, content()))
    sender.start()
    try:
        for n_blocks in (1, 2, 3, 4):
            until(lambda n=n_blocks: len(seen) == n, "the next block is at work")
            assert small.service.crawl_reports.n_waiting == 0
            if n_blocks < 4:
                let_go.release()
        n_before = -1
        while n_before != n_sent:  # until buffers are full and the client is held up
            n_before = n_sent
            assert n_sent < 5_000, "all is read ahead"
            time.sleep(0.2)
        assert seen == [BLOCK] * 4
    finally:
        done.set()
        monkeypatch.setattr(
            small.service.crawl_reports, "flush", failing(small, 0, StoreUnavailable())
        )
        let_go.release()
        sender.join()


def refusing(api: Live, monkeypatch, refused: range) -> list[int]:
    """Let the line be full for some of the attempts; gives them as they are made."""
    submit, attempts = api.service.crawl_reports.submit, []

    def tried(job):
        attempts.append(len(attempts))
        if attempts[-1] in refused:
            raise Overloaded
        return submit(job)

    monkeypatch.setattr(api.service.crawl_reports, "submit", tried)
    return attempts


def test_a_stream_that_has_begun_waits_for_room(small: Live, monkeypatch):
    attempts = refusing(small, monkeypatch, range(1, 4))
    assert counts(send(small, b"\n".join(lines("room", range(25))))) == (25, 0, 0)
    assert len(attempts) == 3 + 3


@pytest.mark.dear
def test_patience_ends_and_tells_how_far_the_stream_came(small: Live, monkeypatch):
    monkeypatch.setattr("service.api.requests.blocks.PATIENCE_S", 0.2)
    attempts = refusing(small, monkeypatch, range(2, 10**9))
    content = b"\n".join(lines("full", range(25)))
    response = send(small, content)
    assert (response.status_code, response.headers["Retry-After"]) == (503, "1")
    assert response.json()["type"] == f"{TYPES}overloaded"
    assert response.json()["lines_taken"] == 20
    assert len(attempts) > 3
    monkeypatch.undo()
    assert counts(send(small, content)) == (5, 20, 0)


def test_a_first_block_is_refused_at_once(small: Live, monkeypatch):
    attempts = refusing(small, monkeypatch, range(1))
    response = send(small, lines("first", range(1))[0])
    assert (response.status_code, response.json()["lines_taken"]) == (503, 0)
    assert attempts == [0]


# -- memory

N_LINES, N_NAMED, N_KNOWN = 220_000, 10_000, 500
GROWTH_KB = 40_000
"""The lines sent are 29 MB; decoded all at once they grew the server by some 150 MB."""


def resident_kb(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+)", status)[1])


def long_stream(n_minutes: int, n_lines: int = N_LINES) -> Iterator[bytes]:
    """Give crawls of every page, one a minute, from this minute on; few are known: it is fast."""
    for minute in range(n_minutes, n_minutes + n_lines // N_NAMED):
        at = b"2026-01-01T%02d:%02d:00Z" % divmod(minute, 60)
        for first in range(1, N_NAMED, 1_000):
            yield b"".join(
                b'{"page_id":%d,"observed_at":"%s","digest":"%064d"}\n' % (page_id, at, page_id)
                for page_id in range(first, first + 1_000)
            )


def deflated(parts: Iterator[bytes]) -> Iterator[bytes]:
    packer = zlib.compressobj(1, wbits=31)
    for part in parts:
        yield packer.compress(part)
    yield packer.flush()


@pytest.mark.slow
def test_memory_does_not_grow_with_the_stream(sqlite_url, tmp_path):
    with serving(tmp_path, database_url=sqlite_url) as server:
        server.client.headers.update(NDJSON)
        server.client.timeout = httpx.Timeout(120)
        pages = b"\n".join(b'{"url": "https://a.example/%d"}' % k for k in range(N_KNOWN))
        assert server.client.post("/pages", content=pages).json()["created"] == N_KNOWN
        warm = b"".join(islice(long_stream(0), 20))
        assert server.client.post("/observations", content=warm).json()["accepted"] == 2 * N_KNOWN
        before = resident_kb(server.popen.pid)
        for content, n_lines, coding in (
            (long_stream(100), N_LINES, "identity"),
            (deflated(long_stream(200, N_LINES // 2)), N_LINES // 2, "gzip"),
        ):
            headers = {"Content-Encoding": coding}
            answer = server.client.post("/observations", content=content, headers=headers)
            n_known = n_lines // N_NAMED * N_KNOWN
            assert counts(answer) == (n_known, 0, n_lines - n_known)
            assert resident_kb(server.popen.pid) - before < GROWTH_KB
