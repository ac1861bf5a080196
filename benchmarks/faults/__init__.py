"""Faults injected while clients work, and checks of the clients' history afterwards."""
