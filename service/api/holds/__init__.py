"""Holds: the reasons why pages are not crawled now, and what decides them."""
