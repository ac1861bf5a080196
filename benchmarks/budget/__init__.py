"""Trials of the budget: whether each day keeps it, and what that costs in staleness."""
