"""The budget: the pace, the worth of URL groups, the costs of pages."""
