"""Policies played in a world, and the exact staleness of their copies."""
