"""Where pages come from, besides the calls of crawlers."""
