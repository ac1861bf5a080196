"""Requests that cannot be taken as a whole: a problem tells how to mend them, and life goes on."""

import gzip
import json
import re
import socket
import time
from collections.abc import Iterator
from functools import partial

import pytest
import zstandard
from support.live_server import PATIENCE_S, Live

from service.api.cursors import EpochsPlace, HostsPlace, encode_cursor
from service.api.responses.problems import TYPES
from service.runtime.requests import PLAIN_HEADERS

GOOD = '{"url": "https://good.example/"}'
JSON = "application/json"
NDJSON = "application/x-ndjson"


@pytest.fixture(scope="module")
def scheduled(shared: Live) -> Live:
    """The service in common, once it has published a schedule."""
    shared.epoch()
    return shared


def assert_problem(response, status: int, name: str, *says: str) -> dict:
    assert response.status_code == status, response.text
    assert response.headers["Content-Type"] == "application/problem+json"
    problem = response.json()
    assert problem["status"] == status
    assert problem["type"] == f"{TYPES}{name}"
    for words in says:
        assert words in problem["detail"]
    return problem


@pytest.mark.sampled(12)
@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "the body is empty"),
        (b" \n ", "the body is empty"),
        (b"{", "not JSON"),
        (b"[", "not JSON"),
        (f"[{GOOD},".encode(), "not JSON"),
        (f"[{GOOD}".encode(), "not JSON"),
        (f"[{GOOD}] trailing".encode(), "not JSON"),
        (b"url=https%3A%2F%2Fgood.example", "not JSON"),
        (GOOD.encode(), "wrap a single item in [ ]"),
        (b"null", "must be a JSON array"),
        (b'"x"', "must be a JSON array"),
        (b'[{"url": "https://good.example/\xff"}]', "not UTF-8"),
        (b"\x00", "not JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a":' * 100_000, "nested too deeply"),
        (gzip.compress(f"[{GOOD}]".encode(), mtime=0), "is gzip; send Content-Encoding: gzip"),
        (zstandard.compress(f"[{GOOD}]".encode()), "is zstd; send Content-Encoding: zstd"),
        (f"{GOOD}\n{GOOD}\n".encode(), "has one item a line; send it as application/x-ndjson"),
    ],
)
@pytest.mark.parametrize("path", ["/pages", "/observations", "/pings"])
def test_what_is_not_an_array_of_json_is_malformed(shared: Live, path, content, says):
    response = shared.client.post(path, content=content, headers={"Content-Type": JSON})
    assert_problem(response, 400, "malformed-body", says)
    assert shared.alive()


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe", b"[" * 100_000, b"nonsense"])
def test_lines_that_are_not_json_are_rejected_one_by_one(shared: Live, content):
    body = b"\n".join([GOOD.encode(), content, GOOD.encode()])
    response = shared.client.post("/pages", content=body, headers={"Content-Type": NDJSON})
    assert response.status_code == 200
    (rejection,) = response.json()["rejected"]
    assert (rejection["index"], rejection["code"]) == (1, "malformed")
    assert rejection["detail"].startswith("the line is not JSON")


@pytest.mark.parametrize(
    "media_type", ["text/plain", "text/csv", "application/xml", "multipart/form-data", "", ";"]
)
@pytest.mark.parametrize("path", ["/pages", "/observations", "/pings"])
def test_other_media_types_are_not_taken(shared: Live, path, media_type):
    response = shared.client.post(path, content=f"[{GOOD}]", headers={"Content-Type": media_type})
    assert_problem(response, 415, "unsupported-media-type", "application/json", NDJSON)


@pytest.mark.parametrize("media_type", ["application/json; charset=utf-8", "APPLICATION/JSON"])
def test_parameters_and_case_of_a_media_type_do_not_matter(shared: Live, media_type):
    headers = {"Content-Type": media_type}
    response = shared.client.post("/pages", content=f"[{GOOD}]", headers=headers)
    assert response.status_code == 200


COMPRESS = {"gzip": partial(gzip.compress, mtime=0), "zstd": zstandard.compress}


def compressed(api: Live, coding: str, content: bytes):
    headers = {"Content-Type": JSON, "Content-Encoding": coding}
    return api.client.post("/pages", content=content, headers=headers)


@pytest.mark.parametrize("coding", COMPRESS)
def test_compressed_bodies_are_taken_in_one_part_or_several(shared: Live, coding):
    items = [f'{{"url": "https://{coding}.example/{i}"}}' for i in range(3_000)]
    body = f"[{','.join(items)}]".encode()
    compress = COMPRESS[coding]
    for content in (compress(body), compress(body[:50_000]) + compress(body[50_000:])):
        assert compressed(shared, coding.upper(), content).json()["accepted"] == 3_000


@pytest.mark.parametrize("coding", COMPRESS)
def test_a_compressed_body_that_is_not_is_malformed(shared: Live, coding):
    body = f"[{GOOD}]".encode()
    whole = COMPRESS[coding](body)
    for content, fault in (
        (body, f"the body is not {coding}; drop the header Content-Encoding or compress the body"),
        (whole[:-1], f"the {coding} of the body ends too early; compress it again"),
        (whole + b"junk", f"the {coding} of the body is damaged; compress it again"),
        (whole[:8] + whole[12:], f"the {coding} of the body "),
    ):
        problem = compressed(shared, coding, content)
        assert_problem(problem, 400, "malformed-body", fault)


@pytest.mark.parametrize("coding", COMPRESS)
@pytest.mark.parametrize(
    ("path", "media_type"),
    [
        ("/pages", "application/x-ndjson"),
        ("/observations", "application/x-ndjson"),
        ("/leases", JSON),
        ("/indexnow", JSON),
    ],
)
def test_a_compressed_body_without_its_header_is_named(shared: Live, coding, path, media_type):
    content = COMPRESS[coding](f"{GOOD}\n".encode() * 100)
    response = shared.client.post(path, content=content, headers={"Content-Type": media_type})
    assert_problem(response, 400, "malformed-body", f"send Content-Encoding: {coding} too")


@pytest.mark.parametrize("coding", COMPRESS)
@pytest.mark.parametrize("n_bytes", [32_000_001, 4_000_000_000])
def test_a_body_that_inflates_over_the_limit_stops_there(shared: Live, coding, n_bytes):
    """Four gigabytes of blanks are a few hundred kilobytes by zstd, 4 MB by gzip."""
    million = b" " * 1_000_000
    once, rest = COMPRESS[coding](million), n_bytes % 1_000_000
    bomb = once * (n_bytes // 1_000_000) + COMPRESS[coding](b" " * rest)
    began = time.process_time()
    assert_problem(compressed(shared, coding, bomb), 413, "body-too-large", "32000000 bytes")
    assert time.process_time() - began < 5
    assert shared.alive()


@pytest.mark.parametrize("coding", ["br", "deflate", "gzip, gzip", "nonsense"])
def test_other_codings_are_refused(shared: Live, coding):
    problem = compressed(shared, coding, f"[{GOOD}]".encode())
    assert_problem(problem, 415, "unsupported-media-type", "Content-Encoding", "send gzip, zstd")


@pytest.mark.parametrize("n_items", [10_001, 60_000])
@pytest.mark.parametrize("item", [GOOD, "1"])
def test_too_many_items_are_refused_whole(shared: Live, n_items, item):
    items = [f'{{"url": "https://never.example/{n_items}"}}', *[item] * (n_items - 1)]
    for content, media_type in ((f"[{','.join(items)}]", JSON), ("\n".join(items), NDJSON)):
        headers = {"Content-Type": media_type}
        response = shared.client.post("/pages", content=content, headers=headers)
        assert_problem(
            response, 413, "too-many-items", f"{n_items} items", "at most 10000 at a time"
        )
    assert shared.get("/pages", url=f"https://never.example/{n_items}").status_code == 404


def blanks(n_bytes: int) -> Iterator[bytes]:
    """Give a body in chunks, its length untold."""
    for _ in range(n_bytes // 1_000_000):
        yield b" " * 1_000_000


@pytest.mark.dear
@pytest.mark.parametrize("chunked", [True, False])
def test_a_body_of_50_megabytes_is_refused(shared: Live, chunked):
    content = blanks(50_000_000) if chunked else b" " * 50_000_000
    response = shared.client.post("/pages", content=content, headers={"Content-Type": JSON})
    assert_problem(response, 413, "body-too-large", "32000000 bytes", "several requests")
    assert shared.alive()


def test_a_body_without_end_is_cut_off(shared: Live):
    """The server answers and hangs up; it does not read on for ever."""
    with socket.create_connection(("127.0.0.1", shared.port), timeout=PATIENCE_S) as connection:
        connection.sendall(
            b"POST /pages HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        chunk = b"f4240\r\n" + b" " * 1_000_000 + b"\r\n"
        sent = 0
        try:
            for sent in range(300):  # noqa: B007 - counted after the loop
                connection.sendall(chunk)
        except OSError:
            pass
    assert sent < 299
    assert shared.alive()


def raw(api: Live, *parts: bytes) -> bytes:
    """Send bytes as they are; give what comes back until the server closes."""
    with socket.create_connection(("127.0.0.1", api.port), timeout=PATIENCE_S) as connection:
        for part in parts:
            connection.sendall(part)
        connection.shutdown(socket.SHUT_WR)
        received = b""
        while block := connection.recv(65_536):
            received += block
        return received


HOST = b"Host: x\r\nConnection: close\r\n"


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"nonsense\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET /pages?url=\xff\xfe HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET /pages/\xc3\xa9 HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET /pages/1\x00 HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET /healthz HTTP/1.1\r\n" + HOST + b"Bad Header: x\r\n\r\n",
        b"POST /pages HTTP/1.1\r\n" + HOST + b"Content-Length: -5\r\n\r\n",
        b"POST /pages HTTP/1.1\r\n" + HOST + b"Content-Length: ten\r\n\r\n",
        b"POST /pages HTTP/1.1\r\n" + HOST + b"Content-Length: 9\r\nContent-Length: 2\r\n\r\n[]",
        b"POST /pages HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"BREW /pages HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET /" + b"x" * 200_000 + b" HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET /pages?url=https://" + b"x" * 200_000 + b" HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET /pages/999999999 HTTP/1.1\r\n" + HOST + b"X-Long: " + b"x" * 200_000 + b"\r\n\r\n",
        b"GET /pages/999999999 HTTP/1.1\r\n" + HOST + b"X-One: 1\r\n" * 5_000 + b"\r\n",
    ],
)
def test_what_is_hardly_http_gets_a_4xx_or_a_closed_door(shared: Live, request_bytes):
    received = raw(shared, request_bytes)
    assert received == b"" or received.startswith(b"HTTP/1.1 4"), received[:200]
    assert shared.alive()


@pytest.mark.parametrize(
    "target", [b"/" + b"a" * 66_000, b"/pages?url=" + b"a" * 66_000, b"http://[/"]
)
def test_a_target_that_is_no_url_is_answered(shared: Live, target):
    received = raw(shared, b"GET " + target + b" HTTP/1.1\r\n" + HOST + b"\r\n")
    head, _, body = received.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400"), received[:200]
    assert json.loads(body)["type"] == f"{TYPES}bad-request"


@pytest.mark.parametrize(
    ("status", "version", "headers"),
    [
        ("501", "1.1", ["Transfer-Encoding: gzip, chunked"]),
        ("501", "1.1", ["Transfer-Encoding: gzip", "Transfer-Encoding: chunked"]),
        ("501", "1.1", ["Transfer-Encoding: identity, chunked"]),
        ("501", "1.1", ["Transfer-Encoding: xchunked, chunked"]),
        ("400", "1.1", ["Transfer-Encoding: chunked, chunked"]),
        ("400", "1.1", ["Transfer-Encoding: gzip"]),
        ("400", "1.1", ["Transfer-Encoding: chunked, gzip"]),
        ("400", "1.1", ["Transfer-Encoding: chunked", "Content-Length: 4"]),
        ("400", "1.1", ["Content-Length: 4", "Transfer-Encoding: chunked"]),
        ("400", "1.0", ["Transfer-Encoding: chunked"]),
    ],
)
def test_a_body_whose_end_is_not_certain_is_refused(shared: Live, status, version, headers):
    """Otherwise a proxy may see another request where this body ends (RFC 9112, section 6)."""
    head = "\r\n".join([f"POST /pages HTTP/{version}", "Host: x", *headers, "\r\n"])
    second = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    with socket.create_connection(("127.0.0.1", shared.port), timeout=PATIENCE_S) as connection:
        connection.sendall(head.encode() + b"2\r\n[]\r\n0\r\n\r\n" + second)
        received = b"".join(iter(partial(connection.recv, 65_536), b""))
    answer, _, body = received.partition(b"\r\n\r\n")
    assert answer.startswith(f"HTTP/1.1 {status}".encode())
    assert b"connection: close" in answer
    assert [answer.count(b": ".join(header)) for header in PLAIN_HEADERS] == [1] * 4
    assert json.loads(body)["status"] == int(status)


@pytest.mark.parametrize("coding", ["chunked", "Chunked", " chunked "])
def test_chunks_are_taken(shared: Live, coding):
    head = f"POST /pages HTTP/1.1\r\n{HOST.decode()}Transfer-Encoding: {coding}\r\n\r\n"
    body = f"[{GOOD}]".encode()
    with socket.create_connection(("127.0.0.1", shared.port), timeout=PATIENCE_S) as connection:
        connection.sendall(head.encode() + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200")


CHUNKED = b"POST /pages HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n[]\r\n"


@pytest.mark.parametrize(
    ("begun", "more"),
    [
        (b"GET /schedule?host=", b"x" * 65_536),
        (b"GET /healthz HTTP/1.1\r\nX-Long: ", b"x" * 65_536),
        (b"GET /healthz HTTP/1.1\r\n", b"X-One: 1\r\n" * 6_000),
        (CHUNKED + b"0\r\nTrailer: ", b"x" * 65_536),
        (CHUNKED + b"1;extension=", b"x" * 65_536),
    ],
)
def test_a_head_without_end_is_not_read_to_the_end(shared: Live, begun, more):
    with socket.create_connection(("127.0.0.1", shared.port), timeout=PATIENCE_S) as connection:
        connection.sendall(begun)
        with pytest.raises(ConnectionError):
            connection.sendall(1_000 * more)
    assert shared.alive()


@pytest.mark.dear
def test_a_long_body_after_a_short_head_is_no_long_head(shared: Live):
    whole = json.dumps([{"url": f"https://long.example/{i}"} for i in range(10_000)]).encode()
    pieces = (whole[i : i + 1_000] for i in range(0, len(whole), 1_000))
    for content in (whole, pieces, whole):
        response = shared.client.post("/pages", content=content)
        assert response.json()["accepted"] == 10_000


def errors_counted(api: Live) -> int:
    lines = api.get("/metrics").text.splitlines()
    return sum("recrawl_requests_total" in line and 'status="5' in line for line in lines)


def test_a_caller_who_hangs_up_half_way_is_no_fault_of_the_service(shared: Live):
    whole = f"[{json.dumps({'url': 'https://half.example/'})}]".encode()
    headers = b"Content-Type: application/json\r\nContent-Length: " + str(len(whole)).encode()
    raw(shared, b"POST /pages HTTP/1.1\r\n" + HOST + headers + b"\r\n\r\n" + whole[:-3])
    assert shared.alive()
    assert shared.get("/pages", url="https://half.example/").status_code == 404
    assert errors_counted(shared) == 0


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/pages/0", "page_id"),
        ("/pages/-1", "page_id"),
        ("/pages/abc", "page_id"),
        ("/pages/1.5", "page_id"),
        ("/pages/%zz", "page_id"),
        ("/pages/%ff", "page_id"),
        ("/pages/%00", "page_id"),
        (f"/pages/{2**63}", "page_id"),
        (f"/pages/{'9' * 5000}", "page_id"),
        ("/pages?url=", "url"),
        ("/pages?url=%00", "url"),
        ("/pages?url=ftp://example.com/", "url"),
        ("/pages?url=https://%00.example/", "url"),
        (f"/pages?url=https://example.com/{'x' * 3000}", "url"),
        ("/schedule?limit=0", "limit"),
        ("/schedule?limit=10001", "limit"),
        ("/schedule?limit=1e999", "limit"),
        ("/schedule?limit=", "limit"),
        ("/schedule?observability=partly", "observability"),
        ("/schedule?host=%00", "host"),
        ("/schedule?host=%ff", "host"),
        ("/schedule?host=a%20b", "host"),
        ("/schedule?url=javascript:alert(1)", "url"),
        ("/schedule?due_before=2026-05-01T12:00:00", "due_before"),
        ("/schedule?due_before=2026-05-01T12:00:00+02:00", "due_before"),
        ("/schedule?due_before=soon", "due_before"),
        ("/schedule?due_before=1e300", "due_before"),
        ("/epochs?limit=0", "limit"),
        ("/epochs?limit=1001", "limit"),
        ("/epochs?cursor=0", "cursor"),
        ("/hosts?cursor=17", "cursor"),
        ("/websub?cursor=%00", "cursor"),
        ("/url-groups?prefix=%00", "prefix"),
        ("/epochs/0", "epoch"),
        (f"/epochs/{2**63}", "epoch"),
        ("/epochs/first", "epoch"),
    ],
)
def test_a_parameter_out_of_range_is_named(scheduled: Live, path, field):
    response = scheduled.client.get(path)
    assert response.status_code == 422
    assert response.headers["Content-Type"] == "application/problem+json"
    assert response.json()["field"] == field
    assert response.json()["detail"]


@pytest.mark.parametrize(
    "path",
    [
        "/schedule?due_before=0001-01-01T00:00:00%2B23:59",
        "/schedule?due_before=9999-12-31T23:59:59-23:59",
        f"/epochs?cursor={encode_cursor(EpochsPlace(2**63 - 1))}",
        f"/hosts?cursor={encode_cursor(HostsPlace('host_id', 2**63 - 1))}",
        "/schedule?limit=10000",
    ],
)
def test_the_ends_of_the_ranges_are_taken(scheduled: Live, path):
    assert scheduled.client.get(path).status_code == 200


@pytest.mark.parametrize("path", [f"/pages/{2**63 - 1}", f"/epochs/{2**63 - 1}"])
def test_what_does_not_exist_is_not_found(shared: Live, path):
    response = shared.client.get(path)
    assert response.status_code == 404
    assert response.headers["Content-Type"] == "application/problem+json"


@pytest.mark.parametrize("path", ["/nothing", "/pages/1/2", "/Pages", "//", "/pages/../../etc"])
def test_unknown_paths_are_told_where_the_known_are_listed(shared: Live, path):
    assert_problem(shared.client.get(path), 404, "not-found", "/docs")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/pages", "GET, POST, PATCH, DELETE"),
        ("DELETE", "/schedule", "GET"),
        ("POST", "/pages/1", "GET, PATCH, DELETE"),
        ("OPTIONS", "/observations", "POST"),
        ("GET", "/observations", "POST"),
        ("PATCH", "/epochs", "GET, POST"),
        ("TRACE", "/pages", "GET, POST, PATCH, DELETE"),
        ("PUT", "/openapi.json", "GET, HEAD"),
        ("POST", "/healthz", "GET, HEAD"),
        ("GET", "/pages/recrawl", "POST"),
        ("PATCH", "/pages/recrawl", "POST"),
        ("DELETE", "/pages/recrawl/", "POST"),
        ("PATCH", "/leases/workers", "GET"),
        ("DELETE", "/leases/workers", "GET"),
    ],
)
def test_methods_a_path_does_not_take_are_refused_with_those_it_does(
    shared: Live, method, path, allowed
):
    response = shared.client.request(method, path)
    assert_problem(response, 405, "method-not-allowed", f"it has {allowed}")
    assert response.headers["Allow"] == allowed


