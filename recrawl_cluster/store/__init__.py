"""Several Postgres databases, sharded by host, and the statements on all of them."""
