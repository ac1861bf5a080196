"""Which requests carry validators: nineteen in twenty, and none in doubt."""

from datetime import timedelta

import numpy as np
import pytest
from support.store_cases import DAY, T0, columns, instants

from service.leases import conditional
from service.leases.conditional import DISTRUST_DAYS, distrusted_until, handed_out, withheld
from service.model.arrays import NO_TIME, instant
from service.storage.pages.validators import StoredValidators

AT = instant(T0)
DATE = T0 - 9 * DAY


def stored(n=1, etag='"a"', date=DATE, *, doubted=False, false_304_at=None):
    return columns(
        StoredValidators,
        n,
        page_id=np.arange(n),
        etag=etag,
        last_modified=NO_TIME if date is None else instant(date),
        note="7",
        doubted=doubted,
        false_304_at=instants([false_304_at] * n),
    )


def rng(seed=1):
    return np.random.default_rng(seed)


@pytest.mark.parametrize(("etag", "date"), [('"a"', None), ("", DATE), ('W/"a"', DATE)])
def test_one_request_in_twenty_goes_without_validators_and_keeps_its_note(
    plain_share, monkeypatch, etag, date
):
    monkeypatch.setattr(conditional, "PLAIN_SHARE", plain_share)
    validators = stored(20_000, etag, date)
    got = handed_out(validators, AT, rng())
    plain = (got.etag == "") & np.isnat(got.last_modified)
    assert 900 < plain.sum() < 1_100
    np.testing.assert_array_equal(got.etag[~plain], validators.etag[~plain])
    np.testing.assert_array_equal(got.last_modified[~plain], validators.last_modified[~plain])
    assert (got.note == "7").all()
    assert plain.tolist() == withheld(validators, AT, rng()).tolist(), (
        "the draws are those of the rng"
    )


def test_pages_without_validators_draw_nothing():
    draws = rng()
    bare = stored(5, "", None)
    assert handed_out(bare, AT, draws) is bare
    assert draws.random() == rng().random()


def test_the_request_after_a_contradiction_goes_without_validators():
    got = handed_out(stored(doubted=True), AT, rng())
    assert (got.etag[0], np.isnat(got.last_modified[0])) == ("", True)


@pytest.mark.parametrize(
    ("days", "plain"),
    [(-1, False), (0, True), (1, True), (29.99, True), (30, False), (400, False)],
)
def test_validators_of_a_host_whose_304_was_wrong_rest_for_30_days(days, plain):
    proof = T0 - timedelta(days=days)
    assert withheld(stored(false_304_at=proof), AT, rng()).tolist() == [plain]
    until = distrusted_until(proof, T0)
    assert until == (proof + timedelta(days=DISTRUST_DAYS) if plain else None)


def test_a_host_without_a_proof_is_trusted():
    assert withheld(stored(), AT, rng()).tolist() == [False]
    assert distrusted_until(None, T0) is None
