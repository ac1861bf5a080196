"""The budget, where crawls are handed out: what their pages cost."""
