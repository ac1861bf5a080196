"""Webhooks and subscriptions in the store; both databases run the same SQL."""
