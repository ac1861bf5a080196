"""The HTTP server: connections, deadlines, limits."""
