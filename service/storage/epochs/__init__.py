"""Epochs in the store: their certificates and schedules, what they load and what they learn."""
