"""Waiting for a newer epoch: nobody is told of an older one, nobody holds a thread."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from support.live_server import Live, until
from support.processes import serving
from support.store_cases import publish, register, schedule_columns

from recrawl_lab.memory.store import MemoryStore
from service.epochs.watch import MAX_AGE_S, Watch
from service.model.errors import StoreUnavailable
from service.storage.stores import newest as watch_module


class Silent(MemoryStore):
    """A store whose database does not answer while told so."""

    silent = False

    def begin(self, *, write=True):
        if self.silent:
            raise StoreUnavailable
        return super().begin(write=write)


@pytest.fixture
def store() -> Silent:
    return Silent(2)


def test_the_watch_knows_the_epoch_in_force_as_long_as_the_store_answers(store):
    now = [0.0]
    watch = Watch(store, lambda: now[0])
    assert watch.in_force is None
    watch.poll()
    assert watch.in_force == 0
    epoch = publish(store, schedule_columns(register(store)))
    assert watch.in_force == 0
    watch.poll()
    assert watch.in_force == epoch
    store.silent = True
    now[0] += MAX_AGE_S - 0.1
    watch.poll()
    assert watch.in_force == epoch
    now[0] += 0.2
    watch.poll()
    assert watch.in_force is None
    store.silent = False
    watch.poll()
    assert watch.in_force == epoch


def test_what_a_request_has_seen_is_never_taken_back(store):
    watch = Watch(store, lambda: 0.0)
    watch.note_newest(5)
    watch.note_newest(3)
    watch.poll()
    assert watch.in_force == 5


async def waiting(watch: Watch, n: int, than: int = 0, within_s: float = 60.0) -> list:
    watch.loop = asyncio.get_running_loop()
    tasks = [asyncio.create_task(watch.reached(than + 1, within_s)) for _ in range(n)]
    await asyncio.sleep(0)
    return tasks


def test_all_who_wait_are_woken_by_a_newer_epoch_that_another_thread_saw(store):
    watch = Watch(store)

    async def main():
        tasks = await waiting(watch, 100)
        assert watch.n_waiting == 100
        thread = threading.Thread(target=watch.note_newest, args=(1,))
        thread.start()
        await asyncio.gather(*tasks)
        thread.join()

    asyncio.run(main())
    assert watch.n_waiting == 0


def test_an_epoch_that_is_not_newer_wakes_nobody(store):
    watch = Watch(store)

    async def main():
        (task,) = await waiting(watch, 1, than=7)
        watch.note_newest(7)
        watch.moved.set()
        watch._wake()
        for _ in range(5):
            await asyncio.sleep(0)
        assert not task.done()
        watch.note_newest(8)
        await task

    asyncio.run(main())


def test_waiting_ends_by_the_clock_by_the_end_of_the_server_and_where_too_many_wait(
    store, monkeypatch
):
    watch = Watch(store)
    monkeypatch.setattr(watch_module, "MOST_WAITING", 3)

    async def main():
        await watch.reached(1, 0.001)
        tasks = await waiting(watch, 3)
        await watch.reached(1, 60.0)
        assert watch.n_waiting == 3
        watch.release()
        await asyncio.gather(*tasks)
        await watch.reached(1, 60.0)

    asyncio.run(main())
    assert watch.n_waiting == 0


def poll(api: Live, known: str, **query) -> httpx.Response:
    return api.client.get("/schedule", params=query, headers={"If-None-Match": known})


@pytest.mark.dear
def test_more_clients_than_threads_wait_and_all_get_the_newer_epoch(api: Live):
    api.register("https://a.example/")
    api.epoch()
    etag = api.get("/schedule").headers["ETag"]
    n = 60  # threads are 40
    with ThreadPoolExecutor(n) as pool:
        answers = [pool.submit(poll, api, etag, wait_s=30) for _ in range(n)]
        until(lambda: api.service.watch.n_waiting == n, "all of them wait")
        assert api.alive()
        newer = api.epoch()["epoch"]
        got = [answer.result() for answer in answers]
    assert {(r.status_code, r.json()["epoch"]) for r in got} == {(200, newer)}


def test_who_waits_in_vain_is_told_that_nothing_changed(sqlite_api: Live):
    nothing = sqlite_api.get("/schedule").headers["ETag"]
    assert poll(sqlite_api, nothing, wait_s=0.01).status_code == 304
    sqlite_api.register("https://a.example/")
    epoch = sqlite_api.epoch()["epoch"]
    response = poll(sqlite_api, nothing, wait_s=30)
    assert (response.status_code, response.json()["epoch"]) == (200, epoch)
    response = poll(sqlite_api, response.headers["ETag"], wait_s=0.01)
    assert (response.status_code, response.content) == (304, b"")
    assert response.headers["Vary"] == "Accept, Accept-Encoding"
    by_number = sqlite_api.get("/schedule", since_epoch=epoch, wait_s=0.01)
    assert by_number.status_code == 304


@pytest.mark.parametrize("shown", ["/epochs", "/epochs/latest", "/epochs/{}", "/pages/1"])
def test_a_client_that_was_shown_an_epoch_is_never_told_that_an_older_one_is_in_force(
    sqlite_api: Live, monkeypatch, shown
):
    sqlite_api.register("https://a.example/")
    sqlite_api.epoch()
    etag = sqlite_api.get("/schedule").headers["ETag"]
    until(lambda: poll(sqlite_api, etag).status_code == 304, "the watch has looked")
    monkeypatch.setattr(Watch, "poll", lambda self: None)
    newer = sqlite_api.client.post("/epochs").json()["epoch"]
    sqlite_api.service.runner.run_once()
    assert sqlite_api.get(shown.format(newer)).status_code == 200
    assert poll(sqlite_api, etag).status_code == 200


@pytest.mark.parametrize("wait_s", [-1, 31, "x", "nan"])
def test_waits_that_cannot_be_are_refused(sqlite_api: Live, wait_s):
    response = sqlite_api.get("/schedule", wait_s=wait_s)
    assert response.status_code == 422
    assert response.json()["field"] == "wait_s"


@pytest.mark.slow
def test_a_server_that_ends_answers_those_who_wait(sqlite_url, tmp_path):
    with serving(tmp_path, database_url=sqlite_url, epoch_interval_s=3600) as server:
        etag = server.client.get("/schedule").headers["ETag"]
        held = {"params": {"wait_s": 30}, "headers": {"If-None-Match": etag}}
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(server.client.get, "/schedule", **held)
            until(lambda: waits(server.client), "the request waits")
            assert server.terminate() in (0, -15)
            assert answer.result().status_code == 304
        assert "Traceback" not in server.log.read_text()


def waits(client: httpx.Client) -> bool:
    return "recrawl_waiting_requests 1.0" in client.get("/metrics").text
