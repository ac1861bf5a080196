"""Due times of pages, politeness to hosts, and leases of crawls."""
