"""Pages for operators at /console: what the fleet does, and the acts of its administrators."""
