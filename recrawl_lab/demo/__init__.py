"""The demo: a crawler fleet plays a world against a running service."""
