"""The store in memory, for replays and tests."""
