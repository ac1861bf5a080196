"""Policies played in a world, and the exact staleness that they reach."""
