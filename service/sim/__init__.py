"""A web to crawl: worlds, policies, exact staleness, and the demo that plays one over HTTP."""
