"""The model of large deployments, by cases that can be computed by hand."""

import json
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.scale.costs import Costs, measured_by
from benchmarks.scale.epoch import Machines, Stages, moved, stages, with_losses, with_one_loss
from benchmarks.scale.hosts import corpus, divided, mean_size, sizes, spans, with_exceptions
from benchmarks.scale.measure import Counted, page_costs, question_costs
from benchmarks.scale.plant import Plant, results
from benchmarks.scale.queues import arriving, batched, lease
from benchmarks.scale.sharing import finish_times, stragglers

SIMPLE = replace(
    Costs(),
    load_database=2.0,
    load_actor=1.0,
    solve_actor=3.0,
    write_database=1.0,
    write_actor=0.0,
    ask_actor=0.01,
    ask_logical=0.001,
    questions=10,
    commit=0.5,
    load_bytes=100,
    write_bytes=10,
    leader_sample=0,
    leader_logical=0,
)
QUIET = Machines(spread=0, slow_share=0, network=np.inf, database_cores=4)


def rng(seed=1):
    return np.random.default_rng(seed)


def test_jobs_share_cores_equally_and_each_has_one_at_most():
    assert finish_times(np.array([3.0, 1.0]), 2).tolist() == [3.0, 1.0]
    assert finish_times(np.array([1.0, 1.0, 1.0]), 1.5).tolist() == [2.0] * 3
    # three jobs on one core: the short one ends at 3, then two share, then one is alone
    assert finish_times(np.array([4.0, 1.0, 2.0]), 1).tolist() == [7.0, 3.0, 5.0]
    work = rng().exponential(1, 50)
    assert finish_times(work, 3).max() >= max(work.sum() / 3, work.max())
    assert finish_times(work, 50) == pytest.approx(work)


def test_stragglers_have_the_mean_that_is_assumed():
    factors = stragglers(rng(), 400_000, 0.5, 0.1, 3.0)
    assert factors.mean() == pytest.approx(0.9 + 0.1 * 3.0, rel=0.01)
    assert (stragglers(rng(), 5, 0.0, 0.0, 3.0) == 1).all()


def test_sizes_of_hosts_have_the_tail_and_the_mean():
    drawn = sizes(rng(), 2_000_000, 0.8, 1e4)
    assert drawn.min() >= 1
    assert drawn.max() <= 1e4
    assert drawn.mean() == pytest.approx(mean_size(0.8, 1e4), rel=0.02)
    cut = 1e4**-0.8
    for n in (2, 10, 100):
        assert (drawn > n).mean() == pytest.approx((n**-0.8 - cut) / (1 - cut), rel=0.05)


def test_a_corpus_has_all_pages_and_its_largest_hosts():
    made = corpus(rng(), 1e6, 64, 0.8, 1e4, 0.2, 1.0)
    assert made.pages.sum() == pytest.approx(1e6)
    assert made.n_hosts == round(1e6 / mean_size(0.8, 1e4))
    assert (np.diff(made.largest) <= 0).all()
    for shard in range(64):
        assert made.largest[made.largest_shard == shard].sum() <= made.pages[shard] + 1e-6


def test_crawls_that_politeness_leaves_out_are_those_above_a_day_of_delays():
    """Hosts of 500 pages at one crawl a page and day can take 100 at a delay of 864 s."""
    made = corpus(rng(), 1e5, 64, 0.8, 500.0, 1.0, 864.0)
    drawn = sizes(rng(7), 1_000_000, 0.8, 500.0)
    expected = np.maximum(drawn - 100, 0).sum() / drawn.sum()
    assert made.delayed == pytest.approx(expected, rel=0.1)
    assert corpus(rng(), 1e5, 64, 0.8, 500.0, 1.0, 0.0).delayed == 0


def test_databases_have_spans_and_actors_whole_logical_shards():
    assert [span.tolist() for span in spans(5, 2)] == [[0, 1, 2], [3, 4]]
    per_actor = divided(np.array([1.0, 2.0, 4.0, 8.0, 16.0]), 2, 2)
    assert [each.tolist() for each in per_actor] == [[3.0, 4.0], [8.0, 16.0]]


def test_exceptions_even_databases_and_lose_no_page():
    made = corpus(rng(3), 1e7, 64, 0.8, 1e6, 0.2, 1.0)
    moved_hosts = with_exceptions(made, 4, 40)
    before, after = ([c.pages[s].sum() for s in spans(64, 4)] for c in (made, moved_hosts))
    assert sum(after) == pytest.approx(1e7)
    assert max(after) < max(before)
    assert max(after) - min(after) < made.largest[0]


def test_a_stage_on_many_machines_ends_with_its_last_actor():
    """Two databases, 2 CPU s a page in the database and 1 in the actor."""
    per_actor = [np.array([1.0, 1.0]), np.array([3.0])]
    assert moved(per_actor, 2.0, 1.0, 0.0, QUIET) == 9.0
    one_core = replace(QUIET, database_cores=1)
    assert moved([np.array([1.0, 1.0])], 2.0, 1.0, 0.0, one_core) == 5.0
    slow = replace(QUIET, network=0.1)
    assert moved(per_actor, 2.0, 1.0, 1.0, slow) == 30.0, "three pages of a byte"


