"""The budget in the store: costs of pages, in its unit."""
