"""Cost of the history in ingest over HTTP."""
