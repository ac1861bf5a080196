"""Benchmarks: one command each, a table on the terminal and JSON beside."""
