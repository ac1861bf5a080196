r"""Change hours of URL groups, pooled towards the hours of their host.

A section of a site may keep hours of its own. A group, the pages of one URL group on one host, is
one of three kinds: flat, on the hours of its host, or on its own. Its evidence has the likelihood

    l_flat = 0,  l_own = log_bayes_factor,
    l_host = 1/2 (z + y)'(q + A)^-1 (z + y) - 1/2 z'q^-1 z - 1/2 ln(det(q + A)/det q) - f,
    f = 1/2 (y_0 + P_0)²/(A_0 + P_0) - 1/2 P_0 - 1/2 ln((A_0 + P_0)/P_0),

A and y are the information and the score of the group. Its host without the group has the precision
q and the target z, and the prior has P. The shares of the kinds on a host are fitted by EM:

    p_gk ~ pi_k e^(l_gk),  pi_k = (alpha_k + sum_g p_gk)/(sum alpha + G).

Therefore the first odd group of a host needs much evidence, and further ones need less.
"""

from typing import NamedTuple

import numpy as np

from service.core.change_hours.evidence import HourEvidence, Indices
from service.core.change_hours.fit import LEAST_WEIGHT, fitted
from service.core.change_hours.posterior import PRIOR, Form, ProfilePosterior, has_dates
from service.core.change_hours.profile import LEAST_LEVEL, TERMS, Profiles
from service.core.checks import Bools, Floats, InvalidInput

FLAT, HOST, OWN = range(3)
"""Kinds of groups."""
IMAGINARY = 4.0
"""Imaginary groups of each host, before any evidence of groups."""
FOLLOWING = 0.2
"""Share of the imaginary groups that keep the hours of a host that certainly has hours."""
STRAY = 0.05
"""Share of the imaginary groups that keep hours of their own, beside the others."""
ROUNDS = 20
"""Rounds of EM."""
NO_HOURS = -50.0
"""Log Bayes factor of the hours of a host that has none."""
WHOLE_HOST = 0.7, 1.05
"""Shares of the evidence of a host with which a group is the host. A larger share means that the
host has forgotten its evidence."""
OF_ITS_OWN = 0.5
"""Probability of own hours from which a group no longer teaches its host."""
SURE = 3.0
"""Log Bayes factor of own hours above which a group needs no extra crawls."""
ENOUGH = 8.0
"""Information of a harmonic, or number of dated changes, above which it needs none either."""
BEFORE = Form(-np.diag(PRIOR), -PRIOR * np.eye(TERMS)[0])
"""Form of the prior that a host replaces, with the opposite sign."""
BLOCK = 1024
"""Maximum number of groups whose matrices are in memory at a time."""


class Pooled(NamedTuple):
    """(G,) groups after a fit."""

    profiles: Profiles
    """Profiles in force, averaged over the kinds. The weight is p_host + p_own, and 0 where it is
    below `LEAST_WEIGHT`."""
    shares: Floats
    """(G, 3) probabilities of the kinds; each row has the sum 1."""
    certain: Floats
    """Certainty of the hours, by which extra crawls are decided, 0 to 1."""
    is_host: Bools
    """True for a group with most of the evidence of its host, which keeps the hours of the host."""


def pooled(
    groups: HourEvidence,
    host: Indices,
    hosts: HourEvidence,
    profiles: Profiles,
    taught: Bools,
) -> Pooled:
    """Return the profiles in force of (G,) groups; O(TERMS³ G).

    Parameters
    ----------
    host : (G,)
        Rows of the groups' hosts.
    hosts, profiles : (H,)
        Evidence of the hosts, and the fit to it.
    taught : (G,)
        True if the evidence of the host has that of the group.

    Raises
    ------
    InvalidInput
        A host is out of range.

    References
    ----------
    Derived (docs/theory.md, "Sections with hours of their own").

    Examples
    --------
    A dozen changes of a group came between six and seven; its host is flat:

    >>> group = HourEvidence.none(1)
    >>> group.dated[0, 6], group.exposure[0] = 12.0, 0.5
    >>> flat = HourEvidence.none(1), Profiles.flat(1)
    >>> pooled(group, np.zeros(1, int), *flat, np.array([False])).shares.round(3)
    array([[0., 0., 1.]])
    """
    n = len(host)
    if n and not (host.min() >= 0 and host.max() < len(profiles.weight)):
        raise InvalidInput("host", f"must lie in [0, {len(profiles.weight)})")
    amount, of_host = _amount(groups), _amount(hosts)[host]
    low, high = WHOLE_HOST
    is_host = taught & (amount > low * of_host) & (amount < high * of_host)
    theta, factors = np.empty((n, TERMS)), np.zeros((n, 3))
    has_hours = profiles.weight[host] > 0
    factors[~has_hours, HOST] = NO_HOURS
    for start in range(0, n, BLOCK):
        some = slice(start, start + BLOCK)
        own, at = groups.take(some), host[some]
        near = profiles.coefficients[at]
        theta[some], factors[some, OWN] = fitted(own, near)
        row = np.flatnonzero(has_hours[some])
        by_host = own.take(row), hosts.take(at[row]), near[row], taught[some][row]
        factors[start + row, HOST] = host_factor(*by_host)
    shares = np.zeros((n, 3))
    odd = ~is_host
    shares[odd] = kind_shares(factors[odd], host[odd], profiles.weight)
    shares[is_host, HOST] = 1.0
    enough = (groups.information[:, TERMS:].max(axis=1, initial=0.0) > ENOUGH) | (
        groups.dated.sum(axis=1) > ENOUGH
    )
    certain = np.where(enough | (factors[:, OWN] > SURE), 1.0, shares[:, OWN])
    return Pooled(_in_force(theta, shares, host, profiles), shares, certain, is_host)


