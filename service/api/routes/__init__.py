"""Routes: one module for each resource."""
