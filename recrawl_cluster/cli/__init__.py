"""`recrawl shards`."""
