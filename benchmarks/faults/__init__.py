"""Faults on purpose while clients work, and a check of their history afterwards."""
