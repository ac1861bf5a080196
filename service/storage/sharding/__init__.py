"""One store over several Postgres databases, sharded by host."""
