"""The feed of changes in the store."""
