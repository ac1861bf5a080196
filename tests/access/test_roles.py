"""Every operation times every role, with right, wrong, expired and revoked keys, and without."""

import json
import shutil
from itertools import product

import httpx
import pytest
from fastapi import APIRouter
from support.access_cases import ADMIN, bearer, expired_key, new_key, revoked_key
from support.live_server import running

from service.access.roles import ADMIN as FOR_ADMINISTRATORS
from service.access.roles import OPERATIONS, right_of
from service.api.app import create_app
from service.api.responses.problems import slug
from service.api.route import DirectRoute
from service.model.access import Role

APP = create_app()
ROUTES = {route.operation: route for route in APP.routes if isinstance(route, DirectRoute)}
GUARDED = [name for name, route in ROUTES.items() if route.right.role is not None]
LOCAL = {"metrics"}
"""Operations that need no key on this machine."""
PATHS = {
    "page_id": 1,
    "lease": "1-a",
    "epoch": 1,
    "host": "a.example",
    "group": "g",
    "key_id": "0" * 10,
    "subscription_id": "x" * 22,
    "webhook_id": "x" * 22,
}
PAGES = ("/docs", "/redoc", "/openapi.json", "/static-offline-docs/swagger-ui.css")


@pytest.fixture(scope="module")
def live(sqlite_template, tmp_path_factory):
    path = shutil.copy(sqlite_template, tmp_path_factory.mktemp("roles") / "recrawl.db")
    with running(f"sqlite:///{path}", api_keys=(ADMIN,)) as live:
        yield live


@pytest.fixture(scope="module")
def keys(live):
    """A key of each role, ended keys of each role, and texts that are none."""
    ended = {("expired", role): expired_key(live, role) for role in Role}
    ended |= {("revoked", role): revoked_key(live, role) for role in Role}
    text, _ = new_key(live.service.store, Role.admin)
    good = {("good", role): new_key(live.service.store, role)[0] for role in Role}
    live.service.gate.ring.refresh()
    wrong = {"no key": None, "wrong": "x" * 30, "wrong secret": text[:-1] + "x"}
    return {**good, **ended, **wrong}


def call(live, name, key, **headers):
    """Call an operation with a body that it refuses, so that nothing changes."""
    route = ROUTES[name]
    (method, *_) = route.methods
    path = route.path.format(**PATHS)
    return live.client.request(
        method, path, headers={"Authorization": "", **bearer(key), **headers}, content=b"%"
    )


def test_every_operation_has_a_row_in_the_table_and_no_row_is_left_over():
    assert {*ROUTES, "docs"} == {*OPERATIONS}


def test_an_operation_that_the_table_lacks_is_for_administrators():
    assert right_of("operation of tomorrow") == FOR_ADMINISTRATORS
    router = APIRouter(route_class=DirectRoute)

    @router.get("/tomorrow")
    def operation_of_tomorrow():
        """Do something new."""

    (route,) = router.routes
    assert route.right.role is Role.admin


def test_the_document_states_the_role_of_every_operation():
    paths = APP.openapi()["paths"]
    for name, route in ROUTES.items():
        if not route.include_in_schema:
            continue
        (method, *_) = route.methods
        operation = paths[route.path][method.lower()]
        roles = [role for each in operation["security"] for role in each.get("key", ())]
        assert roles == ([] if route.right.role is None else [route.right.role.name]), name


def right_or_fault(role, name, response):
    """Return None for the answer that a key of this role must get, or what is wrong with it."""
    allowed = role >= ROUTES[name].right.role or name in LOCAL
    if response.status_code == 401 or (response.status_code != 403) != allowed:
        return response.status_code, response.text
    if allowed:
        return None
    problem = response.json()
    is_stated = f"this key has the role {role.name}" in problem["detail"]
    return None if is_stated and problem["type"].endswith(slug("Forbidden")) else problem


