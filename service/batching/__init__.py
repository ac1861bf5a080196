"""Requests that wait at the same moment share a transaction."""
