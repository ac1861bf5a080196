"""How evidence becomes states: the settings, and the prior of the schedule in force."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from service.core.estimators.base import Estimator
from service.model.arrays import UrlGroupRates
from service.model.domain import Certificate, Timing
from service.storage import Transaction


@dataclass(frozen=True, slots=True)
class Rules:
    """One estimator and one timing for all pages."""

    estimator: Estimator[Any]
    timing: Timing
    rng: np.random.Generator
    ping_delay_s: float = 0.0
    """Drop pings dated within this many seconds after the page's last crawl."""

    def of(self, _: Transaction) -> "Rules":
        """Return these rules, whichever schedule is in force."""
        return self


def rules_in_force(tx: Transaction, rules: Rules) -> Rules:
    """Return the rules with the prior of the schedule in force."""
    return InForce(rules).of(tx)


class InForce:
    """The rules with the prior of the schedule in force; reads each epoch once."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.estimator = rules.estimator
        """Estimator without a prior."""
        self._latest = 0, rules

    def of(self, tx: Transaction) -> Rules:
        """Return the rules as of this transaction."""
        if not self.rules.estimator.corpus():
            return self.rules
        epoch, rules = self._latest
        if (number := tx.number_in_force()) != epoch:
            rules = self._with_prior(tx.epoch(number).certificate, tx.url_group_rate(number))
            self._latest = number, rules
        return rules

    def _with_prior(
        self, certificate: Certificate | None, url_group_rate: UrlGroupRates | None
    ) -> Rules:
        if certificate is None or not certificate.prior:
            return self.rules
        estimator = self.rules.estimator.with_corpus(certificate.prior, url_group_rate)
        return replace(self.rules, estimator=estimator)
