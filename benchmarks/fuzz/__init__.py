"""Requests that nobody should send, and what must come back nevertheless."""
