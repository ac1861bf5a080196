"""One module of routes for each thing the service speaks of."""
