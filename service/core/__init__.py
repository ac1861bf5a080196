"""The numeric core: numbers in, numbers out; usable as a library without the service.

Rates are per day and intervals in days; there is no clock, no input or output and no randomness
of its own here. docs/theory.md has the notation and the sources: K19, A22, GF08, CG03.
"""
