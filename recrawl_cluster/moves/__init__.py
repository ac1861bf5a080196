"""Moves of logical shards between databases."""
