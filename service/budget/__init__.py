"""The budget where crawls are handed out: what a server may lease, and what it has leased."""
