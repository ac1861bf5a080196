"""Costs of strangers to a server that checks IndexNow keys, and to its honest callers."""
