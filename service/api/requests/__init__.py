"""Request bodies and queries, decoded to columns."""
