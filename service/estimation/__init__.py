"""Estimates of change rates: learnt from crawls and pings, read for an epoch."""
