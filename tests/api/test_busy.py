"""All threads busy: who must be answered is answered."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import httpx
import pytest
from support.live_server import START, Live, until

from service.api.assembly import MAX_THREADS
from service.api.threads import share
from service.epochs.watch import Watch


@pytest.mark.dear
def test_slow_readers_hold_up_neither_health_nor_evidence(api: Live, monkeypatch):
    (page_id,) = api.register("https://a.example/")
    let_go, waiting = threading.Event(), threading.Semaphore(0)

    def slow(*_):
        waiting.release()
        assert let_go.wait(180)

    monkeypatch.setattr(Watch, "note", slow)
    n_callers = -(-MAX_THREADS // share(MAX_THREADS))
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(2 * MAX_THREADS))
        callers = [
            stack.enter_context(
                httpx.Client(
                    base_url=api.url,
                    transport=httpx.HTTPTransport(local_address=f"127.0.0.{n + 2}"),
                    timeout=None,
                )
            )
            for n in range(n_callers)
        ]
        asked = [pool.submit(callers[n % n_callers].get, "/epochs") for n in range(2 * MAX_THREADS)]
        for _ in range(MAX_THREADS):
            assert waiting.acquire(timeout=180)
        for path in ("/healthz", "/readyz", "/metrics"):
            assert api.get(path).status_code == 200
        crawl = [{"page_id": page_id, "observed_at": START.isoformat(), "changed": True}]
        assert api.post("/observations", crawl).json()["accepted"] == 1
        assert not waiting.acquire(blocking=False)
        let_go.set()
        until(lambda: all(one.done() for one in asked), "the slow readers are answered")
    assert {one.result().status_code for one in asked} == {200}
