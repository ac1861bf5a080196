"""SQL put together from conditions."""

from collections.abc import Iterable

from service.storage.queue import LeaseFilter


def all_of(conditions: Iterable[str]) -> str:
    """Return the condition that all of these hold, each in brackets of its own.

    >>> all_of(["a = 1", "b OR c"])
    '(a = 1) AND (b OR c)'
    >>> all_of([])
    'true'
    """
    return " AND ".join(f"({condition})" for condition in conditions) or "true"


def in_reach(of: LeaseFilter, in_hosts: str, in_shard: str) -> list[str]:
    """Return those of two conditions that a reach needs: on its hosts, on its shard."""
    return ([in_hosts] if of.hosts else []) + ([in_shard] if of.shards > 1 else [])
