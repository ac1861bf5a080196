"""Estimates of change rates, learnt from crawls and pings, and read by epochs."""
