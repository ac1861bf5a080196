"""The demo: a fleet of crawlers crawls a simulated site through a running service."""
