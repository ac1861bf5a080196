"""Epochs: load every page, allocate the bandwidth, publish the schedule."""