def test_no_fixed_path_takes_the_methods_of_an_id_beside_it(shared: Live):
    """All paths without parameters, with each method that a path with an id would take."""
    paths = {path: set(item) for path, item in shared.get("/openapi.json").json()["paths"].items()}
    for fixed in (path for path in paths if "{" not in path):
        for other, methods in paths.items():
            if not re.fullmatch(re.sub(r"\{[^}]+\}", "[^/]+", other), fixed) or other == fixed:
                continue
            for method in methods - paths[fixed]:
                response = shared.client.request(method.upper(), fixed)
                allowed = set(response.headers["Allow"].lower().split(", "))
                assert (response.status_code, allowed - {"head"}) == (405, paths[fixed])


@pytest.mark.parametrize(
    ("method", "path", "field", "says"),
    [
        ("GET", "/schedule?limt=5", "limt", "there are cursor, limit, host"),
        ("GET", "/schedule?limit=5&limt=5", "limt", "no such parameter; remove it"),
        ("GET", "/pages?uri=https://a.example/", "uri", "there are url"),
        ("POST", "/pings?regster=false", "regster", "there is register"),
        ("POST", "/observations?regster=false", "regster", "there is register"),
        ("POST", "/sitemaps?url=https://a.example/s.xml&crosshost=true", "crosshost", "cross_host"),
        ("POST", "/epochs?bandwidth=3", "bandwidth", "there is wait_s"),
        ("POST", "/leases?count=3", "count", "send it in the body, as a field of its JSON"),
        ("POST", "/pings?changed_at=1", "changed_at", "send it in the body"),
        ("GET", "/epochs/latest?bandwidth=3", "bandwidth", "this path takes none"),
        ("GET", "/epochs/latest?x", "x", "this path takes none"),
        ("GET", "/pages?tag=a&tag=b", "tag", "stands more than once; send it once"),
        ("DELETE", "/pages?dry_run=true&tag=a&dry_run=true", "dry_run", "stands more than once"),
    ],
)
def test_a_misspelt_parameter_is_refused_for_it_would_change_nothing(
    shared: Live, method, path, field, says
):
    response = shared.client.request(method, path, content=b"[]", headers={"Content-Type": JSON})
    problem = assert_problem(response, 422, "invalid-parameter", says)
    assert problem["field"] == field
    assert field in [error["field"] for error in problem["errors"]]


