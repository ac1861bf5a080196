"""Several databases as one store, epochs over them, and moves of shards."""
