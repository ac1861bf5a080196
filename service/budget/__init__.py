"""The budget in use: what a server may lease, and which new pages are worth a first crawl."""