@pytest.mark.parametrize("path", ["/healthz?x=1", "/readyz?x", "/metrics?format=text"])
def test_probes_may_add_what_they_like(shared: Live, path):
    assert shared.client.get(path).status_code == 200


@pytest.mark.parametrize("name", ["host", "url"])
def test_an_empty_filter_is_refused_and_does_not_give_everything(shared: Live, name):
    response = shared.client.get(f"/schedule?{name}=")
    assert response.status_code == 422
    assert response.json()["field"] == name


def test_head_is_refused_without_a_body(shared: Live):
    response = shared.client.head("/pages/1")
    assert (response.status_code, response.content) == (405, b"")


@pytest.mark.parametrize(
    ("body", "status", "field", "says"),
    [
        ("{}", 422, "importance", "nothing to change; send one of importance"),
        ("[]", 422, None, "send an object with"),
        ("null", 422, None, "send an object with"),
        ("", 400, None, "the body is empty"),
        ("{", 400, None, "not JSON"),
        ("[" * 100_000, 400, None, "nested too deeply"),
        ('{"url": "https://x.example/"}', 422, "url", "remove it, known fields are importance"),
        ('{"importance": null}', 422, "importance", "positive number"),
        ('{"importance": NaN}', 422, "importance", "positive number"),
        (f'{{"importance": {"9" * 5000}}}', 422, "importance", "positive number"),
        ('{"\\ud800": 1}', 422, None, "lone surrogate"),
        ('{"observability": "\\ud800"}', 422, None, "lone surrogate"),
        ('{"max_crawl_rate": 0}', 422, "max_crawl_rate", "positive number of crawls"),
        ('{"min_crawl_rate": 3, "max_crawl_rate": 2}', 422, "min_crawl_rate", "lies above"),
    ],
)
def test_a_patch_that_cannot_be_taken_names_its_field(shared: Live, body, status, field, says):
    (page_id,) = shared.register("https://patched.example/")
    before = shared.get(f"/pages/{page_id}").json()
    headers = {"Content-Type": JSON}
    response = shared.client.patch(f"/pages/{page_id}", content=body, headers=headers)
    assert response.status_code == status, response.text
    assert response.headers["Content-Type"] == "application/problem+json"
    assert response.json().get("field") == field
    assert says in response.json()["detail"]
    assert shared.get(f"/pages/{page_id}").json() == before


