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
s                   url_group            (N,)     which pages are siblings: a number in [0, S)
m_s                 url_group_rate       (S,)     mean change rate of a URL group's pages, 1/day
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
