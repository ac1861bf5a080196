"""Valid and invalid requests that schemathesis draws from the OpenAPI document."""

from collections.abc import Mapping
from itertools import cycle
from typing import Any

import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from schemathesis import Case, GenerationMode

from benchmarks.fuzz.judge import Judge

BATCH = 50
"""Requests drawn from one operation at a time."""
TIMEOUT_S = 30.0


class Bearer(requests.auth.AuthBase):
    """A key in every request, also where schemathesis leaves it out."""

    def __init__(self, key: str) -> None:
        self.key = key

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Return the request with the key."""
        request.headers["Authorization"] = f"Bearer {self.key}"
        return request


def fuzz(
    document: Mapping[str, Any],
    base: str,
    n: int,
    seed: int,
    judge: Judge,
    key: str | None = None,
) -> None:
    """Send `n` requests with a key, a batch of each operation in turn, valid and invalid ones."""
    schema = schemathesis.openapi.from_dict(dict(document))
    operations = [
        (path, method, mode)
        for path, methods in document["paths"].items()
        for method in methods
        for mode in GenerationMode
    ]
    enough = judge.shares["described"] + n
    with requests.Session() as session:
        if key is not None:
            session.auth = Bearer(key)
        for turn, (path, method, mode) in enumerate(cycle(operations)):
            if judge.shares["described"] >= enough:
                return
            operation: Any = schema[path][method.upper()]
            if mode is GenerationMode.POSITIVE or refusable(path, method, operation):
                batch(operation, mode, base, session, seed + turn, judge)


def refusable(path: str, method: str, operation: Any) -> bool:
    """Return whether an operation can have an invalid request."""
    takes_all = "{subscription_id}" in path and method == "post"
    return bool(operation.query or operation.body) and not takes_all


def batch(
    operation: Any,
    mode: GenerationMode,
    base: str,
    session: requests.Session,
    seed: int,
    judge: Judge,
) -> None:
    """Send a batch of requests of one operation."""
    name = operation.label

    @seeded(seed)
    @settings(
        max_examples=BATCH,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def send(case: Case) -> None:
        if isinstance(case.body, dict) and isinstance(case.body.get("wait_s"), float | int):
            case.body["wait_s"] = min(case.body["wait_s"], 0.01)  # a long poll would slow the run
        try:
            answer = case.call(base_url=base, session=session, timeout=TIMEOUT_S)
        except requests.RequestException as error:
            judge.hang_up("described", name, f"{case.as_curl_command()}: {error!r}")
            return
        answered = {key.lower(): values[0] for key, values in answer.headers.items()}
        judge.answer(
            "described",
            name,
            case.as_curl_command,
            answer.status_code,
            answered,
            answer.content,
        )

    send()
