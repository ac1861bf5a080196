"""Recrawl: a crawl scheduler that learns how often every page changes."""

__version__ = "0.1.0"
