"""Documents and messages of other sites: sitemaps, feeds, WebSub, IndexNow, robots.txt."""
