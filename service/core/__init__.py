"""The numeric core: numbers in, numbers out; usable as a library without the service.

Rates are per day, intervals are in days. The core has no clock, no input or output and no random
numbers; callers pass time and randomness. docs/theory.md has the notation and the sources: K19,
A22, GF08, CG03.
"""
