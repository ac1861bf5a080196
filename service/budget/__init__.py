"""The budget in use: which new pages are worth their first crawl."""
