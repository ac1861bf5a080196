"""The log of observations in the store, in the database and in the archive."""
