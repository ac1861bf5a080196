"""Savings by the log alone, against the true ones of replayed sites."""
