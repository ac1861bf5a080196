"""Pages in the store, with their states, validators, tags and lists."""
