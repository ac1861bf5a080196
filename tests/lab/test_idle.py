"""Parts of a plan without any effect: games without them are the same games."""

from contextlib import contextmanager
from datetime import UTC, datetime
from types import SimpleNamespace

import numpy as np
import pytest

from recrawl_lab.policies.lineup import LINEUP, PARTS, Game, plays_as_default
from recrawl_lab.replay.idle import PARTS_THAT_LEARN, in_use
from recrawl_lab.worlds.sections import section_world
from service.core.age_evidence import AgeEvidence
from service.core.wide_revisions import WideRevisions
from service.model.domain import Epoch, EpochStatus

AT = datetime(2026, 1, 1, tzinfo=UTC)
REVISION = WideRevisions(np.array([1]), np.array(["2026-01-01"], "M8[us]"), np.array([0.5]))


class Learnt:
    """A store in which an epoch learnt something."""

    def __init__(self, revisions=None, n_shifts=0, n_hosts=0, n_groups=0):
        self.group_hours = range(n_groups)
        self.tx = SimpleNamespace(
            wide_revisions=lambda _: revisions,
            shifts=lambda _: range(n_shifts),
            host_hours=lambda: range(n_hosts),
        )

    @contextmanager
    def begin(self, *, write):
        assert not write
        yield self.tx


def epoch(proof=0.0):
    """Return an epoch with a proof of ages."""
    packed = AgeEvidence.none()._replace(proof=proof).packed().tolist()
    certificate = SimpleNamespace(age_evidence=tuple(packed))
    return Epoch(7, EpochStatus.published, AT, certificate=certificate)


@pytest.mark.parametrize(
    ("learnt", "used"),
    [
        ({}, set()),
        ({"revisions": WideRevisions.none()}, set()),
        ({"revisions": REVISION}, {"wide_revisions"}),
        ({"n_shifts": 1}, {"change_hours"}),
        ({"n_hosts": 1}, {"change_hours"}),
        ({"n_groups": 1}, {"change_hours", "group_hours"}),
    ],
)
def test_a_part_is_in_use_once_it_has_learnt_something(learnt, used):
    assert in_use(Learnt(**learnt), epoch()) == used


def test_ages_are_in_use_once_they_are_proven():
    assert in_use(Learnt(), epoch(proof=26.0)) == {"ages"}
    assert in_use(Learnt(), Epoch(1, EpochStatus.published, AT)) == set()


@pytest.mark.dear
def test_a_game_without_an_idle_part_is_the_same_to_the_last_bit():
    world = section_world("flat", rng=np.random.default_rng(1), n_sections=2, days=25.0)
    game = Game(world, 20.0)
    default = LINEUP["recrawl"].play(game, None)
    same = [name for name in PARTS if plays_as_default(name, default.idle)]
    assert same == [name for name in PARTS if name != "recrawl-no-siblings"]
    for name in same:
        other = LINEUP[name].play(game, None)
        for mine, its in zip(default.crawls, other.crawls, strict=True):
            np.testing.assert_array_equal(mine, its)
        for mine, its in zip(default.predicted, other.predicted, strict=True):
            np.testing.assert_array_equal(mine, its)


@pytest.mark.dear
def test_extra_crawls_for_change_hours_are_an_effect():
    world = section_world("cron", rng=np.random.default_rng(1), n_sections=2, days=12.0)
    played = LINEUP["recrawl"].play(Game(world, 20.0), None)
    assert "change_hours" not in played.idle
    assert played.idle < PARTS_THAT_LEARN
    assert LINEUP["uniform"].play(Game(world, 20.0), None).idle == frozenset()