def test_a_stage_on_one_machine_shares_its_cores():
    per_actor = [np.array([1.0]), np.array([1.0]), np.array([2.0])]
    # work 2, 2, 4: at 3 the first two end, the last has done 2 and is alone
    assert moved(per_actor, 1.0, 1.0, 0.0, replace(QUIET, shared_cores=2)) == 5.0


def test_an_epoch_adds_its_stages_up():
    per_actor = [np.array([1e6, 1e6]), np.array([2e6, 1e6])]
    one = stages(per_actor, 8, SIMPLE, QUIET)
    assert one.load == 2e6 * 3e-6
    # 10 questions: 2 logical shards of 1 ms, and 4 actors of 10 ms
    assert one.solve == pytest.approx(6 + 10 * 0.001 * 2 + 10 * 0.01 * 4)
    assert one.write == 2.0
    assert one.publish == 2.5
    assert one.total == pytest.approx(one.load + one.solve + one.write + one.publish)
    assert one.loads.tolist() == [3.0, 3.0, 6.0, 3.0]


@pytest.mark.dear
def test_stragglers_make_an_epoch_wait_longer_the_more_actors_there_are():
    noisy = replace(QUIET, spread=0.2)
    of = {
        n: np.mean(
            [stages([np.full(1, 1e6)] * n, n, SIMPLE, noisy, rng(seed)).load for seed in range(60)]
        )
        for n in (1, 4, 64)
    }
    assert of[1] == pytest.approx(3.0, rel=0.1)
    assert of[1] < of[4] < of[64]


TEN = Stages(load=4.0, solve=3.0, write=2.0, publish=1.0, loads=np.array([2.0, 2.0]))


def test_an_epoch_without_losses_takes_its_stages():
    assert with_losses(TEN, replace(QUIET, mean_life_s=np.inf), rng()) == 10.0


def test_a_loss_at_the_end_costs_a_load_and_all_stages_after_the_first():
    assert with_one_loss(TEN, replace(QUIET, detection_s=1.0)) == 10 + 1 + 2 + 6


class Losses:
    """Random numbers that a test chooses."""

    def __init__(self, *after):
        self.after = list(after)

    def exponential(self, mean):
        return self.after.pop(0) if self.after else np.inf

    def integers(self, n):
        return 0


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ((5.0,), 5 + 1 + 2 + 6),  # after the load: reload, then the rest again
        ((0.5,), 4 + 6),  # while others still load: nobody waits
        ((3.5,), 3.5 + 1 + 2 + 6),
        ((5.0, 2.5), 6 + 2.5 + 1 + 2 + 6),  # the second loss, half a second after the reload
        ((5.0, 2.5, 2.5), None),
    ],
)
def test_a_lost_shard_loads_again_and_the_epoch_begins_at_the_census(after, expected):
    assert with_losses(TEN, QUIET, Losses(*after)) == expected


def test_losses_come_in_proportion_to_actors():
    machines = replace(QUIET, mean_life_s=1_000.0, detection_s=0.0)
    lengths = [with_losses(TEN, machines, rng(seed)) for seed in range(4_000)]
    shared = np.mean([length != 10.0 for length in lengths])
    assert shared == pytest.approx(1 - np.exp(-10 * 2 / 1_000), rel=0.35)


def test_requests_that_wait_are_committed_together():
    # 0 alone until 3; 1 and 2 together until 3 + 2 + 2; 7.5 finds a free server
    assert batched(np.array([0.0, 1.0, 2.0, 7.5]), 2.0, 1.0, 9).tolist() == [3.0, 6.0, 5.0, 3.0]
    assert batched(np.array([0.0, 0.0, 0.0]), 1.0, 1.0, 2).tolist() == [3.0, 3.0, 5.0]


@pytest.mark.dear
def test_single_service_is_the_queue_of_textbooks():
    """Pollaczek and Khinchine: the mean wait of M/D/1 is load · service / (2 (1 - load))."""
    load, service = 0.6, 1.0
    waits = batched(arriving(rng(), load, 400_000), service, 0.0, 1) - service
    assert waits.mean() == pytest.approx(load * service / (2 * (1 - load)), rel=0.05)


def test_batches_carry_a_load_that_single_commits_cannot():
    times = arriving(rng(), 3.0, 2_000)
    assert batched(times, 1.0, 0.0, 1_000).max() < 2.5
    assert batched(times, 1.0, 0.0, 1)[-1] > 1_000


def test_a_request_leases_from_the_database_that_has_been_ready_longest():
    ready = [np.array([1.0, 5.0]), np.array([0.5, 2.0, 3.0])]
    one = lease(ready, np.array([0.1, 4.0, 4.0, 6.0]), 2, 0.0, 0.0)
    # 0.1: no page; 4: pages .5 and 2 of the second; 4: page 1 of the first; 6: page 3 of the second
    assert one.n_empty == 1
    assert [late.tolist() for late in one.lateness] == [[3.0], [3.5, 2.0, 3.0]]


