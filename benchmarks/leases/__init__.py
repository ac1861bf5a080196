"""Leases over HTTP: workers that take crawls and report them, on real processes."""
