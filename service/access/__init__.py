"""Access: keys, roles, limits, and the audit of administrative acts."""
