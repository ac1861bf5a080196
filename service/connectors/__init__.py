"""Documents of strangers: sitemaps, feeds, WebSub, IndexNow, robots.txt."""
