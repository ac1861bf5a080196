r"""Change hours: the hours at which the pages of a host change, and the best hours to crawl.

Page i of host h changes at the rate Delta_i s_h(t). The profile s_h of the host has period one day
and mean 1. The excess mass phi_h is the integral of s_h - 1, with mean 0. A crawl costs least where
phi_h is largest: just after the changes of the day. Derived in docs/theory.md, "Sites with change
hours".

Instants are days since any midnight in UTC, such as 1970-01-01. A profile knows the hour of the
day alone.

| symbol | name | shape | meaning, unit |
| --- | --- | --- | --- |
| s | `intensity` | (H, SLOTS) | change rate at an hour over the mean change rate |
| theta | `coefficients` | (H, TERMS) | intercept, cosines and sines of a profile |
| w | `weight` | (H,) | probability that a host has change hours |
| phi | `excess_mass` | (H, SLOTS) | changes of a day that came early, as days of the mean rate |
| A | `information` | (H, PAIRS) | Fisher information of the coefficients, upper triangle |
| y | `score` | (H, TERMS) | information times the coefficients that the crawls support |
| T | `interval` | (N,) | time between crawls by the crawl rate, day |
| x | `expected` | (N,) | changes expected in that time, Delta T |
| Q | `pace` | (H, SLOTS + 1) | share of a day's crawls up to an hour, for pages crawled often |
"""