def test_a_busy_database_serves_one_request_after_the_other():
    one = lease([np.array([0.0, 0.0, 0.0])], np.array([1.0, 1.0]), 2, 1.0, 0.5)
    assert one.lateness[0].tolist() == [3.0, 3.0, 4.5]
    assert one.busy.tolist() == [3.5]


def test_files_of_benchmarks_replace_the_constants_that_they_measure(tmp_path):
    rows = [
        {"store": store, "row": row, "unit": unit, "value": value, "failure": failure}
        for store, row, unit, value, failure in (
            ("postgres", "observations", "obs/s", 50_000.0, ""),
            ("sqlite", "batches", "crawls/s", 1.0, ""),
            ("postgres", "batches", "crawls/s", 10_000.0, ""),
            ("postgres", "single", "obs/s", 4_000.0, "failed"),
            ("postgres", "single", "crawls/s", 357.0, ""),
            ("postgres", "single", "ms", 12.0, ""),
        )
    ]
    (tmp_path / "http.json").write_text(json.dumps({"rows": rows}))
    whole = {"actors of Dask": {"megabytes": 8.0, "bytes_a_page": 320.0}}
    (tmp_path / "whole.json").write_text(json.dumps(whole))
    (tmp_path / "epoch.json").write_text(json.dumps({"costs": {"questions": 31}}))
    costs = Costs().with_files([tmp_path / f"{n}.json" for n in ("http", "whole", "epoch")])
    assert (costs.report, costs.lease) == (1 / 50_000, 1 / 10_000)
    assert costs.single == Costs().single
    assert (costs.leader_sample, costs.memory, costs.questions) == (8e6, 320.0, 31)
    sources = {name: source for name, _, _, source in costs.rows()}
    assert sources["report"] == "http.json"
    assert sources["memory"] == "whole.json"
    assert sources["single"] == "docs/performance.md"
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(ValueError, match=r"other\.json has no figure"):
        Costs().with_files([tmp_path / "other.json"])


def test_a_row_of_benchmarks_is_a_constant_of_the_model():
    from benchmarks.http.rows import ROWS
    from benchmarks.leases.__main__ import ROWS as LEASES
    from benchmarks.scale.costs import RATES

    assert {row for row, _ in RATES} <= {*ROWS, *LEASES}
    assert measured_by({"rows": []}) == {}


def counted(questions, solve):
    one = Counted.__new__(Counted)
    one.n_questions, one.seconds = questions, {"solve": solve}
    return one


def test_the_costs_of_a_question_follow_from_few_and_many_logical_shards():
    """Two cores, 4 processes; 10 questions of 1 ms an actor and 2 ms a logical shard."""

    def solve(logical):
        return 10 * (4 * 0.001 + 0.002 * logical / 2)

    found = question_costs(counted(10, solve(4)), counted(10, solve(64)), 4, 64, cores=2)
    assert found == {
        "questions": 10,
        "ask_logical": pytest.approx(0.002),
        "ask_actor": pytest.approx(0.001),
    }


def test_the_costs_of_a_page_divide_the_time_between_database_and_actor():
    found = page_costs({"load": 3.0, "write": 1.0}, {"load": 1.0, "write": 0.25}, 2e6)
    assert found == {
        "load_database": 1.0,
        "load_actor": 0.5,
        "write_database": 0.375,
        "write_actor": 0.125,
    }


def value(lines, name):
    return next(line.value for line in lines if line.name == name)


def test_ten_times_the_pages_on_ten_times_the_databases_have_ten_times_the_disk():
    one = Plant(1e6, 2, logical=64, largest_host=1e4, epochs=5, seconds=20)
    small = results(one, Costs(), QUIET)
    large = results(replace(one, pages=1e7, databases=20, logical=640), Costs(), QUIET)
    for name in ("state, all databases", "log, all databases", "archive, a year"):
        assert value(large, name) == pytest.approx(10 * value(small, name))
    assert value(small, "state, all databases") == pytest.approx(409e6 / 1e12)
    assert value(small, "log, all databases") == pytest.approx(1e6 * 0.2 * 30 * 90 / 1e12)
    even = [value(lines, "epoch, even shards") for lines in (small, large)]
    shards = [value(lines, "epoch, these shards") for lines in (small, large)]
    assert even[0] < shards[0]
    assert even[1] < shards[1]
    asked = Costs().questions * Costs().ask_actor * 4 * (20 - 2)
    assert even[1] - even[0] == pytest.approx(asked + Costs().commit * 2 * (20 - 2), rel=0.01)


def test_the_same_seed_gives_the_same_results():
    one = Plant(1e6, 4, logical=64, largest_host=1e4, epochs=20, seconds=20)
    assert results(one, Costs(), Machines()) == results(one, Costs(), Machines())
    assert results(one, Costs(), Machines()) != results(replace(one, seed=2), Costs(), Machines())
