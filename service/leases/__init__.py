"""When a page is due, whether its host may be crawled now, and who holds it."""