@pytest.mark.parametrize("role", Role)
def test_a_key_may_do_what_its_role_allows_and_nothing_above(live, keys, role):
    calls = {name: call(live, name, keys["good", role]) for name in GUARDED}
    faults = {name: right_or_fault(role, name, response) for name, response in calls.items()}
    assert {name: fault for name, fault in faults.items() if fault} == {}


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "case",
    ["no key", "wrong", "wrong secret", *product(("expired", "revoked"), Role)],
    ids=lambda case: case if isinstance(case, str) else f"{case[0]} {case[1].name}",
)
def test_without_a_key_in_force_no_operation_is_open(live, keys, case):
    calls = {name: call(live, name, keys[case]) for name in GUARDED if name not in LOCAL}
    answers = {
        name: (response.status_code, response.headers.get("WWW-Authenticate"))
        for name, response in calls.items()
    }
    wrong = 'Bearer error="invalid_token", error_description="Send a valid API key as'
    challenges = {(status, challenge[: len(wrong)]) for status, challenge in answers.values()}
    assert challenges == {(401, "Bearer" if case == "no key" else wrong)}


def test_a_public_operation_needs_no_key(live):
    public = [name for name in ROUTES if name not in GUARDED]
    assert public
    statuses = {name: call(live, name, None).status_code for name in public}
    assert {name for name, status in statuses.items() if status in (401, 403)} == set()


@pytest.mark.parametrize("path", ["/metrics", *PAGES])
def test_metrics_and_documents_need_a_key_of_role_read_behind_a_proxy(live, keys, path):
    def status(key):
        headers = {"X-Forwarded-For": "198.51.100.7", "Authorization": "", **bearer(key)}
        return live.client.get(path, headers=headers).status_code

    assert status(None) == status(keys["wrong"]) == status(keys["revoked", Role.admin]) == 401
    assert status(keys["good", Role.read]) == 200
    assert live.client.get(path, headers={"Authorization": ""}).status_code == 200


@pytest.mark.parametrize("word", ["metrics", "docs"])
def test_a_setting_opens_metrics_or_documents_to_other_machines(sqlite_url, word):
    with running(sqlite_url, api_keys=(ADMIN,), public=word) as live:
        headers = {"X-Forwarded-For": "198.51.100.7", "Authorization": ""}
        found = {
            path: live.client.get(path, headers=headers).status_code
            for path in ("/metrics", "/docs", "/openapi.json")
        }
    opened = {"metrics": {"/metrics"}, "docs": {"/docs", "/openapi.json"}}[word]
    assert found == {path: 200 if path in opened else 401 for path in found}


def test_the_page_of_the_documentation_works_under_its_policy(live):
    page = live.client.get("/docs")
    policy = page.headers["Content-Security-Policy"]
    assert "script-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "http://" not in page.text
    assert "https://" not in page.text


@pytest.mark.parametrize("path", ["/healthz", "/no/such/path", "/epochs", "/docs", "/epochs/x"])
def test_every_answer_has_the_security_headers_once(live, path):
    headers = live.client.get(path).headers
    for name in (
        "Content-Security-Policy",
        "X-Content-Type-Options",
        "Referrer-Policy",
        "Cross-Origin-Resource-Policy",
    ):
        assert len(headers.get_list(name)) == 1, name


def test_pages_of_other_origins_are_served_only_where_listed(sqlite_url):
    ours, theirs = "https://console.example", "https://evil.example"
    with running(sqlite_url, api_keys=(ADMIN,), cors_origins=ours) as listed:
        for origin, allowed in ((ours, ours), (theirs, None)):
            answer = listed.client.get("/epochs", headers={"Origin": origin})
            assert answer.headers.get("Access-Control-Allow-Origin") == allowed
        preflight = {
            "Origin": ours,
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization,idempotency-key",
        }
        answer = httpx.options(f"{listed.url}/pages", headers=preflight)
        assert answer.status_code == 200
        assert answer.headers["Access-Control-Allow-Origin"] == ours


def test_without_a_list_no_other_origin_reads_an_answer(live):
    answer = live.client.get("/epochs", headers={"Origin": "https://console.example"})
    assert answer.status_code == 200
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_a_refusal_is_a_problem_and_names_the_operation_and_the_remedy(live, keys):
    refused = call(live, "delete_page", keys["good", Role.report])
    assert json.loads(refused.content)["detail"] == (
        "DELETE /pages/{page_id} needs a key of role admin; this key has the role report"
    )


def test_the_name_of_a_key_is_valid_unicode(live, keys):
    headers = {"Authorization": f"Bearer {keys['good', Role.admin]}"}
    body = b'{"name": "\\ud800", "role": "read"}'
    refused = live.client.post("/keys", content=body, headers=headers)
    assert refused.status_code == 422
    assert json.loads(refused.content)["field"] == "name"
