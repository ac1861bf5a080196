"""Measurements and campaigns on access: roles, timing, fairness, cost of a key."""
