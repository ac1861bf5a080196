"""Learning stands on the prior of the schedule in force."""

from dataclasses import replace

import numpy as np
from support.ingest_cases import rules
from support.store_cases import CERTIFICATE, T0, publish, schedule_columns

from service.core.estimators.gamma import Gamma
from service.core.estimators.lln import LLN
from service.core.prior import Prior
from service.estimation.rules import InForce, rules_in_force
from service.model.domain import Timing
from service.model.urls import URL_GROUPS


def test_learning_stands_on_the_prior_of_the_epoch_in_force(memory, page):
    fitted = {"a": 2.0, "b": 4.0}
    publish(memory, schedule_columns([page]), certificate=replace(CERTIFICATE, prior=fitted))
    with memory.begin() as tx:
        assert rules_in_force(tx, rules()).estimator.prior == Prior(**fitted)
        by = rules(Gamma(half_life_days=7.0))
        assert rules_in_force(tx, by).estimator == Gamma(Prior(**fitted), 7.0)
        assert rules_in_force(tx, by).rng is by.rng


def test_the_prior_follows_the_epochs_and_each_of_them_is_read_once(memory, page, monkeypatch):
    in_force = InForce(rules())
    with memory.begin() as tx:
        assert in_force.of(tx) is in_force.rules
    for a in (2.0, 3.0):
        fitted = replace(CERTIFICATE, prior={"a": a, "b": 4.0})
        publish(memory, schedule_columns([page]), certificate=fitted)
        with memory.begin() as tx:
            assert in_force.of(tx).estimator.prior == Prior(a, 4.0)
        with memory.begin() as tx, monkeypatch.context() as patched:
            patched.setattr(tx, "epoch", None)
            assert in_force.of(tx).estimator.prior == Prior(a, 4.0)


def test_learning_stands_on_the_corpus_and_what_is_told_of_a_page_on_its_url_group(memory, page):
    """Were it the URL group's, what a page shows would depend on what was believed of siblings."""
    fitted = {"a": 2.0, "b": 4.0, "within_shape": 3.0, "between_shape": 1.0}
    rate = np.full(URL_GROUPS, 0.25, np.float32)
    certificate = replace(CERTIFICATE, prior=fitted)
    publish(memory, schedule_columns([page]), certificate=certificate, url_group_rate=rate)
    with memory.begin() as tx:
        known = rules_in_force(tx, rules()).estimator
    state = known.update(known.init(), 10.0, changed=True)
    assert state == Gamma(Prior(2.0, 4.0)).update(known.init(), 10.0, changed=True)
    np.testing.assert_allclose(known.of_url_groups(np.array([7])).prior.b, [12.0])


def test_without_an_epoch_learning_stands_on_the_prior_it_was_given(memory):
    by = rules(Gamma(Prior(3.0, 4.0)))
    with memory.begin() as tx:
        assert rules_in_force(tx, by) is by
        tx.start_epoch(T0)
        assert rules_in_force(tx, by) is by


def test_an_epoch_of_an_estimator_without_a_prior_leaves_the_prior_alone(memory, page):
    """After a change of estimator and `recrawl rebuild`, the old epoch is still in force."""
    publish(memory, schedule_columns([page]), certificate=replace(CERTIFICATE, prior={}))
    by = rules(Gamma(Prior(3.0, 4.0)))
    with memory.begin() as tx:
        assert rules_in_force(tx, by).estimator.prior == Prior(3.0, 4.0)


def test_an_estimator_without_a_prior_takes_none(memory, page):
    publish(memory, schedule_columns([page]))
    by = rules(LLN(), Timing.poisson)
    with memory.begin() as tx:
        assert rules_in_force(tx, by).estimator is by.estimator
