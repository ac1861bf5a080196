"""Epochs over several databases, in processes and on other machines."""
