"""Epochs over HTTP: asked for, listed, failed, and run by the service itself."""

import gc
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.live_server import Live, running, until

from service.epochs import optimum


def test_an_epoch_asked_for_waits_until_the_scheduler_takes_it(api: Live):
    api.register("https://a.example/")
    asked = api.client.post("/epochs")
    assert asked.status_code == 202
    requested = asked.json()
    assert requested["status"] == "requested"
    assert requested["started_at"] is requested["bandwidth"] is None
    assert asked.headers["Location"] == f"/epochs/{requested['epoch']}"
    assert api.client.post("/epochs").json() == requested
    api.service.runner.run_once()
    published = api.get(asked.headers["Location"]).json()
    assert published["status"] == "published"
    assert api.get("/epochs/latest").json() == published


@pytest.mark.dear
def test_a_request_for_an_epoch_waits_until_it_is_in_force(sqlite_url):
    with running(sqlite_url, embedded=True) as api:
        api.register("https://a.example/")
        for path in ("/epochs?wait_s=30", "/epochs?wait_s=30"):
            epoch = api.client.post(path).json()
            assert epoch["status"] == "published"
            assert api.get("/schedule").json()["epoch"] == epoch["epoch"]


def test_a_request_that_waits_in_vain_shows_the_epoch_as_it_stands(sqlite_api: Live):
    asked = sqlite_api.client.post("/epochs?wait_s=0.01")
    assert (asked.status_code, asked.json()["status"]) == (202, "requested")


def test_the_schedule_waits_for_the_first_epoch(sqlite_api: Live):
    assert sqlite_api.get("/schedule", wait_s=0.01).json()["epoch"] is None
    sqlite_api.register("https://a.example/")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(sqlite_api.get, "/schedule", wait_s=30)
        until(lambda: sqlite_api.service.watch.n_waiting == 1, "the request waits")
        epoch = sqlite_api.epoch()["epoch"]
        assert waiting.result().json()["epoch"] == epoch


def test_a_published_epoch_carries_its_certificate(api: Live):
    api.register(*(f"https://a.example/{i}" for i in range(10)))
    api.register("https://b.example/", observability="complete")
    epoch = api.epoch()
    assert epoch["n_pages"] == 11
    assert epoch["bandwidth"] == pytest.approx(2.2)
    assert epoch["bandwidth_used"] == pytest.approx(2.2, rel=1e-9)
    assert epoch["multiplier"] > 0
    assert 0 < epoch["binary_cost"] <= epoch["harmonic_cost"]
    assert abs(epoch["kkt_residual"]) < 1e-9
    assert 0 <= epoch["duality_gap"] < 1e-9 * epoch["harmonic_cost"]
    assert epoch["passes"] >= 1
    assert epoch["reason"] is None
    prior_names = {"a", "b", "within_shape", "between_shape", "dispersion"}
    seen = {"seen_pages", "seen_changes", "seen_days", "seen_squares"}
    assert epoch["prior"].keys() == prior_names | seen
    assert epoch["seconds"].keys() >= {"load", "estimate", "allocate", "publish"}
    assert epoch["requested_at"] <= epoch["started_at"] <= epoch["finished_at"]


def test_there_is_no_latest_epoch_before_the_first(api: Live):
    response = api.get("/epochs/latest")
    assert response.status_code == 404
    assert "POST /epochs" in response.json()["detail"]
    assert api.get("/epochs").json() == {"items": [], "next_cursor": None}


def test_epochs_are_listed_newest_first_in_parts(api: Live):
    published = [{**api.epoch(), "calibration": None} for _ in range(5)]
    assert api.get("/epochs").json() == {"items": published[::-1], "next_cursor": None}
    listed, cursor = [], None
    while True:
        query = {"limit": 2} if cursor is None else {"limit": 2, "cursor": cursor}
        part = api.get("/epochs", **query).json()
        listed += part["items"]
        cursor = part["next_cursor"]
        if cursor is None:
            break
    assert listed == published[::-1]


def test_an_epoch_over_no_pages_publishes_an_empty_schedule(api: Live):
    epoch = api.epoch()
    assert (epoch["status"], epoch["n_pages"], epoch["bandwidth_used"]) == ("published", 0, 0.0)
    assert api.get("/schedule").json()["items"] == []


@pytest.mark.dear
def test_a_failed_epoch_tells_its_reason_and_leaves_the_old_schedule_in_force(
    api: Live, monkeypatch
):
    api.register("https://a.example/")
    good = api.epoch()
    schedule = api.get("/schedule").json()

    def broken(*_args, **_kwargs):
        raise FloatingPointError("the solver lost its way")

    with monkeypatch.context() as patch:
        patch.setattr(optimum, "harmonic_optimum", broken)
        failed = api.epoch()
    assert failed["status"] == "failed"
    assert failed["reason"] == "FloatingPointError: the solver lost its way"
    assert failed["bandwidth"] is None
    assert api.get("/epochs/latest").json() == good
    assert api.get("/schedule").json() == schedule
    assert "recrawl_epoch_failed 1.0" in api.get("/metrics").text
    assert api.epoch()["status"] == "published"
    assert "recrawl_epoch_failed 0.0" in api.get("/metrics").text


def test_a_set_bandwidth_is_spent(database_url):
    with running(database_url, bandwidth=42.0) as live:
        live.register(*(f"https://a.example/{i}" for i in range(10)))
        epoch = live.epoch()
        assert epoch["bandwidth"] == 42.0
        assert epoch["bandwidth_used"] == pytest.approx(42.0, rel=1e-12)


def test_on_sqlite_the_server_runs_epochs_itself(sqlite_url):
    with running(sqlite_url, embedded=True) as live:
        live.register("https://a.example/")
        asked = live.client.post("/epochs").json()
        until(
            lambda: live.get(f"/epochs/{asked['epoch']}").json()["status"] == "published",
            "the epoch is published",
        )
        assert len(live.schedule()) == 1


@pytest.mark.dear
def test_what_an_epoch_has_loaded_is_never_looked_at_again_while_requests_wait(sqlite_url):
    with running(sqlite_url, embedded=True) as live:
        kept = gc.get_freeze_count()
        loaded = [[i] for i in range(20_000)]  # as a compiler's modules are by a large epoch
        live.register("https://a.example/")
        until(lambda: gc.get_freeze_count() > kept + 15_000, "it is kept for good")
        assert live.get("/epochs/latest").json()["status"] == "published"
        assert len(loaded) == 20_000
    gc.unfreeze()


@pytest.mark.dear
def test_the_first_pages_are_scheduled_without_being_asked(sqlite_url):
    with running(sqlite_url, embedded=True) as live:
        live.register("https://a.example/")
        until(lambda: live.get("/epochs/latest").status_code == 200, "the first epoch")


@pytest.mark.dear
def test_epochs_come_again_after_their_interval(api: Live):
    api.register("https://a.example/")
    runner = api.service.runner
    assert runner.run_once() is not None
    assert runner.run_once() is None
    api.clock.advance(seconds=599)
    assert runner.run_once() is None
    api.clock.advance(seconds=1)
    assert runner.run_once() is not None
    assert len(api.get("/epochs").json()["items"]) == 2
