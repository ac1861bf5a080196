"""Webs to crawl: synthetic, recorded, and served over HTTP."""
