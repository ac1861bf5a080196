"""Trials of the budget in the laboratory: what reaches it, and what that costs in staleness."""
