"""Keys and the audit in the store: one contract, its SQL, and what differs by database."""
