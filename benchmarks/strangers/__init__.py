"""Costs of hostile peers to a server that checks IndexNow keys, and to its honest callers."""
