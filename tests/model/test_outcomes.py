"""The table of outcomes: every status has one, and only the named columns decide it."""

import numpy as np
import pytest

from service.model.arrays import UNSPECIFIED
from service.model.outcomes import (
    ANSWERS,
    IS_ABSENT,
    IS_FAILURE,
    IS_PATIENT,
    IS_STEADY,
    OFFERED,
    ROBOTS_DENIED,
    SHOWS,
    WAITS,
    Outcome,
    asks_for_pause,
    host_in_trouble,
    outcome_of,
    shows_content,
)

STATUSES = np.array([UNSPECIFIED, *range(1_001), -7, -2, 1_001, 1_002, 32_767], np.int16)
CASES = [
    (status, changed, digest, target)
    for status in STATUSES.tolist()
    for changed in (UNSPECIFIED, 0, 1)
    for digest in (0, 5, -(2**63))
    for target in (0, 9, UNSPECIFIED)
]


def by_hand(status, changed, digest, target):  # noqa: PLR0911 - one line a row of the table
    if status == 304:
        return Outcome.content
    if status in (404, 410):
        return Outcome.absent
    if status in (301, 308) and target != 0:
        return Outcome.moved
    if 300 <= status < 400:
        return Outcome.elsewhere
    if status == OFFERED:
        return Outcome.offered
    if status in (401, 402, 403, 405, 406, 451, ROBOTS_DENIED):
        return Outcome.refused
    if status != UNSPECIFIED and not 200 <= status < 300:
        return Outcome.failed
    if target != 0:
        return Outcome.elsewhere
    return Outcome.content if digest or changed != UNSPECIFIED else Outcome.empty


def test_every_crawl_has_the_one_outcome_of_the_table():
    status, changed, digest, target = (np.array(column) for column in zip(*CASES, strict=True))
    found = outcome_of(status.astype(np.int16), changed.astype(np.int16), digest, target)
    assert found.dtype == np.int16
    assert found.tolist() == [by_hand(*case) for case in CASES]


def test_the_short_way_to_content_is_that_of_the_table():
    status, changed, digest, target = (np.array(column) for column in zip(*CASES, strict=True))
    listed = (status >= UNSPECIFIED) & (status <= OFFERED)
    columns = status.astype(np.int16), changed.astype(np.int16), digest, target
    sure, outcome = shows_content(*columns), outcome_of(*columns)
    assert (outcome[sure & listed] == Outcome.content).all()
    # nothing else has content, so the long way is left to the batches that need it
    assert sure[listed & (outcome == Outcome.content)].all()


def test_no_crawl_is_no_outcome():
    nothing = np.zeros(0, np.int16)
    assert outcome_of(nothing, nothing, nothing, nothing).tolist() == []


@pytest.mark.parametrize(
    ("column", "outcomes"),
    [
        (SHOWS, {"content", "moved", "absent"}),
        (IS_ABSENT, {"moved", "absent"}),
        (ANSWERS, {"content", "moved", "absent", "elsewhere", "empty"}),
        (IS_FAILURE, {"refused", "failed", "doubtful"}),
        (IS_PATIENT, {"elsewhere", "refused", "empty"}),
        (IS_STEADY, {"moved", "absent", "doubtful", "offered"}),
        (~WAITS, {"offered"}),
    ],
)
def test_the_columns_name_these_outcomes(column, outcomes):
    assert {outcome.name for outcome in Outcome if column[outcome]} == outcomes


def test_only_failed_crawls_show_a_host_in_trouble():
    ill = host_in_trouble(STATUSES)
    assert set(STATUSES[ill].tolist()) == {0, 429, *range(500, 600)}
    assert set(STATUSES[asks_for_pause(STATUSES)].tolist()) == {429, 503}
    zero = np.zeros(len(STATUSES), np.int64)
    assert np.all(outcome_of(STATUSES, zero, zero, zero)[ill] == Outcome.failed)