def test_a_patch_is_one_json_object(shared: Live):
    response = shared.client.patch(
        "/pages/1", content=b"{}", headers={"Content-Type": "application/x-ndjson"}
    )
    assert_problem(response, 415, "unsupported-media-type", "one object")


@pytest.mark.parametrize(
    ("method", "path", "fields"),
    [
        ("PUT", "/url-groups", {"rule": "stop", "group": "?"}),
        ("PUT", "/url-groups", {"rule": "stop", "group": "https://a.example/?/"}),
        ("POST", "/pages/recrawl", {"urls": ["?"]}),
        ("POST", "/leases", {"hosts": ["?"]}),
        ("POST", "/webhooks", {"url": "https://a.example/?"}),
        ("POST", "/websub", {"hub": "https://h.example/", "topic": "https://a.example/?"}),
        ("PUT", "/hosts/a.example", {"windows": ["?"]}),
        ("PUT", "/groups/one", {"blackouts": ["?"]}),
        ("PUT", "/budget", {"budget": "?"}),
        ("POST", "/keys", {"name": "a", "role": "admin", "hosts": ["?"]}),
    ],
)
@pytest.mark.parametrize("wrong", ["\ud800", "a\udfff.example"])
def test_a_lone_surrogate_in_any_field_is_refused(shared: Live, method, path, fields, wrong):
    content = json.dumps(fields).replace("?", json.dumps(wrong)[1:-1])
    response = shared.client.request(method, path, content=content, headers={"Content-Type": JSON})
    assert response.status_code in (403, 404, 422), response.text
    assert response.json().get("field") in (*fields, None)
