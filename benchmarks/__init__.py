"""Benchmarks: one command each, which prints a table and writes JSON."""
