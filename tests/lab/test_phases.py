import numpy as np

from recrawl_lab.worlds.phases import phase


def test_phases_of_consecutive_ids_fill_the_interval_evenly():
    for first in (0, 1, 10**9):
        ordered = np.sort(phase(np.arange(first, first + 1000)))
        gaps = np.diff(ordered, append=ordered[0] + 1.0)
        assert gaps.max() < 2.7 / 1000
        assert ((ordered >= 0) & (ordered < 1)).all()


def test_a_phase_depends_on_the_id_alone():
    ids = np.array([7, 2**40 + 3, 7])
    assert phase(ids)[0] == phase(ids)[2] == phase(7)
    assert (phase([2**63 - 1]) < 1).all()
