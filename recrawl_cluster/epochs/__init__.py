"""Epochs over several databases, in this process and on Dask workers."""
