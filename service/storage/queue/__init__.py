"""The queue of due pages in the store, with leases, host queues, hosts and groups."""
