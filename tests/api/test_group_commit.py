"""Group commit behind HTTP: who is refused, what is counted, where large bodies are decoded."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from support.live_server import START, Live, until

from service.api.responses.problems import TYPES

AT = START.isoformat()


def crawl(page_id: int) -> list[dict]:
    return [{"page_id": page_id, "observed_at": AT, "changed": True}]


@pytest.fixture
def held_up(sqlite_api: Live, monkeypatch):
    """Hold up the writer: gives what tells that it has a job, and what lets it go."""
    reached, let_go = threading.Event(), threading.Event()
    line = sqlite_api.service.small_posts
    flush = line.flush

    def held(jobs):
        reached.set()
        assert let_go.wait(180)
        return flush(jobs)

    monkeypatch.setattr(line, "flush", held)
    yield reached, let_go
    let_go.set()


def test_too_much_waiting_is_refused_with_the_time_to_try_again(sqlite_api: Live, held_up):
    reached, let_go = held_up
    line = sqlite_api.service.small_posts
    line.limits = replace(line.limits, max_waiting=2)
    with ThreadPoolExecutor(3) as pool:
        sent = [pool.submit(sqlite_api.post, "/observations", crawl(99))]
        assert reached.wait(180)
        for n in (1, 2):
            sent.append(pool.submit(sqlite_api.post, "/observations", crawl(99)))
            until(lambda n=n: line.n_waiting == n, "the next one waits")
        refused = sqlite_api.post("/observations", crawl(99))
        metrics = sqlite_api.get("/metrics").text
        let_go.set()
        answers = {one.result().json()["type"] for one in sent}
    assert refused.status_code == 503
    assert refused.headers["Retry-After"] == "1"
    assert refused.json()["type"] == f"{TYPES}overloaded"
    assert "recrawl_waiting_items 2.0" in metrics
    assert 'route="/observations",status="503"} 1.0' in metrics
    assert answers == {f"{TYPES}batch-rejected"}
    metrics = sqlite_api.get("/metrics").text
    assert "recrawl_commit_seconds_count 2.0" in metrics
    assert "recrawl_commit_requests_sum 3.0" in metrics


@pytest.mark.parametrize("path", ["/observations", "/pings"])
def test_a_large_body_is_decoded_beside_the_event_loop(sqlite_api: Live, path, monkeypatch):
    """The thread that decodes it is not the one that serves the others."""
    from service.api.requests import posts
    from service.api.routes import observations

    seen = []
    name = "decode_crawls" if path == "/observations" else "decode_pings"
    decode = getattr(observations, name)

    def watched(*batch, **unit):
        seen.append(threading.current_thread().name)
        return decode(*batch, **unit)

    monkeypatch.setattr(observations, name, watched)
    monkeypatch.setattr(posts, "decode_crawls", watched)
    (page_id,) = sqlite_api.register("https://a.example/")
    said = {"observed_at": AT, "changed": True} if path == "/observations" else {"changed_at": AT}
    for padding in (0, 200_000):
        content = json.dumps([{"page_id": page_id, **said}]) + " " * padding
        headers = {"Content-Type": "application/json"}
        response = sqlite_api.client.post(path, content=content, headers=headers)
        assert response.status_code == 200
    assert seen[0] != seen[1]
