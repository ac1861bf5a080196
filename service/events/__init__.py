"""The feed of changes: its readers, and the webhooks that deliver the feed."""
