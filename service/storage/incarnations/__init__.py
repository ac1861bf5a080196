"""Incarnations of the database: one contract, its SQL, and how a restored database is noticed."""
