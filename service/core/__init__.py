"""The numeric core: numbers in, numbers out; usable as a library without the service.

==================  ===================  =======  ==============================================
Symbol              Name                 Shape    Meaning, unit
==================  ===================  =======  ==============================================
w                   page                          K19's "source": one thing that can be crawled
mu                  importance           (N,)     weight of a page, e.g. its requests; >= 0
Delta               change_rate          (N,)     rate of content changes, 1/day
rho (K19), p (A22)  crawl_rate           (N,)     rate of crawls on the clock, 1/day
p (K19)             crawl_probability    (N,)     probability of a crawl on a ping, in [0, 1]
W⁻, W°              complete             (N,)     False: changes are seen by crawling only;
                                                  True: every change is announced by a ping
R                   bandwidth            scalar   crawls in total, 1/day
lambda              multiplier           scalar   Lagrange multiplier of the bandwidth
I_k, z_j            changed              (N,)     did the page change since the previous crawl?
tau, a_j            interval             (N,)     time between two crawls, day
a, b                Prior, GammaState    (N,)     Gamma belief of a change rate: changes, days
s                   URL group              (N,)     which pages are siblings: a number in [0, S)
m_s                 url_group_rate         (S,)     mean change rate of a URL group's pages, 1/day
alpha               unannounced_rate     (N,)     rate of changes without a ping, 1/day
g                   ping_rate            (N,)     rate of pings, true and false, 1/day
q                   precision            (N,)     P(a ping is a real change)
q g / Delta         recall               (N,)     P(a change is announced by a ping)
J^H                 harmonic_cost        (N,)     importance times mean of 1 + 1/2 + … + 1/n
                                                  over n uncrawled changes
J^B                 binary_cost          (N,)     importance times share of time with n > 0
==================  ===================  =======  ==============================================

Rates are per day and intervals in days; there is no clock, no input or output and no randomness
of its own here: `simulate` is handed a Generator. Sources: K19 Kolobov et al. NeurIPS 2019; A22
Avrachenkov, Patil, Thoppe 2022; GF08 Grimes, Ford 2008; CG03 Cho, Garcia-Molina 2003.
"""

from service.core.allocation import (
    ALLOCATORS,
    Allocation,
    Allocator,
    allocate_approximate,
    allocate_binary,
    allocate_binary_floor,
    allocate_change_rate,
    allocate_harmonic,
    allocate_uniform,
)
from service.core.conditions import BandwidthInfeasible, CoreError, InvalidInput
from service.core.costs import binary_cost, harmonic_cost
from service.core.estimators import (
    ESTIMATORS,
    LLN,
    MLE,
    MM,
    SA,
    SAM,
    BinnedMLE,
    BinnedState,
    Bursty,
    BurstyState,
    CompleteObservations,
    CompleteState,
    Estimator,
    Gamma,
    GammaState,
    History,
    LLNState,
    LogNormal,
    LogNormalState,
    Naive,
    NaiveState,
    SAMState,
    SAState,
    from_columns,
    gather_history,
    make_estimator,
    to_columns,
)
from service.core.pings import PingEstimate, PingQuality, PingState
from service.core.pooling import PagePriors, UrlGroupPrior, fit_url_groups, follow_url_groups
from service.core.prior import (
    DEFAULT_PRIOR,
    ImaginaryIntervals,
    Prior,
    fit_gamma_prior,
    fit_imaginary_intervals,
    posterior_rates,
)
from service.core.timing import (
    crawl_value,
    first_due_in,
    next_due_in,
    overdue,
    phase,
    ping_credit,
    poisson_gap,
    poisson_ping,
)
from service.core.trust import TrustTest, accepted, audit_due, audit_rate, discounted, silent_feeds

__all__ = [
    "ALLOCATORS",
    "DEFAULT_PRIOR",
    "ESTIMATORS",
    "LLN",
    "MLE",
    "MM",
    "SA",
    "SAM",
    "Allocation",
    "Allocator",
    "BandwidthInfeasible",
    "BinnedMLE",
    "BinnedState",
    "Bursty",
    "BurstyState",
    "CompleteObservations",
    "CompleteState",
    "CoreError",
    "Estimator",
    "Gamma",
    "GammaState",
    "History",
    "ImaginaryIntervals",
    "InvalidInput",
    "LLNState",
    "LogNormal",
    "LogNormalState",
    "Naive",
    "NaiveState",
    "PagePriors",
    "PingEstimate",
    "PingQuality",
    "PingState",
    "Prior",
    "SAMState",
    "SAState",
    "TrustTest",
    "UrlGroupPrior",
    "accepted",
    "allocate_approximate",
    "allocate_binary",
    "allocate_binary_floor",
    "allocate_change_rate",
    "allocate_harmonic",
    "allocate_uniform",
    "audit_due",
    "audit_rate",
    "binary_cost",
    "crawl_value",
    "discounted",
    "first_due_in",
    "fit_gamma_prior",
    "fit_imaginary_intervals",
    "fit_url_groups",
    "follow_url_groups",
    "from_columns",
    "gather_history",
    "harmonic_cost",
    "make_estimator",
    "next_due_in",
    "overdue",
    "phase",
    "ping_credit",
    "poisson_gap",
    "poisson_ping",
    "posterior_rates",
    "silent_feeds",
    "to_columns",
]