def kind_shares(factors: Floats, host: Indices, weight: Floats) -> Floats:
    """Return (G, 3) probabilities of the kinds of groups by EM; `weight` is that of (H,) hosts.

    Examples
    --------
    A group is odd sooner if other groups beside it are odd:

    >>> factors = np.array([[0.0, 0.0, 4.0], *[[0.0, 0.0, 40.0]] * 9])
    >>> alone = kind_shares(factors[:1], np.zeros(1, int), np.ones(1))
    >>> among = kind_shares(factors, np.zeros(10, int), np.ones(1))
    >>> np.round([among[0, 2], alone[0, 2]], 2).tolist()
    [0.99, 0.94]
    """
    n_hosts = len(weight)
    follow = FOLLOWING * weight
    alpha = IMAGINARY * np.column_stack((1.0 - follow, follow, np.full(n_hosts, STRAY)))
    total = alpha.sum(axis=1) + np.bincount(host, minlength=n_hosts)
    odds = np.exp(factors - factors.max(axis=1, keepdims=True, initial=0.0))
    kinds = alpha / alpha.sum(axis=1, keepdims=True)
    shares: Floats = np.zeros_like(odds)
    for _ in range(ROUNDS):
        shares = kinds[host] * odds
        shares /= shares.sum(axis=1, keepdims=True)
        sums = [np.bincount(host, column, n_hosts) for column in shares.T]
        kinds = (alpha + np.column_stack(sums)) / total[:, None]
    return shares


def host_factor(group: HourEvidence, host: HourEvidence, near: Floats, taught: Bools) -> Floats:
    """Return (G,) log Bayes factors of the hours of the host against none.

    `host` is the evidence of each group's host, and `near` its fit, (G, TERMS). Without dates the
    factors are exact, otherwise by Laplace's method.
    """
    prior = _without(group, host, near, taught)
    dated = has_dates(group)
    if not dated.any():
        return _by_crawls(group, prior)
    factors = np.empty(len(dated))
    for rows, method in ((~dated, _by_crawls), (dated, _by_dates)):
        factors[rows] = method(group.take(rows), prior.take(rows))
    return factors


def _without(group: HourEvidence, host: HourEvidence, near: Floats, taught: Bools) -> Form:
    """Return precisions and targets of hosts without their groups; eigenvalues are at least 1."""
    whole, part = (ProfilePosterior.of(each).form(near) for each in (host, group))
    own = part.plus(BEFORE)
    precision = whole.precision - taught[:, None, None] * own.precision
    value, axes = np.linalg.eigh(precision)
    held = np.maximum(value, 1.0)[:, None, :]
    target = whole.target - taught[:, None] * own.target
    return Form((axes * held) @ axes.transpose(0, 2, 1), target)


def _by_crawls(group: HourEvidence, prior: Form) -> Floats:
    own = Form.of(group.information, group.score)
    both, alone = own.plus(prior).plus(BEFORE), own.precision[:, 0, 0]
    best = 0.5 * np.einsum("ij,ij->i", both.target, both.maximum())
    flat = 0.5 * own.target[:, 0] ** 2 / alone
    return np.asarray(best - flat - _loss(both.precision, prior, alone))


def _by_dates(group: HourEvidence, prior: Form) -> Floats:
    own, both = ProfilePosterior.of(group), ProfilePosterior.of(group, prior.plus(BEFORE))
    theta, level = both.maximum(prior.maximum()), own.level()
    gain = both.log(theta) - own.log(level[:, None] * np.eye(TERMS)[0])
    alone = own.crawls.precision[:, 0, 0] + group.dated.sum(axis=1) / level**2
    return np.asarray(gain - _loss(both.precision(theta), prior, alone))


def _loss(precision: Floats, prior: Form, alone: Floats) -> Floats:
    """Return losses by both priors: of the host, and of an intercept alone."""
    centre = 0.5 * np.einsum("ij,ij->i", prior.target, prior.maximum())
    volume = np.linalg.slogdet(precision)[1] - np.linalg.slogdet(prior.precision)[1]
    of_flat = 0.5 * PRIOR[0] + 0.5 * np.log(alone / PRIOR[0])
    return np.asarray(centre + 0.5 * volume - of_flat)


def _in_force(theta: Floats, shares: Floats, host: Indices, profiles: Profiles) -> Profiles:
    level = np.maximum(theta[:, :1], LEAST_LEVEL)
    weight = shares[:, HOST] + shares[:, OWN]
    harmonics = shares[:, HOST, None] * profiles.harmonics[host]
    harmonics += shares[:, OWN, None] * theta[:, 1:] / level
    timed = weight >= LEAST_WEIGHT
    result = Profiles.flat(len(host))
    result.coefficients[timed, :1] = level[timed]
    result.coefficients[timed, 1:] = (level * harmonics)[timed] / weight[timed, None]
    result.weight[timed] = weight[timed]
    return result


def _amount(evidence: HourEvidence) -> Floats:
    """Return numbers of changes that the evidence expects, by which its amounts compare."""
    return np.asarray(evidence.information[:, 0] + evidence.exposure.sum(axis=1))
