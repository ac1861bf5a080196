"""Bodies nobody thought of: never a fault of the service, always an answer of a known shape.

Schemathesis is imported by the test that uses it: it takes seconds, in every process of pytest.
"""

import json
from datetime import datetime, timedelta

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.document import DOCUMENT
from support.live_server import START, Live

from recrawl_client.wire.common import Problem
from recrawl_client.wire.evidence import Pinged, Reported
from recrawl_client.wire.pages import PageAnswer, Registered

pytestmark = pytest.mark.slow

ANSWERS = {"/pages": Registered, "/observations": Reported, "/pings": Pinged}

texts = st.text(st.characters(codec=None), max_size=20)
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=10**17, max_value=10**45)
    | st.floats()
    | texts
)
urls = st.sampled_from(
    ["https://a.example/", "https://a.example/b", "HTTP://A.example:80/%zz", "https://[::1]/", ""]
) | st.builds("https://{}/{}".format, texts, texts)
spans = st.timedeltas(timedelta(-700_000), timedelta(2_900_000)) | st.timedeltas(
    timedelta(-30), timedelta(0)
)
moments = spans.map(START.__add__)
plausible = {
    "url": urls,
    "page_id": st.integers(-1, 10) | st.just(2**63),
    "observed_at": moments.map(datetime.isoformat),
    "changed_at": moments.map(datetime.isoformat),
    "changed": st.booleans(),
    "digest": texts,
    "status": st.integers(-1, 700),
    "importance": st.floats(),
    "observability": st.sampled_from(["incomplete", "complete", "auto", "both"]),
    "min_crawl_rate": st.floats(0, 10),
    "max_crawl_rate": st.floats(0, 10),
}
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
items = st.fixed_dictionaries({}, optional=plausible) | st.builds(
    lambda item, more: item | more,
    st.fixed_dictionaries({}, optional=plausible),
    st.dictionaries(st.sampled_from(sorted(plausible)) | texts, anything, max_size=2),
)
values = st.lists(items, max_size=6) | st.lists(items | anything, max_size=6) | anything


@st.composite
def bodies(draw) -> bytes:
    """Give JSON, or JSON with one wound."""
    encoded = json.dumps(draw(values), ensure_ascii=draw(st.booleans()))
    content = encoded.encode("utf-8", "surrogatepass")
    wound = draw(st.none() | st.tuples(st.integers(0, len(content)), st.binary(max_size=4)))
    if wound is None:
        return content
    at, replacement = wound
    return content[:at] + replacement + content[at + len(replacement) :]


@pytest.mark.parametrize("path", ANSWERS)
@settings(max_examples=120, suppress_health_check=[HealthCheck.too_slow])
@given(content=bodies(), as_lines=st.booleans())
def test_any_body_is_answered_by_counts_or_by_a_problem(
    shared: Live, path: str, content: bytes, as_lines: bool
):
    media_type = "application/x-ndjson" if as_lines else "application/json"
    response = shared.client.post(path, content=content, headers={"Content-Type": media_type})
    if response.status_code == 200:
        answer = msgspec.json.decode(response.content, type=ANSWERS[path])
        indices = [rejection.index for rejection in answer.rejected]
        assert indices == sorted(set(indices))
    else:
        assert response.status_code in (400, 422)
        assert response.headers["Content-Type"] == "application/problem+json"
        problem = msgspec.json.decode(response.content, type=Problem)
        assert problem.detail
        assert problem.status == response.status_code


@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(body=st.fixed_dictionaries({}, optional=plausible) | anything)
def test_any_patch_is_answered_by_the_page_or_by_a_problem(shared: Live, body):
    (page_id,) = shared.register("https://patched.example/")
    content = json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    response = shared.client.patch(f"/pages/{page_id}", content=content, headers=headers)
    if response.status_code == 200:
        page = msgspec.json.decode(response.content, type=PageAnswer)
        bounds = (page.min_crawl_rate, page.max_crawl_rate)
        assert None in bounds or bounds[0] <= bounds[1]
    else:
        assert response.status_code == 422
        msgspec.json.decode(response.content, type=Problem)


OPERATIONS = [(path, method) for path, methods in DOCUMENT["paths"].items() for method in methods]


@pytest.fixture(scope="module")
def described():
    """The operations as schemathesis reads their description, by path and method."""
    import schemathesis

    return schemathesis.openapi.from_dict(DOCUMENT)


@pytest.fixture(scope="module")
def scheduled(shared: Live) -> Live:
    """The service in common, once it has published a schedule."""
    shared.register("https://described.example/")
    shared.epoch()
    return shared


def checks():
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi import checks

    return [
        not_a_server_error,
        checks.status_code_conformance,
        checks.content_type_conformance,
        checks.response_schema_conformance,
        checks.response_headers_conformance,
        checks.allow_header_conformance,
    ]


@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_every_operation_keeps_to_its_description(scheduled: Live, described, path, method):
    from schemathesis import GenerationMode

    operation = described[path][method.upper()]
    takes_all = "{subscription_id}" in path and method == "post"
    can_refuse = (operation.query or operation.body) and not takes_all
    scheduled.register("https://described.example/")

    def keep_to_it(mode, n_examples):
        @settings(max_examples=n_examples, suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy(generation_mode=mode))
        def keeps_to_it(case):
            for part in (case.body, case.query):
                if isinstance(part, dict) and isinstance(part.get("wait_s"), float | int):
                    part["wait_s"] = min(part["wait_s"], 0.01)  # nobody fuzzes that long
            case.call_and_validate(base_url=scheduled.url, checks=checks())

        keeps_to_it()

    if can_refuse:
        keep_to_it(GenerationMode.POSITIVE, 12)
        keep_to_it(GenerationMode.NEGATIVE, 12)
    else:  # nothing can be wrong
        keep_to_it(GenerationMode.POSITIVE, 24)
