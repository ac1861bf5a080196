"""The balance of a key that several processes share is that of one bucket."""

import fcntl
import multiprocessing
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.access.limits import TokenBucket
from service.access.shared_limits import SharedBucket, bucket_in

STEPS = st.lists(
    st.tuples(st.integers(0, 2), st.floats(0, 5), st.integers(0, 300)), min_size=1, max_size=40
)
"""Steps: the process, the pause before, and the items."""


@given(per_s=st.floats(0.01, 1_000), steps=STEPS)
def test_processes_in_turn_have_the_balance_of_one_bucket(tmp_path_factory, per_s, steps):
    folder = tmp_path_factory.mktemp("shared")
    own = [bucket_in(folder, "key", per_s, 0.0) for _ in range(3)]
    one, now = TokenBucket.full(per_s, 0.0), 0.0
    for process, pause, n_items in steps:
        now += pause
        assert own[process].balance(now) == pytest.approx(one.balance(now))
        own[process].charge(n_items)
        one.charge(n_items)
        assert own[process].headers(now) == one.headers(now)


def test_a_process_that_is_late_takes_no_time_back(tmp_path):
    first, second = (bucket_in(tmp_path, "key", 1.0, 0.0) for _ in range(2))
    first.charge(10)
    assert first.balance(5.0) == 5.0
    assert second.balance(4.0) == 5.0
    assert first.balance(6.0) == 6.0


def test_another_rate_or_key_has_another_balance(tmp_path):
    bucket_in(tmp_path, "key", 1.0, 0.0).charge(10)
    assert bucket_in(tmp_path, "key", 1.0, 0.0).balance(0.0) == 0.0
    assert bucket_in(tmp_path, "key", 2.0, 0.0).balance(0.0) == 20.0
    assert bucket_in(tmp_path, "other", 1.0, 0.0).balance(0.0) == 10.0


def hold(path, holds) -> None:
    """Take the lock of a balance, and never give it back."""
    file = path.open("r+b")
    fcntl.flock(file, fcntl.LOCK_EX)
    holds.set()
    time.sleep(600)


@pytest.mark.slow
def test_a_process_that_dies_with_the_lock_holds_nobody_up(tmp_path):
    path = tmp_path / "balance"
    bucket = SharedBucket(path, 1.0, 0.0)
    spawn = multiprocessing.get_context("spawn")
    holds = spawn.Event()
    process = spawn.Process(target=hold, args=(path, holds))
    process.start()
    assert holds.wait(60)
    process.kill()
    process.join()
    bucket.charge(3)
    assert bucket.balance(1.0) == 8.0
