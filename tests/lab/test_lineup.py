"""The policies that are compared: which there are, what they are, that each of them plays."""

from dataclasses import fields

import numpy as np
import pytest

from recrawl_lab.errors import UnknownPolicy
from recrawl_lab.policies import lineup
from recrawl_lab.policies.lineup import (
    DEFAULT,
    DEFAULT_PLAN,
    HINDSIGHT_KNOWS,
    LEFT_OUT,
    LINEUP,
    LOAN_DAYS,
    LOGGED,
    PARTS,
    Game,
    PolicyKind,
    chosen,
    suitable_step,
)
from recrawl_lab.worlds.world import synthetic_world
from service.core.estimators import ESTIMATORS
from service.runtime.settings import Settings

WORLD = synthetic_world(30, 8.0, rng=np.random.default_rng(5))
GAME = Game(WORLD, bandwidth=10.0, step=1.0)


def test_recrawl_is_the_service_as_it_is_set_by_default(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert Settings().plan() == DEFAULT_PLAN
    assert Settings().budget_loan == LOAN_DAYS


@pytest.mark.sampled(8)
@pytest.mark.parametrize("entrant", [LINEUP[name] for name in chosen("all")], ids=chosen("all"))
def test_every_policy_plays_within_the_bandwidth(entrant):
    played = entrant.play(GAME, None)
    learns = entrant.kind is PolicyKind.learning or entrant.name == "told"
    slack = 8 if learns else 2  # after eight days its rates still change, and three days are lent
    assert 0 < len(played.crawls.at) <= 10.0 * 8.0 + slack
    assert (played.crawls.at <= 8.0).all()
    assert len(played.predicted.at) == 0 or entrant.kind is PolicyKind.learning


RIVALS = ("uniform", "fixed-tuned", "nutch-tuned", "change-rate", "hindsight", "told")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", [*RIVALS, "recrawl", "lambdacrawl-gamma"])
@pytest.mark.parametrize("per_page", [0.1, pytest.param(1.0, marks=pytest.mark.slow)])
def test_at_the_end_of_a_replay_every_policy_crawls_as_before(name, per_page):
    """Bandwidth that was lent is not called in: no policy rests while others crawl."""
    world = synthetic_world(600, 120.0, rng=np.random.default_rng(7))
    bandwidth = per_page * len(world)
    at = LINEUP[name].play(Game(world, bandwidth), None).crawls.at
    assert len(at) == pytest.approx(120 * bandwidth, rel=0.02)
    last = np.count_nonzero(at >= 106.0)
    assert last == pytest.approx(14 * bandwidth, rel=0.05)


def test_estimators_are_all_there_or_left_out_with_the_reason():
    told = [name.removeprefix("lambdacrawl-") for name in (*LINEUP, *LEFT_OUT)]
    for estimator in ESTIMATORS:
        name = estimator.replace("_", "-")
        assert f"{name}-poisson" in told
        assert name in told
    assert sorted(LEFT_OUT) == ["lambdacrawl-lln", "lambdacrawl-sa", "lambdacrawl-sam"]
    assert all("exponentially distributed" in reason for reason in LEFT_OUT.values())


def test_progress_ends_with_the_world():
    for name in ("uniform", "recrawl"):
        days = []
        LINEUP[name].play(GAME, days.append)
        assert days[-1] == 8.0


def test_groups_and_names_may_be_mixed_and_each_counts_once():
    assert chosen("default") == DEFAULT
    assert chosen("all") == tuple(name for name in LINEUP if name != LOGGED)
    assert chosen("parts,uniform") == (*PARTS, "uniform")
    assert chosen("blc,default") == ("blc", *DEFAULT)


@pytest.mark.parametrize(
    ("names", "told"),
    [
        ("uniformly", "no policy 'uniformly'; choose from the groups default, all, parts and"),
        ("lambdacrawl-sa", "lambdacrawl-sa cannot be played: the estimator assumes exponentially"),
        (" ,", "name at least one policy"),
    ],
)
def test_what_cannot_be_played_is_refused(names, told):
    with pytest.raises(UnknownPolicy, match=told):
        chosen(names)


def test_each_part_left_out_is_one_difference_from_the_default():
    for name, (plan, _) in PARTS.items():
        assert name.startswith("recrawl-")
        ours = differences(DEFAULT_PLAN, plan)
        if ours == ["estimator"] and type(plan.estimator) is type(DEFAULT_PLAN.estimator):
            ours = differences(DEFAULT_PLAN.estimator, plan.estimator)
        assert len(ours) == 1, name


def differences(one, other):
    names = [field.name for field in fields(one)]
    return [name for name in names if getattr(one, name) != getattr(other, name)]


@pytest.mark.dear
def test_recrawl_without_siblings_differs_in_its_crawls_where_pages_change_together():
    together = synthetic_world(60, 30.0, rng=np.random.default_rng(2))
    game = Game(together, bandwidth=20.0, step=1.0)
    ours, without = (
        LINEUP[name].play(game, None).crawls for name in ("recrawl", "recrawl-no-siblings")
    )
    assert ours.at.tolist() != without.at.tolist()
    assert PARTS["recrawl-no-siblings"][0].estimator == DEFAULT_PLAN.estimator


def test_hindsight_is_described_as_no_bound_for_policies_that_learn_timing():
    described = LINEUP["hindsight"].description
    assert HINDSIGHT_KNOWS in described
    assert "true mean change rate of every page but nothing of when changes come" in described
    assert "it is no bound for them" in described


def test_epochs_are_as_rare_as_crawls_of_a_page_allow():
    assert suitable_step(WORLD, 60.0) == pytest.approx(0.25)
    assert suitable_step(WORLD, 3.0) == 1.0
    assert suitable_step(WORLD, 3.0, with_urgency=False) == pytest.approx(5.0)
    assert suitable_step(WORLD, 0.3, with_urgency=False) == 7.0


def test_the_papers_policies_go_without_siblings(monkeypatch):
    plans = []

    def spy(*_args, step, **_kwargs):
        plans.append((_args[2], step))
        raise StopIteration

    monkeypatch.setattr(lineup, "replay_gated", spy)
    for name in ("recrawl", "lambdacrawl-gamma", "blc", "lambdacrawl-gamma-poisson"):
        with pytest.raises(StopIteration):
            LINEUP[name].play(Game(WORLD, bandwidth=3.0), None)
    assert [(plan.with_urgency, step) for plan, step in plans] == [(True, 1.0), *3 * [(False, 5.0)]]
